"""Creation of a model in chunks from a configuration, and a function or the block of `init`, which build a module."""
import atexit
import contextlib
import functools
import logging
import os
from typing import Any, Dict, Iterator, Optional, Tuple

import torch
import torch.nn as nn
from torch.nn.utils.spectral_norm import SpectralNorm

from .. import _cuda, _ranks
from .._build import Builder, builder_of, refuse_nesting
from .._client import Client, Config
from .._front import Front
from .._library import PatrickStarError, Refused
from .._output_lock import OutputLock, lock_output
from .._precision import compute_in_fp32
from .._state import save_by
from ..profiler import profiler


class _Creation:
    """What an engine needs beside its module. `owner` of the builder, which exists first in it and last."""

    def __init__(self, config: Config, local_rank: Optional[int], process_group: Any) -> None:
        self.config, self.local_rank, self.process_group = config, local_rank, process_group
        self.ranks: Any = None
        self.lock: Optional[OutputLock] = None
        self.client: Optional[Client] = None

    def close_at_exit(self) -> None:
        """Of several ranks, for a module of patrickstar.init that never gets an engine."""
        _ranks.report_failure_to_ranks()
        if self.client is not None:
            self.client.close()
        self.ranks.close()

    def give_back(self, builder: Optional[Builder], model: Any, error: BaseException, is_restored: bool = True) -> None:
        """Creation has failed: the other ranks are notified at once, and the module is restored."""
        atexit.unregister(self.close_at_exit)
        if self.lock is not None:
            self.lock.release()
        if self.ranks is None:
            return
        self.ranks.fail(error)
        is_kept = builder is not None and builder.undo(model if isinstance(model, nn.Module) else None, is_restored)
        if self.client is None:
            self.ranks.close()
            return
        self.client.part(self.ranks.close)
        if not is_kept:
            self.client.close()


def _begin(local_rank: Optional[int], given: Any, process_group: Any) -> Builder:
    if local_rank is not None and not isinstance(local_rank, int):
        raise PatrickStarError("EINVAL", "local_rank is %r; it must be a whole number: int(os.environ['LOCAL_RANK'])"
                               % (local_rank,))
    if local_rank is None and os.environ.get("LOCAL_RANK", "").isdigit():
        local_rank = int(os.environ["LOCAL_RANK"])
    creation = _Creation(Config(given), local_rank, process_group)
    _number_format(creation.config)
    n_gpus = _cuda.count()
    if local_rank is not None and 0 <= local_rank < n_gpus:
        _cuda.select(local_rank)
    creation.ranks = _ranks.init(creation.config.handle, process_group)
    try:
        _check_local_rank(local_rank, creation.ranks.size == 1 and process_group is None, n_gpus)
        creation.lock = lock_output(creation.config, creation.ranks.rank)
        creation.client = Client(creation.config, creation.ranks.comm)
        _warn_of_fallback(creation)
        return Builder(creation.client, creation.ranks.size, creation)
    except BaseException as error:
        creation.give_back(None, None, error)
        raise


def _warn_of_fallback(creation: _Creation) -> None:
    why = creation.client.get_info().why_not_gpu if creation.client is not None else None
    if why and creation.ranks.rank == 0:
        logging.getLogger("patrickstar").warning("the processor computes, as the GPU cannot be used: %s", why.decode())


def start(model_func: Any, local_rank: Optional[int], given: Any,
          process_group: Any) -> Tuple[nn.Module, Front, Config, Any, Optional[OutputLock]]:
    builder = builder_of(model_func) if isinstance(model_func, nn.Module) else None
    is_pending = builder is not None
    if builder is not None:
        _check_module(model_func)
        _check_that_nothing_else_is_given(builder.owner, local_rank, given, process_group)
        builder.resume(model_func)
        atexit.unregister(builder.owner.close_at_exit)
    else:
        builder = _begin(local_rank, given, process_group)
    creation: _Creation = builder.owner
    model: Any = model_func if is_pending else None
    try:
        with builder.create():
            model = model_func if isinstance(model_func, nn.Module) else model_func()
            if not isinstance(model, nn.Module):
                raise PatrickStarError("EINVAL", "model_func returned %s; expected a torch.nn.Module"
                                       % type(model).__name__)
            _check_module(model)
            builder.adopt(model)
        builder.close()
        if _cuda.count():
            builder.client.use_stream()
        front = builder.finish(model, _number_format(creation.config))
        profiler._attach(builder.client)
        _install_hooks(model, front)
        builder.done()
    except BaseException as error:
        creation.give_back(builder, model, error, is_restored=not is_pending)
        raise
    return model, front, creation.config, creation.ranks, creation.lock


@contextlib.contextmanager
def init(config: Any = None, local_rank: Optional[int] = None, process_group: Any = None) -> Iterator[None]:
    """A module that is built in the block lies in memory of the library at once, as that of a model_func, with the same
    bits; so it may be larger than memory, and never exists twice. It is an ordinary module until
    initialize_engine(model=model) puts it into chunks, except that backward() is refused.

        with patrickstar.init(config):
            model = Model()
        model, optimizer = patrickstar.initialize_engine(model=model)

    config, local_rank, process_group: those of initialize_engine, which takes them from here. local_rank None:
    LOCAL_RANK of the environment, which torchrun sets.

    One model a block, and no block within another one, or within a model_func. Where the block ends by an exception, or
    initialize_engine fails, memory and files are freed, and the module has no values any more."""
    refuse_nesting()
    builder = _begin(local_rank, config, process_group)
    try:
        with builder.create():
            yield
        builder.wait()
        if builder.n_ranks > 1:
            atexit.register(builder.owner.close_at_exit)
    except BaseException as error:
        builder.owner.give_back(builder, None, error, is_restored=False)
        raise


def _check_that_nothing_else_is_given(creation: _Creation, local_rank: Optional[int], given: Any,
                                      process_group: Any) -> None:
    """Of initialize_engine, beside a module of patrickstar.init."""
    if given is not None:
        mine, other = _flat(creation.config.to_dict()), _flat(Config(given).to_dict())
        key = next((key for key in {**mine, **other} if mine.get(key) != other.get(key)), None)
        if key is not None:
            raise PatrickStarError("EINVAL", "config: %s is %s, but patrickstar.init was given %s: give both the same, "
                                   "or leave it out here" % (key, other.get(key), mine.get(key)))
    if local_rank not in (None, 0, creation.local_rank):
        raise PatrickStarError("EINVAL", "local_rank=%r, but patrickstar.init was given %r: give it there"
                               % (local_rank, creation.local_rank))
    if process_group is not None and process_group is not creation.process_group:
        raise PatrickStarError("EINVAL", "process_group: patrickstar.init was given another one, or none; give "
                               "it there")


def _flat(options: Dict[str, Any], prefix: str = "") -> Dict[str, Any]:
    flat: Dict[str, Any] = {}
    for key, value in options.items():
        flat.update(_flat(value, prefix + key + ".") if isinstance(value, dict) else {prefix + key: value})
    return flat


def _install_hooks(model: nn.Module, front: Front) -> None:
    for name, module in model.named_modules():
        slots = list(dict.fromkeys(param._ps for param in module._parameters.values() if hasattr(param, "_ps")))
        save_by(front, module)
        compute_in_fp32(module, front.client.dtype)
        front.keep_micro_batches(module)
        if slots:
            front.wrap(module, name or "model", slots)
            module.__prepare_scriptable__ = functools.partial(_refuse_scripting, name or "the model")
    device = front.client.device
    if device.type == "cuda":
        for buffer in model.buffers():
            buffer.data = buffer.data.to(device)


def _refuse_scripting(name: str) -> None:
    raise Refused("torch.jit.script of %s, whose parameters are in chunks: a script keeps their addresses, which "
                  "change; load model.state_dict() into a module outside of chunks, or script a "
                  "function that takes the parameters as arguments" % name)


def _number_format(config: Config) -> torch.dtype:
    if config.get_int("bf16.enabled"):
        return torch.bfloat16
    if not config.get_int("fp16.enabled"):
        return torch.float32
    if not _cuda.count():
        half = torch.ones(2, 2, dtype=torch.float16)
        try:
            half @ half
        except RuntimeError as error:
            raise Refused("fp16.enabled: PyTorch %s does not multiply fp16 on this processor (%s); use bf16.enabled, "
                          "which needs no loss scale, or a newer PyTorch" % (torch.__version__, error)) from None
    return torch.float16


def _check_local_rank(local_rank: Optional[int], is_single_rank: bool, n_gpus: int) -> None:
    if local_rank is None or local_rank <= 0:
        return
    if is_single_rank:
        raise Refused("local_rank=%d, but this is a single process: each of several would train a separate model. "
                      "Start them together, by torchrun or mpirun, or call torch.distributed.init_process_group "
                      "before; one process has local_rank=0, and CUDA_VISIBLE_DEVICES chooses its GPU" % local_rank)
    if 0 < n_gpus <= local_rank:
        raise PatrickStarError("EINVAL", "local_rank=%d: expected a number below %d, the count of GPUs that this "
                               "process sees; start one process a GPU, or give each process one GPU in "
                               "CUDA_VISIBLE_DEVICES, and local_rank=0" % (local_rank, n_gpus))


_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "OptimizedModule")


def _check_module(model: nn.Module) -> None:
    for name, module in model.named_modules():
        kind = type(module).__name__
        name = name or "the model"
        if next(module.parameters(), None) is None:
            continue
        if kind in _WRAPPERS:
            raise Refused("%s is a %s: pass the module in it; initialize_engine handles ranks and chunks, "
                          "and parameters in chunks change their addresses, which a compiled graph does not see"
                          % (name, kind))
        if getattr(module, "_compiled_call_impl", None) is not None:
            raise Refused("%s is compiled by its method compile(): leave that out; parameters in chunks change their "
                          "addresses, which a compiled graph does not see" % name)
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm):
                raise Refused("the hook form of spectral_norm on %s stores the weight as a plain attribute, which the "
                              "engine cannot move; use torch.nn.utils.parametrizations.spectral_norm" % name)
