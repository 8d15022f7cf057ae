"""state_dict of a module whose parameters are in chunks: their fp32 values, copied; tied ones as one tensor. That of
one rank (front.saves_part) has only the parameters that the rank keeps, or a part of, and needs no more memory than
these and one more."""
import collections
import functools
import weakref
from typing import Any, Dict, List

import torch
import torch.nn as nn

from ._front import Front
from ._library import BudgetError, format_bytes, get_available_memory
from ._slot import Slot


def save_by(front: Front, module: nn.Module) -> None:
    """Have the module's own state_dict, and those of all modules that contain it, read its parameters from chunks."""
    inner = module._save_to_state_dict

    @functools.wraps(inner)
    def save(destination: Dict[str, Any], prefix: str, keep_vars: bool) -> None:
        saved: Dict[str, Any] = collections.OrderedDict()
        inner(saved, prefix, True)  # buffers, and the module's other state
        for name, value in saved.items():
            slot = getattr(value, "_ps", None)
            if slot is not None and front.saves_part and not front.client.keeps(slot.number):
                _join_read(front, slot)
                continue
            if isinstance(value, torch.Tensor) and not keep_vars:
                value = _value(front, slot) if slot is not None else value.detach()
            destination[name] = value

    state_dict = module.state_dict

    @functools.wraps(state_dict)
    def read_state_dict(*args: Any, **kwargs: Any) -> Any:
        """With several ranks all read the same, whatever each has cached from the last call."""
        if not args and kwargs.get("destination") is None:  # otherwise it is called for a containing module
            slots = {param._ps for param in module.parameters() if hasattr(param, "_ps")}
            check_room("state_dict()", sum(slot.shape.numel() for slot in slots
                                           if not front.saves_part or front.client.keeps(slot.number)), 1)
            front.version += 1
        return state_dict(*args, **kwargs)

    module._save_to_state_dict, module.state_dict = save, read_state_dict


def check_room(what: str, n_elements: int, n_copies: int) -> None:
    """Refuse a copy that the machine could not hold: the system would end the process instead."""
    n_bytes, available = 4 * n_elements * n_copies, get_available_memory()
    if n_bytes > available:
        raise BudgetError("EBUDGET", "%s copies %s in fp32, and this machine has %s of memory left. "
                          "model.save_checkpoint(folder) saves all that training continues from, "
                          "model.save_pretrained(folder) and model.save_weights(path) the weights, and none of them "
                          "needs memory for it" % (what, format_bytes(n_bytes), format_bytes(available)))


def names_of(module: nn.Module) -> Dict[Slot, List[str]]:
    """The names of each parameter in state_dict: all names of a tied one."""
    names: Dict[Slot, List[str]] = collections.defaultdict(list)
    for prefix, part in module.named_modules(remove_duplicate=False):
        for key, param in part._parameters.items():
            if hasattr(param, "_ps"):
                names[param._ps].append(prefix + "." * bool(prefix) + key)
    return names


def _join_read(front: Front, slot: Slot) -> None:
    """All ranks read a value, once, also those that do not save it."""
    if slot.saved_version != front.version:
        front.client.read(slot.number, None, slot.shape)
        slot.saved_value, slot.saved_version = None, front.version


def _value(front: Front, slot: Slot) -> torch.Tensor:
    if slot in front.held:
        return front.held[slot]
    value = slot.saved_value() if slot.saved_value is not None else None
    if value is None or slot.saved_version != front.version:
        value = front.client.read(slot.number, None, slot.shape)
        slot.saved_value, slot.saved_version = weakref.ref(value), front.version
    return value
