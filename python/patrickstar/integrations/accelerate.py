"""accelerate's Accelerator for a model in chunks.

    accelerator = Accelerator(patrickstar_plugin=PatrickStarPlugin(config))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

prepare moves the model into chunks, and has the engine's optimizer take the groups of the one of torch.optim. All
else is accelerate's: data, schedulers, processes, trackers."""
import contextlib
import os
from typing import Any, Dict, List, Optional, Tuple

import accelerate
import torch
import torch.nn as nn
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.utils import DistributedType, gather_object

from .._build import builder_of
from .._library import PatrickStarError, Refused
from ..runtime import Engine, Optimizer
from ..runtime.optimizer import StepInfo, check_template
from ._plugin import PatrickStarPlugin, of_mixed_precision, of_optimizer

CHECKPOINT = "patrickstar"  # the engine's checkpoint in a folder of save_state, or of a Trainer
_CLOSED = ("prepare of a model whose engine was closed (free_memory, or a prepare that has failed): it has no values "
           "any more; build the model, and its optimizer, again")


class _PreparedOptimizer(AcceleratedOptimizer):
    """Steps after the last micro-batch, as accelerate's."""

    def __init__(self, optimizer: Optimizer) -> None:
        super().__init__(optimizer, device_placement=False, scaler=None)  # its states are where chunks are

    @property
    def last_step(self) -> StepInfo:
        """What the last step did, as of the engine's optimizer."""
        return self.optimizer.last_step

    @property
    def step_was_skipped(self) -> bool:
        """Gradients were not finite: schedulers do not advance."""
        return self.optimizer.last_step.is_skipped


class PatrickStarAcceleratorMixin:
    """What an Accelerator does otherwise with a model in chunks; `attach` gives it to one that exists."""
    patrickstar_plugin: PatrickStarPlugin

    def _begin(self, plugin: Optional[PatrickStarPlugin]) -> None:
        if plugin is not None and not isinstance(plugin, PatrickStarPlugin):
            raise PatrickStarError("EINVAL", "patrickstar_plugin is %s; it must be a PatrickStarPlugin"
                                   % type(plugin).__name__)
        kind = self.distributed_type
        if kind not in (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU):
            raise Refused("an Accelerator of %s with a PatrickStarPlugin: both would move the parameters; leave the "
                          "other plugin out" % kind)
        if str(getattr(getattr(self.state, "dynamo_plugin", None), "backend", "NO")).split(".")[-1].upper() != "NO":
            raise Refused("torch.compile of a module in chunks: parameters change their addresses between operators, "
                          "which a compiled graph does not see; leave dynamo_backend and torch_compile out")
        of_mixed_precision(self.mixed_precision, "mixed_precision")
        self.patrickstar_plugin = plugin if plugin is not None else PatrickStarPlugin()
        # Parameters are 16-bit, and the engine has the loss scale: neither autocast nor a scaler.
        self.native_amp, self.scaler = False, None
        self._replaced: List[torch.optim.Optimizer] = []  # optimizers of torch.optim whose groups the engine's has
        self._has_taken = False  # prepare has given the plugin its engine, not a Trainer
        self._has_started = False  # and has made it

    # ---- prepare

    def prepare(self, *args: Any, device_placement: Optional[List[bool]] = None) -> Any:
        """As accelerate's. A module, or the engine of initialize_engine, is in chunks afterwards, and is returned as
        the engine; a module without trained parameters is prepared for evaluation. The engine's optimizer replaces an
        optimizer of torch.optim over its parameters, and takes its groups and numbers. It also replaces DummyOptim of
        accelerate.utils.deepspeed, with the numbers of the configuration. Several ranks: all call. If it fails, a model
        that it has moved into chunks must be built again."""
        plugin = self.patrickstar_plugin
        had_engine = plugin.engine is not None
        try:
            return super().prepare(*self._take(args), device_placement=device_placement)  # type: ignore[misc]
        except BaseException as error:
            if not had_engine and plugin.engine is not None:
                self._models, self._optimizers = self._outside_of_chunks()
                if self._has_started:
                    plugin.fail(error)
                self._release()
            raise

    def free_memory(self, *objects: Any) -> Any:
        """As accelerate's. An engine that prepare has made is closed, and another model may be prepared. Several ranks:
        all call."""
        objects = super().free_memory(*objects)  # type: ignore[misc]
        self._release()
        return objects

    def _release(self) -> None:
        """Closes an engine that prepare has made, and forgets one that was given to it."""
        plugin = self.patrickstar_plugin
        if self._has_started:
            plugin.close()
        elif self._has_taken:
            plugin.engine = plugin.optimizer = None
        self._has_taken = self._has_started = False
        self._replaced.clear()

    def _outside_of_chunks(self) -> Tuple[List[Any], List[Any]]:
        """Models and optimizers that are accelerate's alone."""
        plugin = self.patrickstar_plugin
        return ([model for model in self._models if not isinstance(model, Engine) and not plugin.has_in_chunks(model)],
                [optimizer for optimizer in self._optimizers if not isinstance(optimizer, _PreparedOptimizer)])

    def _take(self, args: Tuple[Any, ...]) -> Tuple[Any, ...]:
        plugin = self.patrickstar_plugin
        optimizers = [arg for arg in args if isinstance(arg, torch.optim.Optimizer)]
        taken = list(args)
        for number, arg in enumerate(args):
            if isinstance(arg, Engine):
                self._use(arg)
            elif isinstance(arg, nn.Module):
                taken[number] = self._take_module(arg, optimizers)
        for number, arg in enumerate(args):
            if isinstance(arg, torch.optim.Optimizer):
                taken[number] = self._take_optimizer(arg)
            elif type(arg).__name__ == "DummyOptim":
                if plugin.optimizer is None:
                    raise Refused("DummyOptim before a model: prepare them together")
                taken[number] = plugin.optimizer
        if plugin.engine is not None:
            plugin.engine.__dict__["_is_accelerate_prepared"] = True
        return tuple(taken)

    def _use(self, engine: Engine) -> None:
        if not engine.client.is_open():
            raise Refused(_CLOSED)
        self._has_taken = self._has_taken or self.patrickstar_plugin.engine is None
        self.patrickstar_plugin.use(engine)

    def _take_module(self, module: nn.Module, optimizers: List[torch.optim.Optimizer]) -> nn.Module:
        plugin = self.patrickstar_plugin
        slots = [param._ps for param in module.parameters() if hasattr(param, "_ps")]
        if slots and not slots[0].front.client.is_open():
            raise Refused(_CLOSED)
        if slots and not plugin.has_in_chunks(module):
            engine = next((optimizer.engine for optimizer in optimizers if isinstance(optimizer, Optimizer)
                           and optimizer.engine.front is slots[0].front), None)
            if engine is None:
                raise Refused("prepare of a module of another engine: pass the engine, or its optimizer too")
            self._use(engine)
        if slots or not any(param.requires_grad for param in module.parameters()):
            return module
        if plugin.engine is not None:
            raise Refused("prepare of a second model that is trained, %s: an Accelerator trains one model in chunks; "
                          "put both into one module, or use another Accelerator" % type(module).__name__)
        mine = {id(param) for param in module.parameters()}
        template = next((optimizer for optimizer in optimizers if any(
            id(param) in mine for group in optimizer.param_groups for param in group["params"])), None)
        of_program: Dict[str, Tuple[Any, str]] = of_mixed_precision(self.mixed_precision, "mixed_precision")
        self._check_on_all(template, module)
        if builder_of(module) is not None:
            plugin.start_pending(module, of_program)
        else:
            of_program["gradient_accumulation_steps"] = (
                self.gradient_accumulation_steps, "gradient_accumulation_steps of the Accelerator")
            if template is not None:
                of_program.update(of_optimizer(template))
            plugin.start(module, of_program, self.local_process_index)
        self._has_taken = self._has_started = True
        assert plugin.engine is not None
        return plugin.engine

    def _check_on_all(self, template: Optional[torch.optim.Optimizer], module: nn.Module) -> None:
        """Before the model is in chunks on any rank."""
        failure = None
        try:
            if template is not None:
                check_template(template, module.named_parameters())
        except Refused as error:
            failure = error
        if self.num_processes > 1:
            texts = gather_object([str(failure or "")])
            other = next((rank for rank, text in enumerate(texts) if text), None)
            if failure is None and other is not None:
                failure = Refused("prepare: rank %d has refused its optimizer: %s" % (other, texts[other]))
        if failure is not None:
            raise failure

    def _take_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        plugin = self.patrickstar_plugin
        if isinstance(optimizer, (Optimizer, AcceleratedOptimizer)) or plugin.optimizer is None:
            return optimizer
        if not any(hasattr(param, "_ps") for group in optimizer.param_groups for param in group["params"]):
            return optimizer  # of a model that is not in chunks
        if not any(template is optimizer for template in self._replaced):
            self.replace(optimizer)
        return plugin.optimizer

    def replace(self, template: torch.optim.Optimizer) -> Optimizer:
        """The engine's optimizer, with the groups, numbers and states of one of torch.optim. Schedulers over that one
        act on it."""
        optimizer = self.patrickstar_plugin.optimizer
        assert optimizer is not None
        optimizer.take_over(template)
        self._replaced.append(template)
        return optimizer

    def prepare_model(self, model: nn.Module, device_placement: Optional[bool] = None,
                      evaluation_mode: bool = False) -> nn.Module:
        if not isinstance(model, Engine) and not self.patrickstar_plugin.has_in_chunks(model):
            # Neither DistributedDataParallel nor autocast: it is not trained.
            return super().prepare_model(model, device_placement, evaluation_mode=True)  # type: ignore[misc]
        if not any(model is prepared for prepared in self._models):
            self._models.append(model)
        return model

    def prepare_optimizer(self, optimizer: torch.optim.Optimizer, device_placement: Optional[bool] = None) -> Any:
        if not isinstance(optimizer, Optimizer):
            return super().prepare_optimizer(optimizer, device_placement)  # type: ignore[misc]
        prepared = next((one for one in self._optimizers if getattr(one, "optimizer", None) is optimizer), None)
        if prepared is None:
            prepared = _PreparedOptimizer(optimizer)
            self._optimizers.append(prepared)
        return prepared

    def unwrap_model(self, model: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        """The module of an engine."""
        if isinstance(model, Engine):
            return model.module
        return super().unwrap_model(model, *args, **kwargs)  # type: ignore[misc]

    # ---- steps

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """As accelerate's: the loss counts divided by gradient_accumulation_steps. retain_graph as of torch."""
        engine = self.patrickstar_plugin.engine
        if engine is None:
            super().backward(loss, **kwargs)  # type: ignore[misc]
            return
        kwargs.pop("scale_wrt_gas", None)  # Trainer's, for DeepSpeed, whose engine would divide, too
        retain_graph = bool(kwargs.pop("retain_graph", False))
        if kwargs:
            raise Refused("backward(%s): only retain_graph is done for a model in chunks" % ", ".join(sorted(kwargs)))
        steps = self.gradient_accumulation_steps
        engine.backward_of(loss / steps if steps != 1 else loss, 1., self.sync_gradients, retain_graph)

    def clip_grad_norm_(self, parameters: Any, max_norm: float, norm_type: float = 2) -> Optional[torch.Tensor]:
        """Clip in the next step of the optimizer, by the global 2-norm of all gradients: `parameters` are all of the
        model. Returns a tensor that this step fills with the norm before clipping; until then it is NaN."""
        plugin = self.patrickstar_plugin
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        if plugin.optimizer is None or plugin.engine is None or not any(hasattr(p, "_ps") for p in parameters):
            return super().clip_grad_norm_(parameters, max_norm, norm_type)  # type: ignore[misc]
        if float(norm_type) != 2:
            raise Refused("clip_grad_norm_(norm_type=%g) of a model in chunks: the 2-norm is computed" % norm_type)
        given = {getattr(param, "_ps", None) for param in parameters}
        for slot in plugin.engine.front.slots:
            if slot.param.requires_grad and slot not in given and not plugin.clips_all:
                raise Refused("clip_grad_norm_ of a part of the model, without %s: gradients are clipped by the norm of "
                              "all; give model.parameters()" % slot.name)
        return plugin.optimizer.clip_grad_norm_(max_norm)

    def clip_grad_value_(self, parameters: Any, clip_value: float) -> None:
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        if any(hasattr(param, "_ps") for param in parameters):
            raise Refused("clip_grad_value_ of a model in chunks: clip_grad_norm_ clips by the norm of all gradients")
        super().clip_grad_value_(parameters, clip_value)  # type: ignore[misc]

    def unscale_gradients(self, optimizer: Any = None) -> None:
        """Nothing: gradients are unscaled within the step."""

    # ---- checkpoints

    def save_state(self, output_dir: Optional[str] = None, safe_serialization: bool = True, **kwargs: Any) -> str:
        """As accelerate's. Weights and the optimizer's states are in the engine's checkpoint, the folder `patrickstar`
        in it, streamed from chunks; all else as accelerate saves it. A save over another one that is interrupted leaves
        a folder that load_state refuses. Several ranks: all call."""
        engine = self.patrickstar_plugin.engine
        if engine is None:
            return super().save_state(output_dir, safe_serialization, **kwargs)  # type: ignore[misc]

        def begin(_models: Any, _weights: Any, folder: str) -> None:  # before accelerate's first file
            if self.is_main_process:
                begin_save(folder)
            self.wait_for_everyone()

        handle = self.register_save_state_pre_hook(begin)
        try:
            with _Without(self):
                folder = super().save_state(output_dir, safe_serialization, **kwargs)  # type: ignore[misc]
        finally:
            handle.remove()
        self.wait_for_everyone()
        engine.save_checkpoint(str(folder), tag=CHECKPOINT)
        return folder

    def load_state(self, input_dir: Optional[str] = None, *args: Any, **kwargs: Any) -> None:
        """What save_state has saved. Several ranks: all call."""
        engine = self.patrickstar_plugin.engine
        if engine is None:
            super().load_state(input_dir, *args, **kwargs)  # type: ignore[misc]
            return

        def load(_: Any, folder: str) -> None:  # first, as generators are accelerate's to restore after it
            load_engine(engine, folder)

        handle = self.register_load_state_pre_hook(load)
        try:
            with _Without(self):
                super().load_state(input_dir, *args, **kwargs)  # type: ignore[misc]
        finally:
            handle.remove()

    def save_model(self, model: nn.Module, save_directory: str, max_shard_size: Any = "10GB",
                   safe_serialization: bool = True) -> None:
        """As accelerate's; safetensors are streamed from chunks. Several ranks: all call."""
        engine = self.patrickstar_plugin.engine
        if engine is None or model not in (engine, engine.module) or not safe_serialization:
            super().save_model(model, save_directory, max_shard_size, safe_serialization)  # type: ignore[misc]
            return
        if self.is_main_process:
            os.makedirs(save_directory, exist_ok=True)
        engine.save_weights(os.path.join(save_directory, "model.safetensors"), max_shard_size)


class _Without:
    """save_state and load_state of accelerate do not see the model in chunks and its optimizer meanwhile."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator

    def __enter__(self) -> None:
        accelerator = self._accelerator
        self._lists = accelerator._models, accelerator._optimizers
        accelerator._models, accelerator._optimizers = accelerator._outside_of_chunks()

    def __exit__(self, *error: Any) -> None:
        self._accelerator._models, self._accelerator._optimizers = self._lists


def has_engine(folder: str) -> bool:
    """The folder has a complete checkpoint of an engine."""
    return os.path.exists(os.path.join(folder, CHECKPOINT, "state.json"))


def begin_save(folder: str) -> None:
    """The folder has no complete checkpoint of an engine from now on, until the next one is."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(os.path.join(folder, CHECKPOINT, "state.json"))


def load_engine(engine: Engine, folder: str) -> None:
    if not has_engine(folder):
        raise PatrickStarError("EINVAL", "%s has no checkpoint of a model in chunks (its folder %s): the save was not "
                               "complete, or another Accelerator's; load an earlier one" % (folder, CHECKPOINT))
    engine.load_checkpoint(folder, tag=CHECKPOINT)


class Accelerator(PatrickStarAcceleratorMixin, accelerate.Accelerator):
    """accelerate's Accelerator, with patrickstar_plugin beside its own arguments; None is PatrickStarPlugin()."""

    def __init__(self, *args: Any, patrickstar_plugin: Optional[PatrickStarPlugin] = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._begin(patrickstar_plugin)


def attach(accelerator: accelerate.Accelerator, plugin: PatrickStarPlugin) -> None:
    """Have an Accelerator that exists, such as a Trainer's, be one of these."""
    kind = type(accelerator)
    if not isinstance(accelerator, PatrickStarAcceleratorMixin):
        accelerator.__class__ = type(kind.__name__, (PatrickStarAcceleratorMixin, kind), {})
    accelerator._begin(plugin)
