"""What else of PyTorch's takes a model's parameters in hand: refused by name where they lie in chunks."""
import functools
from typing import Any, Iterable, Optional, Type

import torch
import torch.nn as nn

from .._library import Refused
from .._slot import Slot
from .engine import ONE_PROCESS_A_GPU
from .optimizer import Optimizer


def _first_in_chunks(params: Iterable[Any]) -> Optional[Slot]:
    for param in params:
        slot = getattr(param, "_ps", None)
        if isinstance(slot, Slot):
            return slot
    return None


def _refuse_optimizers() -> None:
    add = torch.optim.Optimizer.add_param_group

    @functools.wraps(add)
    def add_unless_in_chunks(self: Any, param_group: Any) -> None:
        add(self, param_group)
        slot = None if isinstance(self, Optimizer) else _first_in_chunks(self.param_groups[-1]["params"])
        if slot is not None:
            self.param_groups.pop()
            raise Refused("%s over %s, which lies in chunks: the optimizer that initialize_engine gave updates it, and "
                          "optimizer.type of the configuration says which kind (a Trainer makes its own: write the "
                          "loop, as doc/pytorch.md does)" % (type(self).__name__, slot.name))

    torch.optim.Optimizer.add_param_group = add_unless_in_chunks  # type: ignore[method-assign]


def _refuse_wrapper(wrapper: Type[nn.Module], instead: str) -> None:
    init = wrapper.__init__

    @functools.wraps(init)
    def init_unless_in_chunks(self: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        slot = _first_in_chunks(module.parameters()) if isinstance(module, nn.Module) else None
        if slot is not None:
            raise Refused("%s over %s, which lies in chunks: %s" % (wrapper.__name__, slot.name, instead))
        init(self, module, *args, **kwargs)

    wrapper.__init__ = init_unless_in_chunks  # type: ignore[method-assign]


_refuse_optimizers()
_refuse_wrapper(nn.parallel.DistributedDataParallel,
                "gradients are averaged over the ranks already; use the engine as it is")
_refuse_wrapper(nn.DataParallel, ONE_PROCESS_A_GPU)
