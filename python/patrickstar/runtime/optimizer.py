"""The library's optimizer with the interface of torch.optim."""
import contextlib
import logging
import math
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import torch

from .. import _parts
from .._library import ClientGroup, PatrickStarError, Refused
from .._state import check_room
from .._slot import Slot
from .._torch import not_compiled
from .engine import Engine

_NUMBERS = ("lr", "weight_decay", "beta1", "beta2", "eps")  # members of ClientGroup
_OWN_KEY = "patrickstar"  # key of state_dict for data that torch.optim does not have

# Options of torch.optim's groups that this optimizer does not support, and their values when unset.
_NOT_DONE = {"amsgrad": False, "maximize": False, "momentum": 0, "dampening": 0, "nesterov": False}
_OF_SGD = ("momentum", "dampening", "nesterov")  # fixed numbers of the configuration
_OF_MUON = ("momentum", "nesterov", "ns_coefficients", "ns_eps", "ns_steps", "adjust_lr_fn")

# What others' Lion can do and this one does not: keys of groups, and their values when unset.
_NOT_DONE_OF_LION = {"weight_decouple": True, "fixed_decay": False, "cautious": False, "cautious_factor": 1,
                     "grad_averaging": False, "adanorm": False, "use_gc": False}
_LIONS = ("lion_pytorch", "pytorch_optimizer", "bitsandbytes")  # packages that have one

# optimizer.type, and the keys of optimizer.params that its groups have besides lr and weight_decay.
PARAMS_OF: Dict[str, Tuple[str, ...]] = {"Adam": ("betas", "eps"), "AdamW": ("betas", "eps"), "SGD": _OF_SGD,
                                         "Lion": ("betas",), "Muon": (*_OF_MUON, "betas", "eps")}
_FIXED_OF = {"SGD": _OF_SGD, "Muon": _OF_MUON}
KINDS = tuple(kind for kind in PARAMS_OF if kind != "Muon")  # torch.optim's takes a part of a model's parameters only


def is_counted(states: Iterable[str]) -> bool:
    """Whether the optimizer of torch.optim that keeps these states of a parameter has a "step" beside them."""
    return "exp_avg_sq" in states

_takes_over: List[bool] = []  # within templates()


@contextlib.contextmanager
def templates() -> Iterator[None]:
    """Optimizers of torch.optim may be constructed meanwhile over parameters in chunks, for Optimizer.take_over."""
    _takes_over.append(True)
    try:
        yield
    finally:
        _takes_over.pop()


def is_template_allowed() -> bool:
    return bool(_takes_over)


def is_known(cls: Any) -> bool:
    """Whether the name of a class of optimizers is an optimizer.type, and means the same."""
    package = cls.__module__.partition(".")[0]
    return cls.__name__ in KINDS and (package in _LIONS if cls.__name__ == "Lion"
                                      else cls.__module__.startswith("torch.optim"))


def kind_of(optimizer: torch.optim.Optimizer) -> str:
    """optimizer.type of the configuration for an optimizer of PyTorch's interface. Refused if there is none."""
    kind = type(optimizer).__name__
    if kind == "Muon":
        raise Refused("%s.Muon: it has the matrices of a model only; set optimizer.type = \"Muon\" of the configuration, "
                      "which updates all parameters: matrices by Muon, others by AdamW" % type(optimizer).__module__)
    if not is_known(type(optimizer)):
        raise Refused("%s.%s: parameters in chunks are updated by torch.optim's Adam, AdamW, SGD, or Lion of %s; use "
                      "one of them" % (type(optimizer).__module__, kind, ", ".join(_LIONS)))
    if kind == "Adam" and optimizer.defaults.get("decoupled_weight_decay", False):
        kind = "AdamW"
    return kind


def as_params(kind: str, group: Dict[str, Any]) -> Dict[str, Any]:
    """A group's numbers as optimizer.params of the configuration, those that it has."""
    values = {key: group[key] for key in ("lr", "weight_decay", *PARAMS_OF[kind]) if key in group}
    return {key: value.item() if isinstance(value, torch.Tensor) else list(value) if isinstance(value, tuple) else value
            for key, value in values.items()}


def check_template(template: torch.optim.Optimizer, params: Iterable[Tuple[str, torch.Tensor]]) -> None:
    """Refuse what take_over does not do. params: the model's, by name, before they are in chunks or afterwards."""
    name = type(template).__name__
    _check_options(template.param_groups, kind_of(template))
    trained = [(one, _identity_of(param), param.requires_grad) for one, param in params]
    mine = {identity for _, identity, _ in trained}
    theirs = set()
    for group in template.param_groups:
        for param in group["params"]:
            if _identity_of(param) not in mine:
                raise Refused("%s has a parameter of shape %s that is not in the model; create it in model_func, or "
                              "as a part of the module that is prepared" % (name, tuple(param.shape)))
            theirs.add(_identity_of(param))
    for one, identity, is_trained in trained:
        if is_trained and identity not in theirs:
            raise Refused("%s requires a gradient and is in no group of %s: freeze it by requires_grad_(False), or "
                          "add it to a group" % (one, name))


def _identity_of(param: torch.Tensor) -> int:
    return id(getattr(param, "_ps", param))


def _check_options(groups: List[Dict[str, Any]], kind: str) -> None:
    for number, group in enumerate(groups):
        for key, value in {**_NOT_DONE, **(_NOT_DONE_OF_LION if kind == "Lion" else {})}.items():
            if key not in PARAMS_OF[kind] and group.get(key, value) != value:
                raise Refused("param_groups[%d][%r] = %r: %s of this library does not support that; leave it out"
                              % (number, key, group[key], kind))


def _check_betas(number: int, value: Any) -> None:
    try:
        are_valid = len(value) == 2 and all(0 <= float(beta) < 1 for beta in value)
    except (TypeError, ValueError):
        are_valid = False
    if not are_valid:
        raise PatrickStarError("EINVAL", "param_groups[%d]['betas'] is %r; it must be two numbers, each at least 0 and "
                               "below 1" % (number, value))


@dataclass(frozen=True)
class StepInfo:
    """Information on the last step. Before the first one: the count of updates, the loss scale, and a norm of 0."""
    step: int  # updates made, this one included
    is_skipped: bool  # gradients were not finite: parameters are unchanged
    grad_norm: float  # of all gradients, without the loss scale, before clipping
    loss_scale: float  # of this step
    is_recorded: bool  # it differs from the recorded step, or was the first
    n_restored: int  # parameters that were read after their gradients had overwritten them
    n_separate: int  # gradients in separate memory
    n_deferred: int  # chunks whose updates are deferred to the next forward pass (memory.defer_updates)
    n_gathered: int  # all-gathers of groups of chunks, with several ranks
    n_gathered_ahead: int  # of these: begun before the group was used
    n_early: int  # chunks updated within the backward pass (memory.update_in_backward)
    n_speculated: int = 0  # of these: as if the step were neither clipped nor skipped (speculate)
    n_taken_back: int = 0  # of these: wrong, and updated again


class Optimizer(torch.optim.Optimizer):
    """The optimizer of initialize_engine: Adam, AdamW, SGD, Lion or Muon (optimizer.type of the configuration) in
    chunks.

    param_groups are those of the configuration (optimizer.param_groups; the first has the parameters that no pattern
    names). Values that a program or a torch.optim.lr_scheduler writes to a group's lr, weight_decay, betas or eps take
    effect from the next step on, in place of the configuration's."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.client = engine, engine.client
        self.last_step = self._initial_step_info()
        options = engine.ps_config.to_dict()["optimizer"]
        self._kind = options["type"]
        self._fixed = {key: options["params"][key] for key in _FIXED_OF.get(self._kind, ())}
        self._fixed_of_groups = [{}] + [{key: group[key] for key in self._fixed if key in group}
                                        for group in options.get("param_groups") or []]
        self._slots = engine.front.slots
        groups: List[Dict[str, Any]] = [{"params": []} for _ in self.client.get_groups()]
        for slot in self._slots:
            groups[self.client.get_tensor_info(slot.number).group]["params"].append(slot.param)
        self._known: List[Dict[str, Any]] = [self._read_group(group) for group in self.client.get_groups()]
        for number, (group, numbers) in enumerate(zip(groups, self._known)):
            group.update(numbers, **self._get_fixed(number))
        self._has_warned = False
        self._template: Any = None  # of take_over
        self._norms: List[torch.Tensor] = []  # of clip_grad_norm_, which the next step fills
        self._is_built = False
        super().__init__(groups, dict(self._known[0], **self._fixed))
        self._is_built = True
        self._set: List[ClientGroup] = [_as_configured() for _ in groups]
        engine.checkpoints.optimizer = weakref.ref(self)

    def _get_fixed(self, number: int) -> Dict[str, Any]:
        """What a program may not change of a group."""
        own = self._fixed_of_groups
        return {**self._fixed, **(own[number] if number < len(own) else {})}

    # ---- steps

    def _initial_step_info(self) -> StepInfo:
        return StepInfo(self.client.get_steps(), False, 0.0, self.client.get_loss_scale(), False, 0, 0, 0, 0, 0, 0)

    @not_compiled
    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Update all parameters that have a gradient; returns the closure's result, or None. `last_step` describes it.
        If no parameter has one it is no update: the count and the learning rates stay."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        engine, front = self.engine, self.engine.front
        if front.is_between_micro_batches():
            return loss
        engine.check_modules()
        self._warn_of_evaluation()
        self.apply_groups()
        engine.checkpoints.before_step()
        front.copy_exported_gradients()
        info, trouble = self.client.step()
        front.end_step()
        self._end_clipping(info.grad_norm)
        self.last_step = StepInfo(info.step, bool(info.is_skipped), info.grad_norm, info.loss_scale,
                                  bool(info.is_recorded), info.n_restored, info.n_separate, info.n_deferred,
                                  info.n_gathered, info.n_gathered_ahead, info.n_early, info.n_speculated,
                                  info.n_taken_back)
        self._learn_groups()
        if self._template is not None:  # schedulers over it check that their optimizer steps before they do
            self._template._opt_called, self._template._step_count = True, getattr(self._template, "_step_count", 0) + 1
        if trouble is None or info.is_skipped:  # otherwise weights have changed in part
            engine.checkpoints.after_step()
        if trouble is not None:
            raise trouble
        return loss

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Clip the gradients of the next step by their global 2-norm, instead of by gradient_clipping of the
        configuration; infinite: do not clip. Returns a tensor that the step fills with the norm before clipping, NaN
        until then. Several ranks: all call."""
        max_norm = float(max_norm)
        if max_norm < 0:
            raise PatrickStarError("EINVAL", "clip_grad_norm_: max_norm is %g; it must be at least 0" % max_norm)
        # A norm of 0 would make all gradients 0; to the library 0 means not to clip.
        self.client.set_gradient_clipping(0 if math.isinf(max_norm) else max(max_norm, 5e-324))
        self._norms.append(torch.full((), float("nan")))
        return self._norms[-1]

    def _end_clipping(self, norm: float) -> None:
        if self._norms:
            self.client.set_gradient_clipping(-1)
            for tensor in self._norms:
                tensor.fill_(norm)
            self._norms.clear()

    def _warn_of_evaluation(self) -> None:
        if self.engine.training or self._has_warned or not self.engine.front.with_gradient:
            return
        self._has_warned = True
        logging.getLogger("patrickstar").warning(
            "a training step in model.eval(): its forward pass counts as an evaluation, which is not recorded, "
            "so that chunks are loaded only when they are used. Call model.train(); to disable dropout, "
            "call eval() of those modules only")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The same as model.zero_grad(); no gradients are left after a step."""
        self.engine.zero_grad()

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        if getattr(self, "_is_built", True):
            raise Refused("add_param_group: all parameters have a group already; optimizer.param_groups of the "
                          "configuration creates groups by patterns of names")
        super().add_param_group(param_group)

    # ---- numbers of groups

    def take_over(self, template: torch.optim.Optimizer) -> None:
        """Have the groups, the numbers and the states of an optimizer of torch.optim of the same kind, which was
        constructed over the parameters before they were in chunks, or within templates(). Both have the same
        dictionaries of groups afterwards: schedulers over either act, with all that they keep in them."""
        if kind_of(template) != self._kind:
            raise Refused("%s over parameters in chunks, which optimizer.type of the configuration has updated by %s; "
                          "make both the same" % (type(template).__name__, self._kind))
        if len(self.param_groups) > 1:
            raise Refused("groups of parameters are given twice: by optimizer.param_groups of the configuration and by "
                          "%s; leave one out" % type(template).__name__)
        check_template(template, ((slot.name, slot.param) for slot in self._slots))
        self._make_groups([[param._ps for param in group["params"]] for group in template.param_groups])
        for mine, given in zip(self.param_groups, template.param_groups):
            given["params"] = mine["params"]
        self.param_groups[:] = template.param_groups
        self.apply_groups()
        self._template = template
        if template.state:
            self.load_state_dict(template.state_dict())

    def _make_groups(self, groups: List[List[Slot]]) -> None:
        """Groups of these; frozen parameters that are in none stay in the first."""
        for number in range(len(self.client.get_groups()), len(groups)):
            self.client.join_group(self._slots[0].number, number)  # creates it
        for slot in self._slots:
            self.client.join_group(slot.number, 0)
        for number, slots in enumerate(groups):
            for slot in slots:
                self.client.join_group(slot.number, number)
        named = {slot for slots in groups for slot in slots}
        groups[0] = groups[0] + [slot for slot in self._slots if slot not in named]
        self._known = [self._read_group(group) for group in self.client.get_groups()]
        self._set += [_as_configured() for _ in range(len(self._set), len(groups))]
        self.param_groups[:] = [{"params": [slot.param for slot in slots], **known, **self._get_fixed(number)}
                                for number, (slots, known) in enumerate(zip(groups, self._known))]

    def _read_group(self, group: ClientGroup) -> Dict[str, Any]:
        numbers: Dict[str, Any] = {"lr": group.lr, "weight_decay": group.weight_decay}
        if "betas" in PARAMS_OF[self._kind]:
            numbers.update(betas=(group.beta1, group.beta2))
        if "eps" in PARAMS_OF[self._kind]:
            numbers.update(eps=group.eps)
        return numbers

    def _learn_groups(self) -> None:
        """Updates the groups with the learning rates of the configuration's schedule."""
        for number, client_group in enumerate(self.client.get_groups()):
            group, numbers = self.param_groups[number], self._read_group(client_group)
            for key, value in numbers.items():
                if group[key] == self._known[number][key]:
                    group[key] = value
            self._known[number] = numbers

    def apply_groups(self) -> None:
        """Passes the program's values to the library."""
        _check_options(self.param_groups, self._kind)
        for number, (group, known, numbers) in enumerate(zip(self.param_groups, self._known, self._set)):
            for key, value in self._get_fixed(number).items():
                if group[key] != value:
                    raise Refused("param_groups[%d][%r] = %r: it is fixed, %r; set optimizer.params.%s of the "
                                  "configuration, and cycle_momentum=False of a scheduler that changes it"
                                  % (number, key, group[key], value, key))
            if "betas" in known:
                _check_betas(number, group["betas"])
            changed = [key for key in known if not _same(group[key], known[key])]
            numbers = ClientGroup.from_buffer_copy(numbers)  # a refused value has no effect
            for key in changed:
                value = group[key]
                if key == "betas":
                    numbers.beta1, numbers.beta2 = float(value[0]), float(value[1])
                else:
                    setattr(numbers, key, float(value))
                if key == "lr" and not float(value) >= 0:
                    raise PatrickStarError("EINVAL", "param_groups[%d]['lr'] is %r; it must be at least 0"
                                           % (number, value))
            if changed:
                self.client.set_group(number, numbers)
                self._set[number] = numbers
                self._known[number] = self._read_group(self.client.get_groups()[number])
                for key in changed:
                    self._known[number][key] = group[key]

    # ---- checkpoints

    def get_written(self) -> List[Dict[str, float]]:
        """Values that the program has written to the groups so far; below 0, or NaN: none."""
        self.apply_groups()
        return [{key: getattr(group, key) for key in _NUMBERS} for group in self._set]

    def set_written(self, written: List[Dict[str, float]]) -> None:
        """Record that the library has these numbers."""
        self._set = [ClientGroup(**numbers) for numbers in written]

    def describe(self) -> Dict[str, Any]:
        """The class of torch.optim, and its groups with parameters by name, after get_written."""
        groups = [{**self._read_group(numbers), **self._get_fixed(number),
                   "params": [param._ps.name for param in group["params"]]}
                  for number, (numbers, group) in enumerate(zip(self.client.get_groups(), self.param_groups))]
        return {"type": self._kind, "param_groups": groups}

    def note_loaded(self) -> None:
        """Values, counts and numbers of groups were loaded from a checkpoint."""
        self._known = [self._read_group(group) for group in self.client.get_groups()]
        for group, numbers in zip(self.param_groups, self._known):
            group.update(numbers)
        self.last_step = self._initial_step_info()

    # ---- state

    def state_dict(self, whole: bool = True) -> Dict[str, Any]:
        """That of torch.optim's class of the same name, which can load it (Muon: with the states of torch.optim.Muon
        for matrices, and of AdamW for other parameters); in addition, under "patrickstar", the count of updates and the
        loss scaler. whole=False: only the states that this rank keeps, or a part of: for one file a rank, which the
        same rank of as many loads again, and python -m patrickstar.merge joins to a whole. Several ranks: all call."""
        numbers = self._number_params()
        state: Dict[int, Dict[str, Any]] = {}
        check_room("optimizer.state_dict()", sum(slot.shape.numel() * len(self._states_of(slot)) for slot in self._slots
                                                 if whole or self.client.keeps(slot.number)), 1)
        for slot in self._slots:
            steps = self.client.get_steps(slot.number)
            if steps == 0:
                continue
            names = self._states_of(slot)
            values: Dict[str, Any] = {"step": torch.tensor(float(steps))} if is_counted(names) else {}
            for name in names:
                values[name] = self.client.read(slot.number, name, slot.shape)
            if whole or self.client.keeps(slot.number):
                state[numbers[id(slot.param)]] = values
        groups = []
        for group in self.param_groups:
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [numbers[id(param)] for param in group["params"]]
            groups.append(packed)
        own = {"steps": self.client.get_steps(), "scaler": self.client.get_scaler(),
               "tensor_steps": {numbers[id(slot.param)]: self.client.get_steps(slot.number) for slot in self._slots}}
        if not whole and self.engine.ranks.size > 1:
            own["part"] = {**_parts.new_mark(self.client),
                           "names": {numbers[id(slot.param)]: slot.name for slot in self._slots}}
        return {"state": state, "param_groups": groups, _OWN_KEY: own}

    @torch.no_grad()
    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """A result of state_dict, or of a torch.optim optimizer of the same kind over the same parameters, in the same
        order of groups. Several ranks: all call, with the whole, or each with its result of state_dict(whole=False). If
        one refuses, nothing is loaded on any."""
        slot_of = self.engine.agree(lambda: self._check_state(state_dict), "load_state_dict of the optimizer")
        groups, own = state_dict["param_groups"], state_dict.get(_OWN_KEY, {})
        most = 0
        for number, slot in slot_of.items():
            values = state_dict["state"].get(number)
            steps = int(values["step"]) if values and "step" in values else own.get("tensor_steps", {}).get(number, 0)
            if values is not None and "step" not in values:
                steps = max(steps, 1)
            for name in self._states_of(slot):
                if values is not None and values.get(name) is not None:
                    self.client.write(slot.number, name, values[name])
                elif self.client.get_steps(slot.number) > 0:
                    self.client.write(slot.number, name, torch.zeros(slot.shape))
            self.client.set_steps(slot.number, steps)
            most = max(most, steps)
        self.client.set_steps(-1, own.get("steps", most))
        self._known = [self._read_group(group) for group in self.client.get_groups()]  # the schedule's rates at that
        # time
        if "scaler" in own:
            self.client.set_scaler(own["scaler"])
        for group, packed in zip(self.param_groups, groups):
            group.update({key: value for key, value in packed.items() if key != "params"})
        self.last_step = self._initial_step_info()

    def _check_state(self, state_dict: Dict[str, Any]) -> Dict[Any, Slot]:
        """Checks it; returns the parameters by their numbers in it."""
        if not isinstance(state_dict, dict) or not {"state", "param_groups"} <= set(state_dict):
            found = [str(key) for key in list(state_dict)[:4]] if isinstance(state_dict, dict) else []
            raise ValueError("optimizer state: expected a dictionary with 'state' and 'param_groups', as "
                             "optimizer.state_dict() gives; found %s%s (values of parameters go to "
                             "model.load_state_dict)" % (type(state_dict).__name__, " with %s" % (
                                 ", ".join(found) or "no keys") if isinstance(state_dict, dict) else ""))
        groups = state_dict["param_groups"]
        sizes, mine = [len(group["params"]) for group in groups], [len(group["params"]) for group in self.param_groups]
        if sizes != mine:
            raise ValueError("optimizer state: groups of %s parameters, this optimizer has %s; create its groups by "
                             "optimizer.param_groups of the configuration" % (sizes, mine))
        _check_options(groups, self._kind)
        saved = [number for group in groups for number in group["params"]]
        slot_of = dict(zip(saved, (param._ps for group in self.param_groups for param in group["params"])))
        states, own = state_dict["state"], state_dict.get(_OWN_KEY, {})
        self._check_states(states, slot_of)
        self._check_that_states_are_whole(states, slot_of, own.get("tensor_steps", {}))
        self._check_that_none_is_missing(states, slot_of, own)
        return slot_of

    def _states_of(self, slot: Slot) -> List[str]:
        """Names of the states that the optimizer keeps of it."""
        states = self.client.get_tensor_info(slot.number).states
        return [name for i, name in enumerate(self.client.get_state_names()) if states >> i & 1]

    def _check_states(self, states: Dict[Any, Any], slot_of: Dict[Any, Any]) -> None:
        for number, values in states.items():
            if number not in slot_of:
                raise ValueError("optimizer state: parameter %r is in no group" % number)
            slot = slot_of[number]
            names = self._states_of(slot)
            for name, value in values.items():
                if isinstance(value, torch.Tensor) and name != "step":
                    if name not in names:
                        raise ValueError("optimizer state: %s of %s; %s keeps %s%s" % (
                            name, slot.name, self._kind, names, " of it: optimizer.params.adamw_names says which "
                            "matrices AdamW updates" if self._kind == "Muon" else ""))
                    if value.shape != slot.shape:
                        raise ValueError("optimizer state: %s of %s has shape %s, expected %s"
                                         % (name, slot.name, tuple(value.shape), tuple(slot.shape)))

    def _check_that_states_are_whole(self, states: Dict[Any, Any], slot_of: Dict[Any, Any],
                                     tensor_steps: Dict[Any, int]) -> None:
        """A parameter that has some of its states has all of them; but torch's SGD leaves its momentum out at first."""
        for number, values in states.items():
            if not values or (self._kind == "SGD" and tensor_steps.get(number, 0) == 0):
                continue
            names = self._states_of(slot_of[number])
            missing = [name for name in names if values.get(name) is None]
            if missing:
                raise ValueError("optimizer state: %s of %s is missing; %s keeps %s of each parameter: load a file "
                                 "that has all of them" % (" and ".join(missing), slot_of[number].name, self._kind,
                                                      " and ".join(names)))

    def _check_that_none_is_missing(self, states: Dict[Any, Any], slot_of: Dict[Any, Slot],
                                    own: Dict[str, Any]) -> None:
        """Of the updated parameters. If one is missing, it is the state of one rank."""
        updated = [number for number, steps in own.get("tensor_steps", {}).items() if steps > 0 and number in slot_of]
        if not self.client.get_state_names() or all(states.get(number) for number in updated):
            return
        mark = own.get("part")
        if mark is not None:
            _parts.check_rank(mark, self.client, "optimizer state")
        kept = [number for number in updated if self.client.keeps(slot_of[number].number)]
        _parts.check_kept(mark, self.client, "optimizer state",
                          [slot_of[number].name for number in kept if not states.get(number)], len(kept))

    def _number_params(self) -> Dict[int, int]:
        numbers: Dict[int, int] = {}
        for group in self.param_groups:
            for param in group["params"]:
                numbers[id(param)] = len(numbers)
        return numbers

    # ---- unsupported uses

    @property
    def _step_supports_amp_scaling(self) -> bool:
        raise Refused("GradScaler: model.backward(loss) and optimizer.step() have the loss scale of fp16 already; "
                      "leave the scaler out")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Refused("pickle of an optimizer whose states are in chunks: save its state_dict()")

    def __deepcopy__(self, memo: Any) -> Any:
        raise Refused("deepcopy of an optimizer whose states are in chunks: copy its state_dict()")


def _same(one: Any, other: Any) -> bool:
    return tuple(one) == tuple(other) if isinstance(other, tuple) else one == other


def _as_configured() -> ClientGroup:
    return ClientGroup(lr=-1, weight_decay=float("nan"), beta1=-1, beta2=-1, eps=-1)
