"""Handles that autograd keeps between forward and backward in place of parameters.

Operators save views of parameters (F.linear the transposed weight). Kept as they are, these would pin a chunk until the
backward pass, or dangle. So saved_tensors_hooks, active while parameters are in use, replace every tensor on exported
memory by a handle (parameter, strides, offset), which exports the parameter again when backward unpacks it. Hooks of
others (activation checkpointing, save_on_cpu, the user's) get all other tensors."""
import functools
import threading
import weakref
from typing import Any, Callable, List

import torch

from ._library import BACKWARD, PARAM, READ, Refused
from ._parked import Parked
from ._slot import Slot
from ._torch import pop_saved_tensors_hooks, push_saved_tensors_hooks, storage_address


class Handle:
    """A parameter, or a view of it, within a graph."""
    __slots__ = ("slot", "mark", "version", "writes", "shape", "strides", "offset")

    def __init__(self, slot: Slot, tensor: torch.Tensor, is_whole: bool) -> None:
        self.slot, self.version = slot, slot.version
        self.writes = tensor._version  # within the current use
        self.shape = tensor.shape
        self.strides, self.offset = (slot.strides, 0) if is_whole else (tensor.stride(), tensor.storage_offset())
        self.mark = slot.mark

    def borrow(self) -> torch.Tensor:
        slot = self.slot
        if self.version != slot.version and (self.version, self.writes) != slot.own_handles:
            raise RuntimeError("one of the variables needed for gradient computation has been modified by an inplace "
                               "operation: parameter %s was updated or written to after the forward pass that used it"
                               % slot.name)
        tensor = slot.export_dlpack(PARAM, READ)
        if self.strides == slot.strides and self.shape == slot.shape:
            return tensor
        return tensor.as_strided(self.shape, self.strides, self.offset)


class SavedTensors:
    """The hooks of one front."""

    def __init__(self, front: Any) -> None:
        self._front = weakref.ref(front)
        self._n_in_use = 0
        self._is_pushed = False
        self.placeholders = {}  # address of a placeholder's element: its slot

    def begin_use(self) -> None:
        """Parameters are in use from now on. Other saved activations cost nothing."""
        if self._n_in_use == 0 and _others.n == 0:
            _push(self.pack, self.unpack)
            self._is_pushed = True
        self._n_in_use += 1

    def end_use(self) -> None:
        self._n_in_use -= 1
        if self._n_in_use == 0 and self._is_pushed:
            pop_saved_tensors_hooks()
            self._is_pushed = False

    def pack_parameter(self, tensor: torch.Tensor) -> Any:
        """A handle, or None if the tensor is no parameter of this front."""
        front = self._front()
        if type(tensor) is Parked:  # passed to autograd.Function.apply, which is no torch function
            return Handle(tensor._ps, tensor, True) if tensor._ps.front is front else None
        address = storage_address(tensor)
        slot = front.exported.get(address)
        if slot is not None and slot.address == address and slot.is_exported():
            if tensor.dtype == slot.dtype:
                return Handle(slot, tensor, False)
            return None  # a view of another dtype stays exported, which is safe
        if address in self.placeholders:
            raise Refused("parameter %s is read where PyTorch calls no hook; use it within the forward of the module "
                          "that it belongs to" % self.placeholders[address].name)
        return None

    def pack(self, tensor: torch.Tensor) -> Any:
        handle = self.pack_parameter(tensor)
        if handle is not None:
            return handle
        # An operator's own output (softmax, relu), kept as it is, would be a reference cycle that the collector does
        # not see.
        return (tensor if tensor.is_leaf else tensor.detach()), tensor._version

    def unpack(self, packed: Any) -> torch.Tensor:
        if type(packed) is Handle:
            return unpack_handle(packed)
        tensor, version = packed
        if tensor._version != version:  # with hooks PyTorch does not check the version
            raise RuntimeError("one of the variables needed for gradient computation has been modified by an inplace "
                               "operation: a tensor of shape %s is at version %d; expected version %d instead"
                               % (tuple(tensor.shape), tensor._version, version))
        return tensor


def _push(pack: Callable, unpack: Callable) -> None:
    try:
        push_saved_tensors_hooks(pack, unpack)
    except RuntimeError as error:
        if "torch.func" not in str(error):
            raise
        raise Refused("torch.func (grad, vjp, jacrev, hessian) over a module whose parameters are in chunks: "
                      "torch.func disables saved-tensor hooks, which the engine needs to evict parameters between "
                      "forward and backward; use torch.autograd.grad or model.backward") from error


def unpack_handle(handle: Handle) -> torch.Tensor:
    front = handle.slot.front
    if handle.slot.site != front.last_site:
        front.last_site = handle.slot.site
        front.client.moment(BACKWARD, handle.slot.site)
    return handle.borrow()


_active: List["weakref.ref[SavedTensors]"] = []


class _Others(threading.local):
    n = 0  # active hooks of others in this thread


_others = _Others()


def activate(saved: SavedTensors) -> None:
    """From now on parameters of that front become handles also within the hooks of others."""
    _compose_with_others()
    _active[:] = [other for other in _active if other() is not None] + [weakref.ref(saved)]


def _pack_any(tensor: torch.Tensor) -> Any:
    for reference in _active:
        saved = reference()
        handle = saved.pack_parameter(tensor) if saved is not None and saved._front() is not None else None
        if handle is not None:
            return handle
    return None


@functools.lru_cache(maxsize=None)  # once a process
def _compose_with_others() -> None:
    hooks = torch.autograd.graph.saved_tensors_hooks
    init, enter, leave = hooks.__init__, hooks.__enter__, hooks.__exit__

    def composed_init(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        def pack(tensor: torch.Tensor) -> Any:
            handle = _pack_any(tensor)
            return pack_hook(tensor) if handle is None else handle

        def unpack(packed: Any) -> torch.Tensor:
            return unpack_handle(packed) if type(packed) is Handle else unpack_hook(packed)

        init(self, pack, unpack)

    def counted_enter(self: Any) -> Any:
        entered = enter(self)
        _others.n += 1
        return entered

    def counted_leave(self: Any, *error: Any) -> Any:
        _others.n -= 1
        return leave(self, *error)

    hooks.__init__, hooks.__enter__, hooks.__exit__ = composed_init, counted_enter, counted_leave
