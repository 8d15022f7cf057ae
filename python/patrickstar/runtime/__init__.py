"""The interface of PatrickStar's guide."""
import os
from typing import Any, Callable, Dict, Optional, Tuple, Union

import torch
import torch.nn as nn

from .._library import PatrickStarError, Refused
from .._original import MadeByEngine
from . import _others  # noqa: F401, it acts when it is imported
from ._start import init, start
from .engine import Engine
from .optimizer import Optimizer

__all__ = ["Engine", "Optimizer", "PatrickStarEngine", "init", "initialize_engine"]


class PatrickStarEngine(Engine, metaclass=MadeByEngine):
    """What the model of initialize_engine is."""
    way = "initialize_engine(model_func, local_rank, config) makes the engine; it takes a module that is built, too"


def initialize_engine(model_func: Union[Callable[[], nn.Module], nn.Module, None] = None,
                      local_rank: Optional[int] = None, config: Union[Dict[str, Any], str, os.PathLike, None] = None,
                      client: None = None, process_group: Any = None, *,
                      model: Optional[nn.Module] = None) -> Tuple[Engine, Optimizer]:
    """Put a model into chunks, and return the engine and the optimizer that train it.

    model_func: called without arguments, builds the module. Or model, a module: of patrickstar.init, which lies in
    memory of the library; on torch.device("meta"), whose initialisers give it values (_meta.py); or any other, which
    exists twice for a moment. A module may be given as model_func, too.
    local_rank: this process's number on its machine, as the launcher has it; computing by CUDA, the number of its GPU.
        None: LOCAL_RANK of the environment, which torchrun sets.
    config: a dictionary with the keys of DeepSpeed's and PatrickStar's configurations (doc/config.md), the path of a
    JSON file of them, or None. client: None; PatrickStar's own PatrickStarClient is not needed.

    Several ranks: the members of process_group, a group of torch.distributed.new_group, which alone call; None is
    torch.distributed's default group where there is one, else all that torchrun, mpirun or srun has started. Raises
    BudgetError when the budgets cannot hold the model, with budgets to try; PatrickStarError for a wrong
    configuration; Refused for parts of the model that do not work in chunks."""
    if client is not None:
        raise Refused("client=%s: no client is created beforehand; give model_func, or a module that is built"
                      % type(client).__name__)
    if (model_func is None) == (model is None):
        raise PatrickStarError("EINVAL", "initialize_engine: give either model_func, a function that builds a "
                               "torch.nn.Module, or model, such a module; found %s"
                               % ("both" if model is not None else "neither"))
    if model is not None and not isinstance(model, nn.Module):
        raise PatrickStarError("EINVAL", "model is %s; it must be a torch.nn.Module (a function that builds one is "
                               "model_func)" % type(model).__name__)
    if model_func is not None and not callable(model_func):
        raise PatrickStarError("EINVAL", "model_func is %s; it must be a function that builds a torch.nn.Module, or "
                               "such a module" % type(model_func).__name__)
    module, front, config_in_force, ranks, lock = start(model if model_func is None else model_func, local_rank, config,
                                                        process_group)
    engine = Engine(module, front, config_in_force, ranks, lock)
    return engine, Optimizer(engine)
