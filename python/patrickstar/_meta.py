"""First values of tensors that a module has on torch.device("meta").

They come from the module's own initialisers, called as Module.apply does, children before their parent:

    reset_parameters()      or _reset_parameters(), as nn.MultiheadAttention has, of each module with tensors on meta;
                            modules of torch.nn get the bits that their constructors would give them
    _init_weights(module)   of the model of transformers that the module belongs to; where this leaves a tensor out,
                            after the module's reset_parameters()

An initialiser of a module that contains others runs if all tensors below it were on meta. Tensors that had values
before (load_state_dict(assign=True)) keep them. What has no value afterwards is refused by name."""
import inspect
import logging
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

import torch
import torch.nn as nn

from ._library import Refused

_log = logging.getLogger("patrickstar")


class Unset:
    """The tensors that have got memory in place of one on meta, and which still have no value."""

    def __init__(self) -> None:
        self._tensors: Dict[nn.Module, Dict[str, Tuple[torch.Tensor, int]]] = {}  # by name, with their version
        self._constructors: Set[str] = set()  # classes that may have given other values to modules inside

    def add(self, module: nn.Module, key: str, tensor: torch.Tensor) -> None:
        """Filled by `blank`."""
        self._tensors.setdefault(module, {})[key] = tensor, tensor._version

    def __bool__(self) -> bool:
        return bool(self._tensors)

    def _of(self, module: nn.Module) -> List[str]:
        """Its tensors without a value."""
        return [key for key, (tensor, version) in self._tensors.get(module, {}).items()
                if _get(module, key) is tensor and _is_blank(tensor, version)]

    def initialise(self, model: nn.Module) -> None:
        self._initialise(model, None, {})
        if self._constructors:
            _log.warning("modules on meta have the values of reset_parameters(); other values that the constructor of %s "
                         "gave them (zeros, a scaled range) had no effect. Where there are such, build the model in "
                         "`with patrickstar.init(config):` without the meta device, or give the class a "
                         "reset_parameters()", ", ".join(sorted(self._constructors)))
        missing = [prefix + "." * bool(prefix) + key for prefix, module in model.named_modules()
                   for key in self._of(module)]
        if missing:
            raise Refused("%s on meta, and %s: load a checkpoint into the model before (model.load_state_dict(state, "
                          "assign=True), or from_pretrained), give the class a reset_parameters(), or build the model "
                          "without the meta device in `with patrickstar.init(config):`, where constructors give values"
                          % (_list(missing), "no initialiser of their modules gives them values" if len(missing) > 1
                             else "no initialiser of its module gives it a value"))

    def _initialise(self, module: nn.Module, owner: Any, done: Dict[nn.Module, bool]) -> bool:
        """Returns whether all tensors of the module and those below it were on meta (True where there is none)."""
        if module in done:
            return done[module]
        done[module] = True  # a module that contains itself
        owner = module if _takes_a_module(getattr(module, "_init_weights", None)) else owner
        below = [self._initialise(child, owner, done) for child in module.children()]
        blank = self._tensors.get(module, {})
        kept = [tensor for key, tensor in _tensors(module) if key not in blank]
        done[module] = all(below) and not kept
        if blank or (done[module] and self._has_any_below(module)):
            self._call(module, owner, kept)
        return done[module]

    def _has_any_below(self, module: nn.Module) -> bool:
        return any(part in self._tensors for part in module.modules())

    def _call(self, module: nn.Module, owner: Any, kept: List[torch.Tensor]) -> None:
        before = [tensor.detach().clone() for tensor in kept]
        reset = next((getattr(module, name) for name in ("reset_parameters", "_reset_parameters")
                      if callable(getattr(module, name, None))), None)
        if owner is None and reset is None and not type(module).__module__.startswith("torch.nn."):
            self._constructors.add(type(module).__name__)
        if owner is not None:
            owner._init_weights(module)
        if reset is not None and (owner is None or self._of(module)):
            reset()
            if owner is not None:
                owner._init_weights(module)
        for tensor, value in zip(kept, before):
            tensor.data.copy_(value)


def blank(tensor: torch.Tensor) -> torch.Tensor:
    """Memory for a tensor on meta, in which a missing value shows."""
    if tensor.is_floating_point() or tensor.is_complex():
        return torch.full(tensor.shape, float("nan"), dtype=tensor.dtype, device="cpu")
    return torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")


def _takes_a_module(method: Any) -> bool:
    """As PreTrainedModel._init_weights does; others of that name may take nothing."""
    try:
        inspect.signature(method).bind(None)
        return True
    except (TypeError, ValueError):
        return False


def _is_blank(tensor: torch.Tensor, version: int) -> bool:
    if tensor.numel() == 0:
        return False
    if tensor.is_floating_point() or tensor.is_complex():
        return bool(torch.isnan(tensor.detach().sum()))
    return tensor._version == version


def _tensors(module: nn.Module) -> Iterator[Tuple[str, torch.Tensor]]:
    for tensors in (module._parameters, module._buffers):
        for key, tensor in tensors.items():
            if tensor is not None:
                yield key, tensor


def _get(module: nn.Module, key: str) -> Optional[torch.Tensor]:
    return module._parameters[key] if key in module._parameters else module._buffers.get(key)


def _list(names: List[str]) -> str:
    return "%s%s %s" % (", ".join(names[:5]), " and %d others" % (len(names) - 5) if len(names) > 5 else "",
                        "are" if len(names) > 1 else "is")
