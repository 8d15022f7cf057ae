"""Other code of PyTorch that processes a model's parameters, if they are in chunks: refused by name; or, if it bypasses
functions of PyTorch, given resident parameters."""
import contextlib
import functools
import importlib
from typing import Any, Iterable, Optional, Type

import torch
import torch.nn as nn

from .._library import Refused
from .._parked import slots_in
from .._slot import Slot
from .engine import ONE_PROCESS_A_GPU
from .optimizer import Optimizer, is_template_allowed


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
        is_allowed = isinstance(self, Optimizer) or is_template_allowed()
        slot = None if is_allowed else _first_in_chunks(self.param_groups[-1]["params"])
        if slot is not None:
            self.param_groups.pop()
            raise Refused("%s over %s, which is in chunks: the optimizer of initialize_engine updates it, and "
                          "optimizer.type of the configuration sets its kind (a Trainer creates its own: use "
                          "patrickstar.Trainer, doc/trainer.md; an Accelerator takes one that was created before "
                          "prepare)"
                          % (type(self).__name__, slot.name))

    torch.optim.Optimizer.add_param_group = add_unless_in_chunks  # type: ignore[method-assign]


def _refuse_steps() -> None:
    """Of an optimizer that was created before its parameters went into chunks (PyTorch 2)."""
    register = getattr(importlib.import_module("torch.optim.optimizer"), "register_optimizer_step_pre_hook", None)

    def refuse(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if isinstance(optimizer, Optimizer):
            return
        for group in optimizer.param_groups:
            slot = _first_in_chunks(group["params"])
            if slot is not None:
                raise Refused("step() of %s, which was created before %s was in chunks: call step() of the optimizer "
                              "that initialize_engine, or Accelerator.prepare(model, optimizer), returned"
                              % (type(optimizer).__name__, slot.name))

    if register is not None:
        register(refuse)


def _refuse_wrapper(wrapper: Type[nn.Module], instead: str) -> None:
    init = wrapper.__init__

    @functools.wraps(init)
    def init_unless_in_chunks(self: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        slot = _first_in_chunks(module.parameters()) if isinstance(module, nn.Module) else None
        if slot is not None:
            raise Refused("%s over %s, which is in chunks: %s" % (wrapper.__name__, slot.name, instead))
        init(self, module, *args, **kwargs)

    wrapper.__init__ = init_unless_in_chunks  # type: ignore[method-assign]


def _pin_for_script_functions() -> None:
    """A function of torch.jit.script uses its parameter arguments directly."""
    call = torch.jit.ScriptFunction.__call__

    @functools.wraps(call)
    def call_with_pinned(self: Any, *args: Any, **kwargs: Any) -> Any:
        slots = slots_in(args, kwargs)
        with slots[0].front.using(slots) if slots else contextlib.nullcontext():
            return call(self, *args, **kwargs)

    torch.jit.ScriptFunction.__call__ = call_with_pinned  # type: ignore[method-assign]


def _refuse_function_transforms() -> None:
    transforms = getattr(getattr(torch, "_functorch", None), "eager_transforms", None)
    wrap = getattr(transforms, "_wrap_tensor_for_grad", None)
    if wrap is None:
        return

    @functools.wraps(wrap)
    def wrap_unless_in_chunks(tensor: Any, level: int) -> Any:
        slot = _first_in_chunks([tensor])
        if slot is not None:
            raise Refused("torch.func (grad, vjp, jacrev, hessian) of parameter %s, which is in chunks: use "
                          "torch.autograd.grad, or pass a copy, %s.detach().clone()" % (slot.name, slot.name))
        return wrap(tensor, level)

    transforms._wrap_tensor_for_grad = wrap_unless_in_chunks


def _refuse_compilation() -> None:
    compile_ = getattr(torch, "compile", None)  # PyTorch 2
    if compile_ is None:
        return

    @functools.wraps(compile_)
    def compile_unless_in_chunks(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        module = getattr(model, "__self__", model)  # module.compile() passes a method
        slot = _first_in_chunks(module.parameters()) if isinstance(module, nn.Module) else None
        if slot is not None:
            raise Refused("torch.compile of a module with %s, which is in chunks: parameters change their addresses "
                          "between operators, which a compiled graph does not see; compile functions that have no "
                          "parameters" % slot.name)
        return compile_(model, *args, **kwargs)

    torch.compile = compile_unless_in_chunks  # type: ignore[assignment]


_refuse_optimizers()
_refuse_steps()
_refuse_compilation()
_pin_for_script_functions()
_refuse_function_transforms()
_refuse_wrapper(nn.parallel.DistributedDataParallel,
                "gradients are averaged over the ranks already; use the engine as it is")
_refuse_wrapper(nn.DataParallel, ONE_PROCESS_A_GPU)
