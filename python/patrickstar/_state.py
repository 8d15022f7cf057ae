"""state_dict of a module whose parameters lie in chunks: their fp32 values, copied; tied ones as one tensor."""
import collections
import functools
import weakref
from typing import Any, Dict

import torch
import torch.nn as nn

from ._front import Front
from ._slot import Slot


def save_by(front: Front, module: nn.Module) -> None:
    """Have the module's own state_dict, and those of all modules it is in, read its parameters from chunks."""
    inner = module._save_to_state_dict

    @functools.wraps(inner)
    def save(destination: Dict[str, Any], prefix: str, keep_vars: bool) -> None:
        saved: Dict[str, Any] = collections.OrderedDict()
        inner(saved, prefix, True)  # buffers, and what else the module has to save
        for name, value in saved.items():
            if isinstance(value, torch.Tensor) and not keep_vars:
                value = _value(front, value._ps) if hasattr(value, "_ps") else value.detach()
            destination[name] = value

    module._save_to_state_dict = save


def save_root_by(front: Front, model: nn.Module) -> None:
    """Have each call of the model's state_dict read anew: with several ranks all read the same, whatever each has kept
    of the last."""
    inner = model.state_dict

    @functools.wraps(inner)
    def state_dict(*args: Any, **kwargs: Any) -> Any:
        front.version += 1
        return inner(*args, **kwargs)

    model.state_dict = state_dict


def _value(front: Front, slot: Slot) -> torch.Tensor:
    value = slot.saved_value() if slot.saved_value is not None else None
    if value is None or slot.saved_version != front.version:
        value = front.client.read(slot.number, None, slot.shape)
        slot.saved_value, slot.saved_version = weakref.ref(value), front.version
    return value
