"""The front: makes parameters resident while a module runs, and takes their gradients when they are accumulated.

While the forward of a module runs, its own parameters are plain nn.Parameters in chunk memory; before and after they
are parked (_parked.py). Chunk memory is exported by DLPack: it stays pinned as long as a storage on it lives, so that
no pointer can dangle. Autograd keeps handles (_autograd.py), so nothing stays resident unnecessarily."""
import contextlib
import functools
import logging
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import torch
import torch.nn as nn

from ._autograd import SavedTensors, activate
from ._client import DTYPES, Client
from ._library import OUTSIDE_STEP, BACKWARD, FORWARD, GRADIENT, PARAM, READ, WRITE, Refused
from ._parked import Parked
from ._precision import cast, input_dtype
from ._slot import Slot
from ._torch import HAS_POST_ACCUMULATE_HOOKS, is_autocast_on, is_tracing, no_torch_function, not_compiled


class Front:
    """The front of one engine. One thread at a time runs the model; backward may run in others."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.slots: List[Slot] = []
        self.fp32_norms: "weakref.WeakSet[nn.Module]" = weakref.WeakSet()  # with fp32 parameters among 16-bit ones
        self.exported: Dict[int, Slot] = {}  # by address at their last export
        self.saved = SavedTensors(self)
        self.with_gradient: Dict[Slot, None] = {}  # since the last step, in that order
        self.accumulation_steps = 1  # gradient_accumulation_steps
        self.n_backward = 0  # calls of model.backward since the last step
        self._exported_gradients: List["weakref.ref[torch.Tensor]"] = []  # returned by p.grad
        self._nonzero_when_exported: Dict[Slot, None] = {}  # of p.grad between micro-batches; since the last backward
        self._has_warned = False  # of gradients that the program drops between micro-batches
        self.phase: Optional[int] = None  # of the engine's running forward
        self.lock = threading.RLock()  # held while parameters are in use: modules of other threads wait
        self.is_in_backward = False  # the engine's backward is running
        self.last_site: Optional[str] = None  # of the last moment
        self.version = 0  # counts changes of any value
        self.before_pass: Optional[Callable[[], None]] = None  # called once, when the next pass begins
        self.saves_part = False  # state_dict(whole=False) is running
        self.held: Dict[Slot, torch.Tensor] = {}  # of holding()
        activate(self.saved)

    # ---- modules

    def wrap(self, module: nn.Module, label: str, slots: Sequence[Slot]) -> None:
        """Keep these parameters in use while the forward of the module runs."""
        forward = module.forward
        cast_to = self._input_dtype(module, slots)

        @functools.wraps(forward)
        def in_use(*args: Any, **kwargs: Any) -> Any:
            if cast_to is not None and not is_autocast_on(self.client.device.type):
                args = cast(args, cast_to)
                kwargs = {key: cast(value, cast_to) for key, value in kwargs.items()}
            with self.lock:
                self._enter(label, slots)
                try:
                    return forward(*args, **kwargs)
                finally:  # also when checkpointing ends a recomputation early, by an exception
                    self._leave(slots)

        module.forward = not_compiled(in_use)

    def _input_dtype(self, module: nn.Module, slots: Sequence[Slot]) -> Optional[torch.dtype]:
        """The type that floating-point inputs are cast to: fp32 in a torch_scope, as in PatrickStar."""
        if module not in self.fp32_norms and any(slot.is_unmanaged for slot in slots):
            return torch.float32
        return input_dtype(module, self.client.dtype)

    def _enter(self, label: str, slots: Sequence[Slot]) -> None:
        if self.before_pass is not None:
            self.before_pass()
        self.last_site = label
        self.client.moment(self._get_phase(), label)
        begun: List[Slot] = []
        try:
            for slot in slots:
                self._begin(slot, READ)
                begun.append(slot)
            self.saved.begin_use()
        except BaseException:
            self._end_all(begun)
            raise

    def _leave(self, slots: Sequence[Slot]) -> None:
        self.saved.end_use()
        self._end_all(slots)

    def _end_all(self, slots: Sequence[Slot], written: Sequence[Slot] = ()) -> None:
        """Releases all, even if one fails."""
        errors = []
        for slot in slots:
            try:
                if slot in written:
                    self._end_write(slot)
                else:
                    self._end(slot)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _get_phase(self) -> int:
        if self.is_in_backward:
            return BACKWARD
        if self.phase is not None:
            return self.phase
        return FORWARD if torch.is_grad_enabled() else OUTSIDE_STEP

    # ---- parameters

    def _begin(self, slot: Slot, mode: int) -> None:
        if slot.n_uses > 0:
            slot.n_uses += 1
            return
        if is_tracing():
            raise Refused("torch.jit.trace, also that of torch.onnx, of parameter %s: a trace would keep its address, "
                          "which is valid for one use; load model.state_dict() into a module outside of chunks"
                          % slot.name)
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):  # tensors of inference must not become a parameter's
                place = slot.export_dlpack(PARAM, mode)
        else:
            place = slot.export_dlpack(PARAM, mode)
        slot.n_uses = 1
        param = slot.param
        param.__class__ = nn.Parameter
        param.data = place
        slot.version_in_use = param._version
        if slot.grad_hook is None and param.requires_grad and not torch.is_inference_mode_enabled():
            self._watch(slot)

    def _end(self, slot: Slot) -> None:
        slot.n_uses -= 1
        if slot.n_uses > 0:
            return
        param = slot.param
        is_replaced = param.data_ptr() != slot.address
        try:
            if not is_replaced and param._version != slot.version_in_use:
                # Written in place, by its module. The fp32 value follows where the parameter differs from the rounded
                # value.
                slot.export_dlpack(PARAM, WRITE)
                version = slot.version
                self.note_written(slot)
                slot.own_handles = version, param._version
        finally:
            param.data = slot.placeholder
            param.__class__ = Parked
        if is_replaced:
            raise Refused("%s.data was replaced while its module ran; write to it in place: %s.data.copy_(...)"
                          % (slot.name, slot.name))

    def _write(self, slot: Slot, values: torch.Tensor) -> None:
        self.client.write(slot.number, None, values)
        self.note_written(slot)

    def note_written(self, slot: Slot) -> None:
        """Existing graphs with it are of an earlier value."""
        slot.change_version()
        self.version += 1

    @contextlib.contextmanager
    def using(self, slots: Sequence[Slot], written: Sequence[Slot] = (), is_overwritten: bool = False,
              may_be_written_later: bool = False) -> Iterator[None]:
        """Make parameters resident for one function outside of a module. It writes to their fp32 values."""
        with self.lock, self._using(slots, written, is_overwritten, may_be_written_later):
            yield

    @contextlib.contextmanager
    def _using(self, slots: Sequence[Slot], written: Sequence[Slot], is_overwritten: bool,
               may_be_written_later: bool) -> Iterator[None]:
        written = [slot for slot in dict.fromkeys(written) if slot.n_uses == 0]
        read = [slot for slot in dict.fromkeys(slots) if slot not in written]
        begun: List[Slot] = []
        try:
            for slot in read:
                self._begin(slot, WRITE if may_be_written_later else READ)
                begun.append(slot)
                if may_be_written_later:
                    self.version += 1
            for slot in written:
                self._begin_write(slot, is_overwritten)
                begun.append(slot)
            self.saved.begin_use()
            try:
                yield
            finally:
                self.saved.end_use()
            for slot in written:
                self._write(slot, slot.param.data)
        finally:
            self._end_all(begun, written)

    def _begin_write(self, slot: Slot, is_overwritten: bool) -> None:
        if is_overwritten:
            value = torch.empty(slot.shape, dtype=torch.float32)
        else:
            value = self.client.read(slot.number, None, slot.shape)
        slot.n_uses = 1
        slot.param.__class__ = nn.Parameter
        slot.param.data = value.to(self.client.device)

    def _end_write(self, slot: Slot) -> None:
        slot.n_uses = 0
        slot.param.data = slot.placeholder
        slot.param.__class__ = Parked
        if not HAS_POST_ACCUMULATE_HOOKS and slot.dtype != torch.float32:
            slot.grad_hook = None  # data of another type: torch creates a new accumulation node, without our hook

    @contextlib.contextmanager
    def holding(self, slots: Sequence[Slot], is_kept: bool = True) -> Iterator[None]:
        """Read the fp32 values of these. Where is_kept, state_dict() returns them meanwhile without reading: on one of
        several ranks. Several ranks: all call."""
        values = {}
        for slot in slots:
            value = self.client.read(slot.number, None, slot.shape)
            if is_kept:
                values[slot] = value
        self.held = values
        try:
            yield
        finally:
            self.held = {}

    # ---- gradients

    def _watch(self, slot: Slot) -> None:
        reference = weakref.ref(slot)  # the collector does not see what graphs hold

        def take(*_: Any) -> None:
            slot = reference()
            if slot is not None:
                slot.front._take_gradient(slot)

        if HAS_POST_ACCUMULATE_HOOKS:
            slot.grad_hook = slot.param.register_post_accumulate_grad_hook(take)
            return
        with torch.enable_grad():  # also within the forward of an autograd.Function
            # The accumulation node, which PyTorch references weakly.
            node = slot.param.expand_as(slot.param).grad_fn.next_functions[0][0]
        node.register_hook(take)
        slot.grad_hook = node

    def unwatch(self) -> None:
        for slot in self.slots:
            slot.grad_hook = None

    @torch.no_grad()
    def _take_gradient(self, slot: Slot) -> None:
        param = slot.param
        with no_torch_function():
            gradient, param.grad = param.grad, None
        if gradient is None:
            return
        if gradient.layout != torch.strided:
            raise Refused("%s has a sparse gradient; build the embedding with sparse=False" % slot.name)
        if not self.is_in_backward:
            self._refuse_unscaled_backward()
        if gradient.dtype not in DTYPES:
            gradient = gradient.float()
        self.give_gradient(slot, gradient)

    def _refuse_unscaled_backward(self) -> None:
        """Refuse loss.backward() if model.backward(loss) would change the loss."""
        if self.client.get_loss_scale() != 1:
            raise Refused("loss.backward() in fp16: call model.backward(loss), which multiplies the loss by its scale")
        if self.accumulation_steps != 1:
            raise Refused("loss.backward() with gradient_accumulation_steps = %d: call model.backward(loss), which "
                          "divides the loss by it and counts micro-batches; or leave the key out, divide the loss, and "
                          "call optimizer.step() after the last micro-batch" % self.accumulation_steps)

    def give_gradient(self, slot: Slot, gradient: torch.Tensor) -> None:
        self.client.give_gradient(slot.number, gradient.contiguous(), slot.n_saved > 0)
        self.with_gradient[slot] = None

    def export_gradient(self, slot: Slot) -> torch.Tensor:
        gradient = slot.export_dlpack(GRADIENT, WRITE)
        self._exported_gradients.append(weakref.ref(gradient))
        if self.is_between_micro_batches() and not self._has_warned and gradient.any():
            self._nonzero_when_exported[slot] = None
        return gradient

    def check_exported_gradients(self) -> None:
        """Before a backward pass: were gradients that p.grad returned between micro-batches set to zero?"""
        seen, self._nonzero_when_exported = self._nonzero_when_exported, {}
        for slot in seen:
            if self._has_warned:
                return
            if self.client.has_gradient(slot.number) and not slot.export_dlpack(GRADIENT, READ).any():
                self._warn_of_dropping("%s.grad was set to zero in place, and has lost" % slot.name, "")

    def copy_exported_gradients(self) -> None:
        """References that a program still has to p.grad (the variable of a loop) become copies: the gradient is
        needed."""
        for reference in self._exported_gradients:
            gradient = reference()
            if gradient is not None:
                gradient.data = gradient.data.clone()
        self._exported_gradients.clear()

    def is_between_micro_batches(self) -> bool:
        """Are more micro-batches of gradient_accumulation_steps to come before the step?"""
        return self.n_backward % self.accumulation_steps != 0

    def completes_micro_batches(self) -> bool:
        """Is the next micro-batch the last one of gradient_accumulation_steps?"""
        return (self.n_backward + 1) % self.accumulation_steps == 0

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients since the last step. Between the micro-batches of gradient_accumulation_steps they stay,
        so that a loop may call this before each backward pass."""
        if self.is_between_micro_batches():
            return
        self.copy_exported_gradients()
        self.client.drop_gradients()
        with no_torch_function():
            for slot in self.slots:  # gradients that were not taken: a hook before ours raised an exception
                slot.param.grad = None
        self.with_gradient.clear()
        self.n_backward = 0

    def keep_micro_batches(self, module: nn.Module) -> None:
        """Have zero_grad of a submodule, too, keep gradients between micro-batches, unless the program has overridden
        it."""
        zero_grad = module.zero_grad
        if type(module).zero_grad is not nn.Module.zero_grad:
            return

        @functools.wraps(zero_grad)
        def zero_between_steps(set_to_none: bool = True) -> None:
            if not self.is_between_micro_batches():
                zero_grad(set_to_none=True)  # in either case, as the model's

        module.zero_grad = zero_between_steps  # type: ignore[method-assign]

    def drop_gradient(self, slot: Slot) -> None:
        """p.grad = None."""
        self.copy_exported_gradients()
        self.client.drop_gradients(slot.number)
        self.with_gradient.pop(slot, None)
        if self.with_gradient:
            return
        if self.is_between_micro_batches():
            self._warn_of_dropping("p.grad = None has dropped", "the count is reset. ")
        self.n_backward = 0

    def _warn_of_dropping(self, what: str, then: str) -> None:
        """Warns once: a loop does the same in each micro-batch."""
        if self._has_warned:
            return
        self._has_warned = True
        logging.getLogger("patrickstar").warning(
            "%s the gradients of %d of %d micro-batches (gradient_accumulation_steps); %szero_grad() of model, its "
            "modules and optimizer keeps them until the step", what, self.n_backward, self.accumulation_steps, then)

    # ---- steps

    def _count_change(self, slot: Slot) -> None:
        """Update autograd's version: of parameters that autograd.Function.apply saved while they were parked."""
        param = slot.param
        if hasattr(torch.autograd.graph, "increment_version"):
            torch.autograd.graph.increment_version(param)
        elif slot.n_uses == 0:
            param.__class__ = nn.Parameter
            param.data = slot.placeholder_element
            param.mul_(1)
            param.data = slot.placeholder
            param.__class__ = Parked

    @torch.no_grad()
    def end_step(self) -> None:
        """Values have been updated."""
        for slot in self.with_gradient:
            slot.change_version()
            self._count_change(slot)
        self.with_gradient.clear()
        self._nonzero_when_exported.clear()
        self.n_backward = 0
        self.version += 1
        self.last_site = None
