"""Differences between versions of PyTorch, 1.13 to the 2.x of today, outside of its public interface."""
import pickle
import sys
import types
from typing import Any, Callable, Optional, Tuple

import torch

VERSION: Tuple[int, ...] = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])

push_saved_tensors_hooks: Callable = torch._C._autograd._push_saved_tensors_default_hooks
pop_saved_tensors_hooks: Callable = torch._C._autograd._pop_saved_tensors_default_hooks

# Within it functions on subclasses of tensors are those of torch.Tensor.
no_torch_function: Any = torch._C.DisableTorchFunctionSubclass if VERSION >= (2, 0) else torch._C.DisableTorchFunction

# The class of module._parameters.
ParametersDict: type = type(torch.nn.Module()._parameters)

is_tracing: Callable[[], bool] = torch._C._is_tracing  # by torch.jit

HAS_POST_ACCUMULATE_HOOKS: bool = VERSION >= (2, 1)


def storage_address(tensor: torch.Tensor) -> Optional[int]:
    """The address of its storage; None for tensors without one (sparse, functional)."""
    try:
        return (tensor.untyped_storage() if VERSION >= (2, 0) else tensor._storage()).data_ptr()
    except (RuntimeError, NotImplementedError):
        return None


def not_compiled(function: Callable) -> Callable:
    """torch.compile breaks its graph at this function, and calls it as it is."""
    return torch.compiler.disable(function) if VERSION >= (2, 1) else function


def exclude_from_compile(kind: type) -> None:
    """torch.compile does not compile operations on tensors of that class."""
    config = sys.modules.get("torch._dynamo.config")
    getattr(config, "nontraceable_tensor_subclasses", set()).add(kind)


def is_autocast_on(device_type: str) -> bool:
    if VERSION >= (2, 4):
        return torch.is_autocast_enabled(device_type)
    return torch.is_autocast_enabled() if device_type == "cuda" else torch.is_autocast_cpu_enabled()


class _Restricted(pickle.Unpickler):
    """Creates tensors, numbers, texts and containers, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        is_known = (module, name) in (("collections", "OrderedDict"), ("collections", "Counter"),
                                      ("torch._utils", "_rebuild_tensor_v2"))
        if is_known or (module == "torch" and (name.endswith("Storage") or name in ("Size", "device"))):
            return super().find_class(module, name)
        raise pickle.UnpicklingError("it calls %s.%s" % (module, name))


def load_plain(source: Any, is_mapped: bool = False) -> Any:
    """torch.load(weights_only=True), which before PyTorch 2 does not support floats. is_mapped: source is a path, and
    tensors are mapped and use memory only where they are read, from PyTorch 2.1 on."""
    if VERSION >= (2, 0):
        mapped = {"mmap": True} if is_mapped and VERSION >= (2, 1) else {}
        return torch.load(source, map_location="cpu", weights_only=True, **mapped)
    inner: Any = torch.serialization  # its torch.load accepts only the module pickle
    with inner._open_file_like(source, "rb") as file, inner._open_zipfile_reader(file) as archive:
        return inner._load(archive, "cpu", types.SimpleNamespace(Unpickler=_Restricted), encoding="utf-8")
