"""The class of a parameter that is not in use.

Its data is a placeholder. A function of PyTorch on it makes it resident during the call: reading exports its memory,
and writing gets its fp32 value, which the parameter then follows. Functions that only need its shape, type or hooks
need neither."""
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
import torch.nn as nn

from ._library import GRADIENT, WRITE, Refused
from ._slot import Slot
from ._torch import no_torch_function

# A function that is in none of the sets below reads the parameter's values, or, by a name with a trailing _,
# writes to the first argument.

# Attributes that are values; all others describe the parameter.
_VALUE_ATTRIBUTES = {"data", "T", "H", "mT", "mH", "real", "imag"}

# Functions that need no values.
_METADATA_FUNCTIONS = {"size", "dim", "ndimension", "numel", "nelement", "__len__", "__hash__", "is_floating_point",
                       "is_complex", "is_signed", "is_same_size", "is_inference", "element_size", "get_device",
                       "has_names", "result_type", "type", "requires_grad_", "retain_grad", "register_hook",
                       "register_post_accumulate_grad_hook", "_is_view", "empty_like", "zeros_like", "ones_like",
                       "full_like", "rand_like", "randn_like", "new_empty", "new_zeros", "new_ones", "new_full",
                       "new_tensor"}

# Functions that return a tensor on the same memory, which may be written to without gradients.
_ALIASES = {"data", "detach", "numpy", "__array__", "__dlpack__"}
_VIEWS = {"view", "view_as", "reshape", "flatten", "unflatten", "t", "transpose", "permute", "narrow", "select",
          "__getitem__", "squeeze", "unsqueeze", "expand", "chunk", "split", "unbind", "diagonal", "T", "mT", "H", "mH",
          "as_strided", "movedim", "swapaxes"}

_IN_PLACE_OPERATORS = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__ipow__",
                       "__imod__", "__iand__", "__ior__", "__ixor__"}

# Functions that overwrite the whole value.
OVERWRITING = {"copy_", "zero_", "fill_", "normal_", "uniform_", "zeros_", "ones_", "constant_"}


def attribute_of(func: Any) -> Optional[str]:
    """The name of the attribute that the function reads, sets or deletes; None for other functions."""
    is_access = getattr(func, "__name__", "") in ("__get__", "__set__", "__delete__")
    return func.__self__.__name__ if is_access else None


class Lost(nn.Parameter):
    """A parameter whose values were in chunks already when initialize_engine failed, or of a block of patrickstar.init
    that failed. Any use of them is refused."""

    def refuse(self) -> None:
        raise Refused("parameter %s has no values any more: they were in chunks already when an initialize_engine of "
                      "its module failed, or the block of patrickstar.init that built it; build the module anew"
                      % self._ps_name)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        attribute = attribute_of(func)
        if attribute in _VALUE_ATTRIBUTES or (attribute is None and not _is_metadata(name, args)):
            next(value for value in _flat((args, tuple(kwargs.values()))) if type(value) is Lost).refuse()
        with no_torch_function():
            return func(*args, **kwargs)


class Parked(nn.Parameter):
    """The slot is its attribute _ps."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        slots = slots_in(args, kwargs)
        name = getattr(func, "__name__", "")
        attribute = attribute_of(func)
        if not slots:
            with no_torch_function():
                return func(*args, **kwargs)
        if attribute == "grad":
            return _gradient(slots[0], name, args)
        if name == "__set__" and attribute == "data":
            return _set_data(slots[0], args[0], args[1])
        metadata = _metadata_of(slots[0], name, args, kwargs) if attribute is None else None
        if metadata is not None:
            return metadata[0]
        if (attribute is not None and attribute not in _VALUE_ATTRIBUTES) or _is_metadata(name, args):
            with no_torch_function():
                return func(*args, **kwargs)
        called = attribute or name
        written = list(_slots_written(name, args, kwargs))
        aliased = called in _ALIASES or (called in _VIEWS and not torch.is_grad_enabled())
        with slots[0].front.using(slots, written, is_overwritten=name in OVERWRITING, may_be_written_later=aliased):
            return func(*args, **kwargs)

    def __deepcopy__(self, memo: Any) -> Any:
        raise Refused("deepcopy of parameter %s, which is in chunks: copy model.state_dict()" % self._ps.name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Refused("pickle of parameter %s, which is in chunks: save model.state_dict()" % self._ps.name)


def slots_in(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> List[Slot]:
    """Slots of the parked parameters in the arguments of a call, also in lists, tuples and dictionaries."""
    return list(_slots_in(args)) + list(_slots_in(kwargs.values()))


def _slots_in(values: Iterable[Any]) -> Iterator[Slot]:
    return (value._ps for value in _flat(values) if type(value) is Parked)


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        elif isinstance(value, dict):
            yield from _flat(value.values())
        else:
            yield value


def _slots_written(name: str, args: Any, kwargs: Any) -> Iterator[Slot]:
    out = kwargs.get("out")
    yield from _slots_in(out if isinstance(out, (list, tuple)) else [out])
    if (name[-1:] == "_" and name[-2:] != "__") or name in _IN_PLACE_OPERATORS:
        yield from _slots_in([args[0] if args else next(iter(kwargs.values()))])  # nn.init passes it by keyword


def _is_metadata(name: str, args: Any) -> bool:
    return name in _METADATA_FUNCTIONS and not (name == "type" and len(args) > 1)


def _metadata_of(slot: Slot, name: str, args: Any, kwargs: Any) -> Optional[List[Any]]:
    """[answer] for attributes that the placeholder would report wrongly."""
    if name == "stride":
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        return [slot.strides if dim is None else slot.strides[dim]]
    if name == "is_contiguous" and len(args) == 1 and not kwargs:
        return [True]
    if name == "storage_offset":
        return [0]
    return None


def _gradient(slot: Slot, access: str, args: Any) -> Optional[torch.Tensor]:
    """p.grad, between backward and step: stored in chunks."""
    has = slot.front.client.has_gradient(slot.number)
    if access == "__get__":
        with no_torch_function():
            arriving = args[0].grad  # for hooks of the user that run before ours
        if arriving is not None or not has:
            return arriving
        _expect_plain_gradient(slot)
        return slot.front.export_gradient(slot)
    value = args[1] if access == "__set__" else None
    if value is None:
        with no_torch_function():
            args[0].grad = None
        if has:
            slot.front.drop_gradient(slot)
    elif value.shape != slot.shape:
        raise Refused("%s.grad: expected shape %s, found %s" % (slot.name, tuple(slot.shape), tuple(value.shape)))
    elif value.device != slot.placeholder.device:
        raise Refused("%s.grad: expected a tensor on %s, found one on %s"
                      % (slot.name, slot.placeholder.device, value.device))
    elif has:
        with torch.no_grad():
            slot.export_dlpack(GRADIENT, WRITE).copy_(value)
    else:
        slot.front.give_gradient(slot, value.detach().to(slot.dtype))
    return None


def _expect_plain_gradient(slot: Slot) -> None:
    """Between backward and step it is that of the loss on this rank's batch; otherwise reading is refused."""
    client = slot.front.client
    if client.info.n_ranks > 1:
        raise Refused("%s.grad with %d ranks: gradients are reduced to their owners; gradient_clipping of the "
                      "configuration clips by the norm of all, and optimizer.last_step.grad_norm has it"
                      % (slot.name, client.info.n_ranks))
    scale = client.get_loss_scale()
    if scale != 1:
        raise Refused("%s.grad in fp16 would be %g times the gradient, by the loss scale; gradient_clipping of the "
                      "configuration clips, and optimizer.last_step.grad_norm has the norm" % (slot.name, scale))


def _set_data(slot: Slot, param: "Parked", value: torch.Tensor) -> None:
    if value is param:
        return
    if value.shape != slot.shape:
        raise Refused("%s.data: expected shape %s, found %s; the layout of chunks is fixed: have model_func build a "
                      "model of that shape" % (slot.name, tuple(slot.shape), tuple(value.shape)))
    if value.dtype not in (slot.dtype, torch.float32):
        raise Refused("%s.data: expected %s, found %s; the number format is that of the configuration (bf16.enabled, "
                      "fp16.enabled)" % (slot.name, slot.dtype, value.dtype))
    if value.device != slot.placeholder.device:
        raise Refused("%s.data: expected a tensor on %s, found one on %s; the device is the "
                      "configuration's choice (train.backend)" % (slot.name, slot.placeholder.device, value.device))
    with torch.no_grad():
        param.copy_(value)
