"""A parameter and its memory: state shared by the front, the handles of autograd and the optimizer."""
import sys
from typing import Any, Optional, Tuple

import torch
import torch.nn as nn

from ._library import PARAM


class Slot:
    """A tensor of the client, and the nn.Parameter that stands for it.

    The parameter is in use (class Parameter, data on the tensor's memory) or parked (class Parked, data its
    placeholder: a separate NaN, expanded to its shape, which makes any arithmetic on it visible)."""

    def __init__(self, front: Any, number: int, name: str, param: nn.Parameter, dtype: torch.dtype, is_unmanaged: bool,
                 device: torch.device) -> None:
        self.front = front
        self.number = number
        self.name = name
        self.param = param
        self.shape = param.shape
        self.strides = row_strides(param.shape)
        self.dtype = dtype  # of PS_CLIENT_PARAM
        self.is_unmanaged = is_unmanaged
        self.site = name.rpartition(".")[0] or "model"  # the module that reads it: a moment's label
        self.placeholder_element = torch.full((), float("nan"), dtype=dtype, device=device)
        self.placeholder = self.placeholder_element.expand(param.shape)
        self.n_uses = 0  # modules and functions that use it now
        # Each handle in a graph of autograd holds a reference to mark. A destructor of handles would count them too, but
        # a KeyboardInterrupt that Python raises within a destructor is lost.
        self.mark = object()
        self._own_references = sys.getrefcount(self.mark)
        self.version = 0  # counts changes of its value: updates, writes
        self.address: Optional[int] = None  # of its memory at its last export
        # (version, writes) of the handles that a module created after it had written to the parameter in place, if that
        # is the last change: these are of the present value.
        self.own_handles: Any = None
        self.version_in_use = 0  # autograd's version of param when its use began
        self.grad_hook: Any = None  # the hook that receives its gradient
        self.saved_value: Any = None  # weak reference to the last result of state_dict, with its version
        self.saved_version = -1

    def export_dlpack(self, what: int, mode: int) -> torch.Tensor:
        tensor = self.front.client.export_dlpack(self.number, what, mode)
        if what == PARAM:
            self.address = tensor.data_ptr()
            self.front.exported[self.address] = self
        return tensor

    @property
    def n_saved(self) -> int:
        """Handles of it in graphs of autograd."""
        return sys.getrefcount(self.mark) - self._own_references

    def change_version(self) -> None:
        self.version += 1
        self.own_handles = None

    def is_exported(self) -> bool:
        """Is a storage on its memory alive? Its address is valid then."""
        return self.front.client.pin_counts[self.number] > 0


def row_strides(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    strides, stride = [], 1
    for n in reversed(shape):
        strides.append(stride)
        stride *= max(n, 1)
    return tuple(reversed(strides))
