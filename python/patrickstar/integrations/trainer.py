"""transformers' Trainer, and any subclass of it, for a model in chunks.

    class MyTrainer(PatrickStarTrainerMixin, SomeTrainer): pass

    within the constructor of SomeTrainer       modules that it, or model_init, builds are created in chunks
    create_accelerator_and_postprocess          its Accelerator becomes the one of integrations/accelerate
    create_optimizer                            the optimizer of torch.optim that it makes gives groups and numbers
    _save_checkpoint, resuming                  the engine's checkpoint in checkpoint-N, beside the Trainer's files
    save_model                                  streamed from chunks; several ranks read, one writes

Losses, data, schedules, evaluation, logging and callbacks are the Trainer's."""
import contextlib
import dataclasses
import inspect
import json
import logging
import os
import random
import shutil
from typing import Any, Dict, List, Optional, Tuple, Type, Union

import numpy
import torch
import torch.nn as nn
import transformers
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint

from .. import _cuda
from .._build import builder_of
from .._library import PatrickStarError, Refused
from .._state import names_of
from .._torch import load_plain
from ..runtime import Engine, Optimizer, initialize_engine
from ..runtime.optimizer import as_params, check_template, is_known, templates
from . import _config
from ._plugin import PatrickStarPlugin, of_mixed_precision, of_optimizer
from .accelerate import CHECKPOINT, attach, begin_save, has_engine, load_engine

_STATE, _SCHEDULER = "trainer_state.json", "scheduler.pt"  # the Trainer's own files


class PatrickStarTrainerMixin:
    """Stands before a Trainer in a class's bases. The constructor takes patrickstar_config besides: a configuration as
    of initialize_engine, or its file. What TrainingArguments say (rates, batches, accumulation, clipping, bf16, fp16)
    may be left out there, or be "auto"; where both say it they must agree. `trainer.engine` is the engine."""

    arguments_class: Type[Any] = transformers.TrainingArguments  # of args=None
    _loads_best = False  # _load_best_model is running

    def __init__(self, *args: Any, patrickstar_config: Union[Dict[str, Any], str, os.PathLike, None] = None,
                 **kwargs: Any) -> None:
        given = inspect.signature(super().__init__).bind_partial(*args, **kwargs).arguments
        arguments = given.get("args")
        if arguments is None:
            arguments = kwargs["args"] = self.arguments_class(output_dir="tmp_trainer")
        _check_arguments(arguments)
        arguments.device  # has accelerate start torch.distributed, which the engine then uses
        if arguments.n_gpu > 1:
            arguments._n_gpu = 1  # no DataParallel; ranks are started by torchrun
        self._plugin = PatrickStarPlugin(patrickstar_config)
        self._drawn: Any = None  # states of generators before and after the model was built
        self._at_start: Any = None  # what tells whether the model is as it was built
        model = given.get("model")
        if isinstance(model, Engine) or (isinstance(model, nn.Module) and builder_of(model) is not None):
            self._begin_with(model, patrickstar_config, arguments, args, kwargs)
            return
        of_program = _of_arguments(arguments, self._plugin.config, given)

        def build() -> nn.Module:
            super(PatrickStarTrainerMixin, self).__init__(*args, **kwargs)
            module = self.get_trained_module()
            if self.optimizer is not None:  # before the module is in chunks
                check_template(self.optimizer, module.named_parameters())
            return module

        self._plugin.start(build, of_program, _local_rank(arguments))
        try:
            self._finish_start()
        except BaseException as error:
            self._plugin.fail(error)
            raise

    def _begin_with(self, model: nn.Module, config: Any, arguments: Any, args: Tuple[Any, ...],
                    kwargs: Dict[str, Any]) -> None:
        """An engine, or the module of a block of patrickstar.init, which becomes one: it has its configuration."""
        if config is not None:
            raise PatrickStarError("EINVAL", "patrickstar_config beside a model that has one, of initialize_engine or "
                                   "patrickstar.init: leave patrickstar_config out, or give model_init")
        optimizer, scheduler = kwargs.get("optimizers") or (None, None)
        if isinstance(model, Engine):
            engine = model
            self._plugin.use(engine)
        else:
            engine = self._plugin.start_pending(model, {})
        try:
            _check_clipping(arguments, engine.ps_config.to_dict()["memory"]["update_in_backward"])
            _check_engine(engine, arguments, optimizer is not None, scheduler is not None)
            kwargs["optimizers"] = (optimizer if optimizer is not None else self._plugin.optimizer), scheduler
            if args:
                args = (engine.module,) + args[1:]
            else:
                kwargs["model"] = engine.module
            super().__init__(*args, **kwargs)
        except BaseException as error:
            if engine is not model:
                self._plugin.fail(error)
            raise

    def _finish_start(self) -> None:
        optimizer = self.optimizer  # type: ignore[has-type]
        if optimizer is not None and not isinstance(optimizer, Optimizer):  # of optimizers=(optimizer, scheduler)
            self.optimizer = self.accelerator.replace(optimizer)
            self.callback_handler.optimizer = self.optimizer
        self._at_start = self._version()

    @property
    def engine(self) -> Engine:
        """The engine of the model."""
        assert self._plugin.engine is not None
        return self._plugin.engine

    def get_trained_module(self) -> nn.Module:
        """The module that goes into chunks: the model, or one that has it as a part, where more than it is trained."""
        return self.model

    # ---- construction

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()  # type: ignore[misc]
        attach(self.accelerator, self._plugin)
        if getattr(self, "is_deepspeed_enabled", False) or getattr(self, "is_fsdp_enabled", False):
            raise Refused("DeepSpeed or FSDP beside PatrickStar: both would move the parameters; leave them out of "
                          "TrainingArguments and of accelerate's configuration")

    def _move_model_to_device(self, model: nn.Module, device: torch.device) -> None:
        """Chunks move parameters to where they are used."""

    def call_model_init(self, trial: Any = None) -> nn.Module:
        """In the constructor, and again in each train(), which begins anew. A model that has not been trained since it
        was built is used as it is, and generators go on from where building it left them."""
        before = _generators()
        if self._plugin.engine is None:  # in the constructor
            model = super().call_model_init(trial)  # type: ignore[misc]
        elif trial is None and _are_same(before, self._drawn[0]) and self._at_start == self._version():
            _set_generators(self._drawn[1])
            return self.model
        else:
            model = self._build_again(trial)
        self._drawn = before, _generators()
        return model

    def _build_again(self, trial: Any) -> nn.Module:
        self._plugin.close()
        self.model = self.model_wrapped = None

        def build() -> nn.Module:
            self.model = super(PatrickStarTrainerMixin, self).call_model_init(trial)  # type: ignore[misc]
            return self.get_trained_module()

        self._plugin.start(build, _of_arguments(self.args, self._plugin.config, {}), _local_rank(self.args))
        self._at_start = self._version()
        return self.model

    def _version(self) -> Any:
        engine = self.engine
        return engine.client.get_info().n_steps, engine.front.version, [
            buffer._version for buffer in engine.module.buffers()]

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """The engine's, with the groups and numbers of the one that the Trainer would have used."""
        if self.optimizer is None:
            with templates():
                template = super().create_optimizer(*args, **kwargs)  # type: ignore[misc]
            self.optimizer = self.accelerator.replace(template)
        return self.optimizer

    def _has_mixed_mesh_grads(self, model: nn.Module) -> bool:
        return False  # without reading the gradients

    # ---- training

    def train(self, resume_from_checkpoint: Union[str, bool, None] = None, *args: Any, **kwargs: Any) -> Any:
        """As Trainer's. A checkpoint whose writing was interrupted is left out: training goes on from the one before."""
        if resume_from_checkpoint:
            resume_from_checkpoint = _find_complete(self.args.output_dir, resume_from_checkpoint)
        return super().train(resume_from_checkpoint, *args, **kwargs)  # type: ignore[misc]

    # ---- checkpoints

    def _save_checkpoint(self, model: nn.Module, trial: Any, *args: Any, **kwargs: Any) -> None:
        """A folder that exists is incomplete until all of it is written anew."""
        folder = os.path.join(self._get_output_dir(trial=trial), "%s-%d" % (
            PREFIX_CHECKPOINT_DIR, self.state.global_step))
        if self.args.should_save:
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(folder, _STATE))
            begin_save(folder)
            if self.args.save_only_model:
                shutil.rmtree(os.path.join(folder, CHECKPOINT), ignore_errors=True)
        self.accelerator.wait_for_everyone()
        super()._save_checkpoint(model, trial, *args, **kwargs)  # type: ignore[misc]

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self.args.should_save:
            os.makedirs(output_dir, exist_ok=True)
            torch.save(_without_functions(self.lr_scheduler.state_dict()), os.path.join(output_dir, _SCHEDULER))
        self.accelerator.wait_for_everyone()
        self.engine.save_checkpoint(output_dir, tag=CHECKPOINT)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)  # type: ignore[misc]
        self.accelerator.wait_for_everyone()  # before the file whose presence says that all others are there

    def _load_from_checkpoint(self, resume_from_checkpoint: str, *args: Any, **kwargs: Any) -> None:
        """To resume: the engine's checkpoint, which comes later, has the values as well. Another one is a plain
        Trainer's."""
        if self._loads_best or not has_engine(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, *args, **kwargs)  # type: ignore[misc]

    def _load_best_model(self) -> None:
        """Weights alone, from the files of save_model."""
        self._loads_best = True
        try:
            super()._load_best_model()  # type: ignore[misc]
        finally:
            self._loads_best = False

    def _load_optimizer_and_scheduler(self, checkpoint: Optional[str]) -> None:
        if checkpoint is None or not has_engine(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
            return
        load_engine(self.engine, checkpoint)
        path = os.path.join(checkpoint, _SCHEDULER)
        if os.path.exists(path):
            self.lr_scheduler.load_state_dict(load_plain(path))

    # ---- weights

    def save_model(self, output_dir: Optional[str] = None, _internal_call: bool = False) -> None:
        """As Trainer's; several ranks: all call. A model of transformers is streamed from chunks, of one of peft the
        adapter is copied, and of others the state_dict()."""
        folder = self.args.output_dir if output_dir is None else output_dir
        is_streamed = self.model is self.engine.module and isinstance(self.model, transformers.PreTrainedModel)
        if is_streamed and getattr(self.args, "save_safetensors", True):
            self._save_streamed(folder)
        elif self._is_peft():
            with self.engine.front.holding(self._adapter_slots(), self.args.should_save):
                if self.args.should_save:
                    self._save(folder, self._adapter_state())
        else:
            self._save_whole(folder)
        self.accelerator.wait_for_everyone()
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save")

    def _save_streamed(self, folder: str) -> None:
        """All ranks stream, one of them from within the Trainer's _save, which writes other files, too."""
        engine, model = self.engine, self.model

        def stream(save_directory: str, max_shard_size: Any = "5GB", **_: Any) -> None:
            engine.save_pretrained(save_directory, max_shard_size)

        if not self.args.should_save:
            stream(folder)
            return
        model.save_pretrained = stream
        try:
            self._save(folder)
        finally:
            del model.save_pretrained

    def _save_whole(self, folder: str) -> None:
        """Of several ranks all read, and then one of them saves."""
        slots = self.engine.front.slots if self.engine.ranks.size > 1 else []
        with self.engine.front.holding(slots, self.args.should_save):
            if self.args.should_save:
                self._save(folder)

    def _is_peft(self) -> bool:
        return hasattr(self.model, "peft_config") and hasattr(self.model, "get_base_model")

    def _adapter_slots(self) -> List[Any]:
        """What may be a part of an adapter: all but the base model's frozen parameters."""
        parts = (str(getattr(self.model.base_model, "prefix", "lora_")), "modules_to_save")
        return [slot for slot in self.engine.front.slots
                if slot.param.requires_grad or any(part in slot.name for part in parts)]

    def _adapter_state(self) -> Dict[str, Any]:
        """The state_dict without the base model's values."""
        held = self.engine.front.held
        state = {name: held[slot] for slot, names in names_of(self.model).items() if slot in held for name in names}
        return {**state, **dict(self.model.named_buffers())}


def _check_arguments(arguments: Any) -> None:
    for name, instead in (("deepspeed", "it would move the parameters, too; leave it out"),
                          ("fsdp", "it would move the parameters, too; leave it out"),
                          ("torch_compile", "parameters in chunks change their addresses, which a compiled graph does "
                                            "not see; leave it out"),
                          ("auto_find_batch_size", "patrickstar.BudgetError names a budget that is enough; give "
                                                   "per_device_train_batch_size"),
                          ("bf16_full_eval", "an evaluation has the number format of the training: give bf16"),
                          ("fp16_full_eval", "an evaluation has the number format of the training: give fp16")):
        if getattr(arguments, name, None):
            raise Refused("%s=%r of TrainingArguments with a model in chunks: %s"
                          % (name, getattr(arguments, name), instead))


def _optim_of(arguments: Any) -> str:
    return str(getattr(arguments.optim, "value", arguments.optim))


def _check_engine(engine: Engine, arguments: Any, has_optimizer: bool, has_scheduler: bool) -> None:
    """What TrainingArguments say of what the configuration of an engine has decided, other than their defaults."""
    config = engine.ps_config.to_dict()
    params = config["optimizer"]["params"]
    mine = {"bf16": config["bf16"]["enabled"], "fp16": config["fp16"]["enabled"]}
    if not has_optimizer:
        mine.update(learning_rate=params["lr"], weight_decay=params["weight_decay"])
        if config["optimizer"]["type"] != "SGD":
            mine.update(adam_beta1=params["betas"][0], adam_beta2=params["betas"][1], adam_epsilon=params["eps"])
    defaults = {field.name: field.default for field in dataclasses.fields(arguments)}
    differing = ["%s is %r, and the engine's is %r" % (name, getattr(arguments, name), value)
                 for name, value in mine.items() if getattr(arguments, name) != defaults.get(name)
                 and not _config.is_same(getattr(arguments, name), value)]
    if not has_optimizer and arguments.optim != defaults.get("optim"):
        kind = transformers.Trainer.get_optimizer_cls_and_kwargs(arguments)[0].__name__
        if kind != config["optimizer"]["type"]:
            differing.append("optim is %r, and the engine's is %s" % (_optim_of(arguments), config["optimizer"]["type"]))
    if config["scheduler"]["type"] != "constant" and not has_scheduler:
        differing.append("lr_scheduler_type is %r, and the engine's configuration has scheduler, too"
                         % str(arguments.lr_scheduler_type.value))
    if differing:
        raise PatrickStarError("EINVAL", "TrainingArguments and the engine that is the model differ: %s; leave these "
                               "arguments out, build the engine so, or give model_init and patrickstar_config"
                               % "; ".join(differing))
def _check_clipping(arguments: Any, update_in_backward: Any) -> None:
    if update_in_backward == "always" and arguments.max_grad_norm:
        raise PatrickStarError("EINVAL", "memory.update_in_backward = always in the configuration, and max_grad_norm=%r "
                               "of TrainingArguments (1.0 by default): clipping needs the norm of all gradients before "
                               "the first update; give max_grad_norm=0, or leave memory.update_in_backward out"
                               % (arguments.max_grad_norm,))


def _local_rank(arguments: Any) -> int:
    return int(os.environ.get("LOCAL_RANK", max(int(getattr(arguments, "local_process_index", 0)), 0)))


def _of_arguments(arguments: Any, config: Dict[str, Any], given: Dict[str, Any]) -> Dict[str, Tuple[Any, str]]:
    """What TrainingArguments, and what was given to the Trainer beside them, say of the configuration."""
    _config.expect_none(config, {
        "scheduler": "the learning rate is TrainingArguments' lr_scheduler_type; leave it out",
        "optimizer.param_groups": "groups are the Trainer's (create_optimizer); leave it out"})
    _check_clipping(arguments, _config.get(config, "memory.update_in_backward"))
    optimizer = (given.get("optimizers") or (None, None))[0]
    if optimizer is not None:
        of_program = of_optimizer(optimizer)
    else:
        cls_and_kwargs = given.get("optimizer_cls_and_kwargs")
        if cls_and_kwargs is None:
            cls_and_kwargs = transformers.Trainer.get_optimizer_cls_and_kwargs(arguments)
        of_program = _of_class(*cls_and_kwargs, arguments)
    precision = "bf16" if arguments.bf16 else "fp16" if arguments.fp16 else None
    if precision is not None:
        of_program.update(of_mixed_precision(precision, "%s of TrainingArguments" % precision))
    else:  # of accelerate launch
        of_program.update(of_mixed_precision(os.environ.get("ACCELERATE_MIXED_PRECISION", "no"),
                                             "ACCELERATE_MIXED_PRECISION"))
    batch, steps = arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps
    of_program["gradient_accumulation_steps"] = steps, "TrainingArguments.gradient_accumulation_steps"
    for key, value, name in (
            ("train_micro_batch_size_per_gpu", batch, "per_device_train_batch_size"),
            ("train_batch_size", batch * steps * arguments.world_size, "the batch of TrainingArguments on all ranks"),
            ("gradient_clipping", arguments.max_grad_norm or 0, "TrainingArguments.max_grad_norm")):
        if config.get(key) is not None:
            of_program[key] = value, name
    return of_program


def _of_class(cls: Any, options: Dict[str, Any], arguments: Any) -> Dict[str, Tuple[Any, str]]:
    kind = getattr(cls, "__name__", str(cls))
    if not is_known(cls):
        raise Refused("optim=%r of TrainingArguments is %s: parameters in chunks are updated by torch.optim's Adam, "
                      "AdamW, SGD, or Lion; give optim=\"adamw_torch\", \"sgd\" or \"lion_32bit\""
                      % (_optim_of(arguments), kind))
    of_program: Dict[str, Tuple[Any, str]] = {
        "optimizer.params." + key: (value, "%s of TrainingArguments.optim" % key)
        for key, value in as_params(kind, options).items()}
    of_program["optimizer.params.weight_decay"] = arguments.weight_decay, "TrainingArguments.weight_decay"
    of_program["optimizer.type"] = kind, "TrainingArguments.optim"
    return of_program


# ---- random generators -----------------------------------------------------------------------------------------------

def _generators() -> Tuple[Any, ...]:
    return random.getstate(), numpy.random.get_state(), torch.get_rng_state(), _cuda.get_generators()


def _set_generators(states: Tuple[Any, ...]) -> None:
    random.setstate(states[0])
    numpy.random.set_state(states[1])
    torch.set_rng_state(states[2])
    _cuda.set_generators(states[3])


def _are_same(one: Tuple[Any, ...], other: Tuple[Any, ...]) -> bool:
    return bool(one[0] == other[0] and all(numpy.array_equal(a, b) for a, b in zip(one[1], other[1]))
                and torch.equal(one[2], other[2]) and len(one[3]) == len(other[3])
                and all(torch.equal(a, b) for a, b in zip(one[3], other[3])))


def _without_functions(state: Any) -> Any:
    """A scheduler has those of its constructor; before PyTorch 2.1 OneCycleLR's state has one, too."""
    if type(state) is dict:
        return {key: _without_functions(value) for key, value in state.items() if not callable(value)}
    return [_without_functions(value) for value in state] if type(state) is list else state


# ---- checkpoints that are complete -----------------------------------------------------------------------------------

def _is_complete(checkpoint: str) -> bool:
    """The Trainer writes its state last."""
    try:
        with open(os.path.join(checkpoint, _STATE), encoding="utf-8") as file:
            json.load(file)
    except (OSError, ValueError):
        return False
    return has_engine(checkpoint) or not os.path.isdir(os.path.join(checkpoint, CHECKPOINT))


def _find_complete(folder: str, asked: Union[str, bool]) -> str:
    """The checkpoint to resume from: the one asked for, True: the newest; or, where that is incomplete, the newest
    complete one before it."""
    newest = get_last_checkpoint(folder) if asked is True else os.fspath(asked)  # type: ignore[arg-type]
    if newest is None:
        raise ValueError("No valid checkpoint found in output directory (%s)" % folder)
    if _is_complete(newest):
        return newest
    number = _number_of(newest)
    around = os.path.dirname(os.path.abspath(newest))
    earlier = sorted((n, os.path.join(around, name)) for name in (os.listdir(around) if os.path.isdir(around) else [])
                     for n in [_number_of(name)] if n is not None and number is not None and n < number)
    for _, path in reversed(earlier):
        if _is_complete(path):
            logging.getLogger("patrickstar").warning(
                "%s is not complete, as its writing was interrupted: training goes on from %s", newest, path)
            return path
    raise PatrickStarError("EINVAL", "%s is not a complete checkpoint of a Trainer, and no earlier one beside it is: "
                           "train without resume_from_checkpoint" % newest)


def _number_of(path: str) -> Optional[int]:
    name = os.path.basename(os.path.normpath(path))
    prefix, _, number = name.rpartition("-")
    return int(number) if prefix == PREFIX_CHECKPOINT_DIR and number.isdigit() else None


class Trainer(PatrickStarTrainerMixin, transformers.Trainer):
    """transformers' Trainer for a model in chunks, with patrickstar_config beside its arguments. With model_init the
    model is built in chunks, and is never in memory as a whole."""
