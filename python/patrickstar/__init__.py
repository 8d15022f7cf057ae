"""PatrickStar: training of PyTorch modules whose model data does not fit the device (doc/pytorch.md).

    from patrickstar.runtime import initialize_engine
    model, optimizer = initialize_engine(model_func=model_func, config=config)
    for batch in loader:
        optimizer.zero_grad()
        loss = model(**batch).loss
        model.backward(loss)
        optimizer.step()

The package is thin: parameters, gradients and optimizer states are stored in the chunks of libpatrickstar
(include/patrickstar_client.h), which move between device, host and disk. Modules stay PyTorch's, and nothing is
compiled.

    runtime/       the public interface: initialize_engine, the engine, the optimizer
    utils/, ops/   with core/ and profiler/ PatrickStar's other names, by _original; zero: ColossalAI's
    integrations/  accelerate, transformers' Trainer, TRL, sentence-transformers
    _build         construction: parameters of a module go into the library's memory
    _meta          first values of tensors on the meta device
    _front         hooks of modules: parameters in use; gradients
    _parked        parameters that are not in use
    _precision     number formats of modules with 16-bit parameters
    _autograd      handles of parameters in autograd graphs
    _slot, _state  shared state of a parameter; state_dict
    _parts         state_dict of one rank; merge, with _optimizer_files and _torch_file, joins those of all ranks
    to_dcp         a checkpoint for torch.distributed.checkpoint, with _checkpoint_files and _dcp
    _output_lock   one run in train.output_dir at a time
    _client        the library's calls for tensors of PyTorch, over _library (ctypes); _ranks: rendezvous of processes
    __main__       the command patrickstar, which needs no PyTorch"""
from typing import Any, List

from ._library import BudgetError, PatrickStarError, Refused
from ._library import version as __version__

__all__ = ["BudgetError", "PatrickStarError", "Refused", "Trainer", "__version__", "init", "initialize_engine",
           "torch_scope"]


def __getattr__(name: str) -> Any:
    """Modules that need PyTorch or transformers are imported at first use."""
    if name == "Trainer":
        from .integrations import Trainer
        return Trainer
    if name == "torch_scope":
        from ._build import torch_scope
        return torch_scope
    if name in ("init", "initialize_engine"):
        from . import runtime
        return getattr(runtime, name)
    raise AttributeError("module %r has no attribute %r" % (__name__, name))


def __dir__() -> List[str]:
    return sorted(__all__)
