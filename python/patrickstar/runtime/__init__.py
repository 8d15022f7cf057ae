"""The interface of PatrickStar's guide."""
import os
from typing import Any, Callable, Dict, Optional, Tuple, Union

import torch
import torch.nn as nn

from .._library import PatrickStarError, Refused
from .._original import MadeByEngine
from . import _others  # noqa: F401, it acts when it is imported
from ._start import start
from .engine import Engine
from .optimizer import Optimizer

__all__ = ["Engine", "Optimizer", "PatrickStarEngine", "initialize_engine"]


class PatrickStarEngine(Engine, metaclass=MadeByEngine):
    """What the model of initialize_engine is."""
    way = "initialize_engine(model_func, local_rank, config) makes the engine; it takes a module that is built, too"


def initialize_engine(model_func: Union[Callable[[], nn.Module], nn.Module], local_rank: Optional[int] = 0,
                      config: Union[Dict[str, Any], str, os.PathLike, None] = None,
                      client: None = None, process_group: Any = None) -> Tuple[Engine, Optimizer]:
    """Build a model in chunks, and return the engine and the optimizer that train it.

    model_func: called without arguments, builds the module; or an existing module, which is adopted.
    local_rank: this process's number on its machine, as the launcher has it; computing by CUDA, the number of its GPU.
    config: a dictionary with the keys of DeepSpeed's and PatrickStar's configurations (doc/config.md), the path of a
    JSON file of them, or None. client: None; PatrickStar's own PatrickStarClient is not needed.

    Several ranks: the members of process_group, a group of torch.distributed.new_group, which alone call; None is
    torch.distributed's default group where there is one, else all that torchrun, mpirun or srun has started. Raises
    BudgetError when the budgets cannot hold the model, with budgets that suffice; PatrickStarError for a wrong
    configuration; Refused for parts of the model that do not work in chunks."""
    if client is not None:
        raise Refused("client=%s: no client is created beforehand; give model_func, or a module that is built"
                      % type(client).__name__)
    if not callable(model_func):
        raise PatrickStarError("EINVAL", "model_func is %s; it must be a function that builds a torch.nn.Module, or "
                               "such a module" % type(model_func).__name__)
    model, front, config_in_force, ranks, lock = start(model_func, local_rank, config, process_group)
    engine = Engine(model, front, config_in_force, ranks, lock)
    return engine, Optimizer(engine)
