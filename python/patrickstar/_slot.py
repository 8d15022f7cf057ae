"""A parameter and its places: what the front, the handles of autograd and the optimizer share of it."""
from typing import Any, Optional, Tuple

import torch
import torch.nn as nn

from ._library import PARAM


class Slot:
    """A tensor of the client's, and the nn.Parameter that stands for it.

    The parameter is in use (class Parameter, data on the tensor's place) or parked (class Parked, data its hole: one
    NaN of its own, expanded to its shape, which no arithmetic survives unseen)."""

    def __init__(self, front: Any, number: int, name: str, param: nn.Parameter, dtype: torch.dtype, is_apart: bool,
                 device: torch.device) -> None:
        self.front = front
        self.number = number
        self.name = name
        self.param = param
        self.shape = param.shape
        self.strides = row_strides(param.shape)
        self.dtype = dtype  # of PS_CLIENT_PARAM
        self.is_apart = is_apart
        self.site = name.rpartition(".")[0] or "model"  # the module that reads it: a moment's label
        self.hole_element = torch.full((), float("nan"), dtype=dtype, device=device)
        self.hole = self.hole_element.expand(param.shape)
        self.n_uses = 0  # modules and functions that have it in use
        self.n_saved = 0  # handles of it in graphs of autograd
        self.version = 0  # counts changes of its value: updates, writes
        self.address: Optional[int] = None  # of its place when it was last lent
        # (version, writes) of the handles that a module made after it had written to the parameter in place, where that
        # is the last change: these are of the present value.
        self.own_handles: Any = None
        self.version_in_use = 0  # of param, by autograd's count, when its use began
        self.watched: Any = None  # the hook that takes its gradient
        self.saved_value: Any = None  # weak reference to what state_dict gave out last, with the version of then
        self.saved_version = -1

    def lend(self, what: int, mode: int) -> torch.Tensor:
        tensor = self.front.client.lend(self.number, what, mode)
        if what == PARAM:
            self.address = tensor.data_ptr()
            self.front.lent[self.address] = self
        return tensor

    def change_version(self) -> None:
        self.version += 1
        self.own_handles = None

    def is_lent(self) -> bool:
        """Is a storage on its place alive? Its address is right then."""
        return self.front.client.pin_counts[self.number] > 0


def row_strides(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    strides, stride = [], 1
    for n in reversed(shape):
        strides.append(stride)
        stride *= max(n, 1)
    return tuple(reversed(strides))
