"""Creation of a model in chunks from a configuration and a function that builds a module."""
import functools
from typing import Any, Optional, Tuple

import torch
import torch.nn as nn
from torch.nn.utils.spectral_norm import SpectralNorm

from .. import _ranks
from .._build import Builder
from .._client import Client, Config
from .._front import Front
from .._library import PatrickStarError, Refused
from .._output_lock import OutputLock, lock_output
from .._precision import compute_in_fp32
from .._state import save_by
from ..profiler import profiler


def start(model_func: Any, local_rank: Optional[int], given: Any,
          process_group: Any) -> Tuple[nn.Module, Front, Config, Any, Optional[OutputLock]]:
    if local_rank is not None and not isinstance(local_rank, int):
        raise PatrickStarError("EINVAL", "local_rank is %r; it must be a whole number: int(os.environ['LOCAL_RANK'])"
                               % (local_rank,))
    config = Config(given)
    dtype = _check_number_format(config)
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if local_rank is not None and 0 <= local_rank < n_gpus:
        torch.cuda.set_device(local_rank)
    ranks = _ranks.init(config.handle, process_group)
    client: Optional[Client] = None
    builder: Optional[Builder] = None
    lock: Optional[OutputLock] = None
    model: Any = None
    try:
        _check_local_rank(local_rank, ranks.size == 1 and process_group is None, n_gpus)
        lock = lock_output(config, ranks.rank)
        client = Client(config, ranks.comm)
        builder = Builder(client, ranks.size)
        with builder.open():
            model = model_func if isinstance(model_func, nn.Module) else model_func()
            if not isinstance(model, nn.Module):
                raise PatrickStarError("EINVAL", "model_func returned %s; expected a torch.nn.Module"
                                       % type(model).__name__)
            _check_module(model)
            builder.adopt(model)
        if torch.cuda.is_available():
            client.use_stream()
        front = builder.finish(model, dtype)
        profiler._attach(client)
        _install_hooks(model, front)
        builder.done()
    except BaseException as error:
        if lock is not None:
            lock.release()
        _give_back(ranks, client, builder, model, error)
        raise
    return model, front, config, ranks, lock


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


def _give_back(ranks: _ranks.Ranks, client: Optional[Client], builder: Optional[Builder], model: Any,
               error: BaseException) -> None:
    """Creation has failed: the other ranks are notified at once, and the module is restored."""
    ranks.fail(error)
    is_kept = builder is not None and builder.undo(model if isinstance(model, nn.Module) else None)
    if client is None:
        ranks.close()
        return
    client.part(ranks.close)
    if not is_kept:
        client.close()


def _check_number_format(config: Config) -> torch.dtype:
    if config.get_int("bf16.enabled"):
        return torch.bfloat16
    if not config.get_int("fp16.enabled"):
        return torch.float32
    if not torch.cuda.is_available():
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
        raise PatrickStarError("EINVAL", "local_rank=%d: expected a number below %d, as this machine has that many "
                               "GPUs; start so many processes on it at most" % (local_rank, n_gpus))


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
