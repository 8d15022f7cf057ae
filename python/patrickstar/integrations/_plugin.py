"""The plugin of an Accelerator or a Trainer: the configuration, and the engine once a model was prepared."""
import logging
import os
from typing import Any, Callable, Dict, Optional, Tuple, Union

import torch
import torch.nn as nn

from .._library import PatrickStarError, Refused
from ..runtime import Engine, Optimizer, initialize_engine
from ..runtime.optimizer import as_params, kind_of
from . import _config

_ACCUMULATION = "gradient_accumulation_steps"
_BATCHES = ("train_batch_size", "train_micro_batch_size_per_gpu")


class PatrickStarPlugin:
    """Has an Accelerator train in chunks: Accelerator(patrickstar_plugin=PatrickStarPlugin(config)).

    config: as of initialize_engine. Keys that are left out, or are "auto", are the program's: optimizer of the
    optimizer that is prepared, bf16 and fp16 of mixed_precision, gradient_accumulation_steps of the Accelerator.
    process_group: as of initialize_engine. `engine` and `optimizer` are those of the model, once it was prepared."""

    def __init__(self, config: Union[Dict[str, Any], str, os.PathLike, None] = None, process_group: Any = None) -> None:
        self.config = _config.read(config)
        self.process_group = process_group
        self.engine: Optional[Engine] = None
        self.optimizer: Optional[Optimizer] = None
        self.clips_all = False  # clip_grad_norm_ of a part of the parameters is that of all

    def start(self, model_func: Union[Callable[[], nn.Module], nn.Module], of_program: Dict[str, Tuple[Any, str]],
              local_rank: int) -> None:
        """Make the engine. The caller of an engine divides losses and steps after the last micro-batch, and clips by
        clip_grad_norm_."""
        config = _config.read(self.config)
        _config.merge(config, of_program)
        _config.check_no_auto(config)
        for key in (_ACCUMULATION, *_BATCHES):
            _config.take(config, key)
        self.engine, self.optimizer = initialize_engine(model_func, local_rank, config, process_group=self.process_group)

    def use(self, engine: Engine) -> None:
        """An engine that exists already."""
        if self.engine is not None and self.engine is not engine:
            raise Refused("a second engine: an Accelerator trains one model in chunks; use another Accelerator")
        if engine.front.accumulation_steps != 1:
            raise Refused("gradient_accumulation_steps=%d in the engine's configuration: give it to the Accelerator, or "
                          "to TrainingArguments" % engine.front.accumulation_steps)
        optimizer = engine.checkpoints.get_optimizer()
        if optimizer is None:
            raise Refused("the optimizer of the engine is gone: keep what initialize_engine returns")
        self.engine, self.optimizer = engine, optimizer

    def start_pending(self, module: nn.Module, of_program: Dict[str, Tuple[Any, str]]) -> Engine:
        """The engine of a module that was built in a block of patrickstar.init, which has the configuration. The program
        must agree with it."""
        if self.config:
            raise PatrickStarError("EINVAL", "a configuration beside a model of patrickstar.init, which has one: leave "
                                   "it out of PatrickStarPlugin, or build the model outside of the block")
        engine, optimizer = initialize_engine(model=module)  # the plugin keeps both
        try:
            _config.merge(engine.ps_config.to_dict(), of_program)
            self.use(engine)
        except BaseException:
            engine.close()
            raise
        return engine

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()
        self.engine = self.optimizer = None

    def fail(self, error: BaseException) -> None:
        """What follows start has failed: the engine is closed, and the other ranks are told."""
        if self.engine is None:
            return
        self.engine.ranks.fail(error)
        self.close()
        logging.getLogger("patrickstar").warning(
            "the model was in chunks already when this failed, and has no values any more: build the model, and its "
            "optimizer, again (%s)", error)

    def has_in_chunks(self, module: nn.Module) -> bool:
        """A module of the engine."""
        return self.engine is not None and any(
            getattr(getattr(param, "_ps", None), "front", None) is self.engine.front for param in module.parameters())


def of_optimizer(optimizer: torch.optim.Optimizer) -> Dict[str, Tuple[Any, str]]:
    """Keys of the configuration from an optimizer of PyTorch's interface. Numbers of its groups go to the engine's later."""
    kind = kind_of(optimizer)
    of_program: Dict[str, Tuple[Any, str]] = {"optimizer.type": (kind, "the optimizer that is prepared")}
    for key, value in as_params(kind, optimizer.param_groups[0]).items():
        of_program["optimizer.params." + key] = value, "%s of %s" % (key, type(optimizer).__name__)
    return of_program


def of_mixed_precision(mixed_precision: str, name: str) -> Dict[str, Tuple[Any, str]]:
    if mixed_precision in ("bf16", "fp16"):
        return {mixed_precision + ".enabled": (True, name)}
    if mixed_precision != "no":
        raise PatrickStarError("EINVAL", "%s is %r; parameters in chunks are fp32, bf16 or fp16: give \"no\", \"bf16\" "
                               "or \"fp16\"" % (name, mixed_precision))
    return {}
