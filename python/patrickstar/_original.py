"""PatrickStar's own names beside initialize_engine: what its guide and its examples import (doc/migrating.md).

patrickstar.utils, .core, .ops and .runtime have each of them under the path that it has there. They are for programs
that come from PatrickStar; numbers are those of the engine that was initialized last."""
import gc
import logging
import os
import sys
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist
import torch.nn as nn

from . import _cuda
from ._library import ClientInfo, PatrickStarError, Refused, format_bytes, get_available_memory
from .profiler import profiler

# ---- classes that initialize_engine makes the objects of, and names that have no counterpart


class MadeByEngine(type):
    """Of a class under PatrickStar's name, derived from the one here: isinstance() knows objects of both; a call is
    refused with `way`."""
    way: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise Refused("%s(...): %s" % (cls.__name__, cls.way))

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__bases__[0])


def refuse_names(module: str, ways: Dict[str, str]) -> Callable[[str], Any]:
    """A module's __getattr__: what to do instead of importing these names."""
    def refuse(name: str) -> Any:
        if name in ways:
            raise Refused("%s.%s: %s" % (module, name, ways[name]))
        raise AttributeError("module %r has no attribute %r" % (module, name))
    return refuse


# ---- ranks

_LAUNCHERS = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))


def _get_rank_and_size() -> Tuple[int, int]:
    """Those of torch.distributed; without it those of the engine; before there is one, those that torchrun or mpirun
    has given this process."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    client = profiler.get_client()
    if client is not None:
        return client.info.rank, client.info.n_ranks
    for rank, size in _LAUNCHERS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


def get_rank() -> int:
    return _get_rank_and_size()[0]


def get_world_size() -> int:
    return _get_rank_and_size()[1]


# ---- logging


logger = logging.getLogger("patrickstar")


def print_log_lines() -> None:
    """Have lines of the logger go to the standard output, as PatrickStar's do, unless the program sets up logging."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("[%(asctime)s] [%(levelname)s] %(message)s"))
    handler.addFilter(lambda record: not logging.getLogger().handlers)
    logger.addHandler(handler)


def log_dist(message: str, ranks: Optional[List[int]] = None, level: int = logging.INFO) -> None:
    """Log on these ranks: by default the first, [-1] on all."""
    rank = get_rank()
    if ranks is None and rank == 0 or ranks is not None and (-1 in ranks or rank in ranks):
        logger.log(level, "[Rank %d] %s", rank, message)


# ---- memory


def get_resident_bytes(field: str = "VmRSS") -> int:
    """Of this process: VmRSS, or VmHWM for its peak."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(field + ":"))


def describe_memory(size: Callable[[int], str] = format_bytes) -> List[str]:
    """Lines: the process, PyTorch's memory of the GPU, and the tiers of the engine."""
    lines = ["process: %s resident, at most %s; %s available" % (
        size(get_resident_bytes()), size(get_resident_bytes("VmHWM")), size(get_available_memory()))]
    if _cuda.count():
        lines.append("PyTorch on the GPU: %s allocated, at most %s; %s reserved, at most %s" % tuple(
            size(n) for n in _cuda.allocator_bytes()))
    info = _get_info()
    if info is not None:
        lines += ["%s: %s of %s, at most %s" % ((tier,) + tuple(size(n) for n in numbers)) for tier, *numbers in zip(
            ("device", "host", "disk"), info.used_bytes, info.budget_bytes, info.peak_bytes) if numbers[1] > 0]
        lines.append("of the device's use PyTorch's own: %s, at most %s"
                     % (size(info.framework_bytes), size(info.framework_peak_bytes)))
    return lines


def see_memory_usage(message: str, force: bool = False, scale_name: str = "MB") -> None:
    """Log, on rank 0, where `force`, what memory is in use. scale_name="B" for whole bytes."""
    if not force or get_rank() != 0:
        return
    gc.collect()
    for line in [message] + describe_memory((lambda n: "%d B" % n) if scale_name == "B" else format_bytes):
        logger.info("%s", line)


def _get_info() -> Optional[ClientInfo]:
    client = profiler.get_client()
    return client.get_info() if client is not None else None


# ---- timers


class GlobalTimer:
    """Seconds between start() and finish(), or until now; how long the engine waited for chunks in them; and seconds of
    parts that the program names."""

    def __init__(self) -> None:
        self._sums: Dict[str, float] = {}
        self._begun: Dict[str, float] = {}

    @staticmethod
    def _now(key: str) -> float:
        if key != "waiting for chunks":
            return time.perf_counter()
        info = _get_info()
        return info.wait_ns / 1e9 if info is not None else 0.0

    def start(self) -> None:
        for key in ("total", "waiting for chunks"):
            self._begun.setdefault(key, self._now(key))

    def finish(self) -> None:
        for key in ("total", "waiting for chunks"):
            self.finish_profile(key)

    def start_profile(self, key: str) -> None:
        if key in self._begun:
            raise PatrickStarError("ESTATE", "my_timer: %s has been started already; finish it first" % key)
        self._begun[key] = self._now(key)

    def finish_profile(self, key: str) -> None:
        if key not in self._begun:
            raise PatrickStarError("ESTATE", "my_timer: %s was not started" % key)
        self._sums[key] = self._sums.get(key, 0.0) + self._now(key) - self._begun.pop(key)

    @property
    def elapse_stat(self) -> Dict[str, float]:
        """Seconds by name."""
        sums = dict(self._sums)
        for key, begin in self._begun.items():
            sums[key] = sums.get(key, 0.0) + self._now(key) - begin
        return sums

    def reset(self) -> None:
        """What is running begins anew."""
        self._sums = {}
        self._begun = {key: self._now(key) for key in self._begun}

    def print(self) -> None:
        sums = self.elapse_stat
        total = sums.get("total") or sum(sums.values())
        for key, seconds in sums.items():
            logger.info("%s: %.3g s, %.3g %%", key, seconds, 100 * seconds / total if total > 0 else 0)


class DataMoveCounter:
    """Bytes that the engine has moved since it began, or since reset(); and those that the program adds by update()."""
    _LINKS = ("host to device", "device to host", "disk to memory", "memory to disk")

    def __init__(self) -> None:
        self._own: Dict[str, int] = {}
        self._base: Tuple[Any, Dict[str, int]] = (None, {})  # the client that it is of, and its counts then

    def _read(self) -> Tuple[Any, Dict[str, int]]:
        client = profiler.get_client()
        if client is None:
            return None, {}
        info = client.get_info()
        return weakref.ref(client), {**dict(zip(self._LINKS, info.moved_bytes)), "to other ranks": info.sent_bytes}

    @property
    def amount_dict(self) -> Dict[str, int]:
        """Bytes by name."""
        of, counts = self._read()
        base = self._base[1] if of is self._base[0] else {}
        return {**{key: n - base.get(key, 0) for key, n in counts.items()}, **self._own}

    def update(self, key_name: str, tensor_size: int) -> None:
        self._own[key_name] = self._own.get(key_name, 0) + tensor_size

    def reset(self) -> None:
        self._own, self._base = {}, self._read()

    def print(self) -> None:
        info = _get_info()
        is_unified_memory = info is not None and info.gpu < 0
        for key, n_bytes in self.amount_dict.items():
            logger.info("%s: %s%s", key, format_bytes(n_bytes),
                        " (the same RAM)" if is_unified_memory and key in self._LINKS[:2] and n_bytes > 0 else "")


my_timer = GlobalTimer()
data_move_cnter = DataMoveCounter()

# ---- models


def get_ps_model_size(model: nn.Module) -> Tuple[int, int]:
    """Elements of all parameters, and the number of parameters; shared ones count once."""
    counts = [param.numel() for _, param in model.named_parameters()]
    return sum(counts), len(counts)


def register_torch_profiler_hook(module: nn.Module) -> None:
    """Have the profiler record the memory that PyTorch has in use (on the GPU, else the process's) before and after the
    forward of each module, and before its backward: for training without an engine, to be compared with one."""
    if any(hasattr(param, "_ps") for param in module.parameters()):
        raise Refused("register_torch_profiler_hook of a model in chunks: profiler.start() records it without hooks")
    for name, part in module.named_modules():
        if any(tensor is not None for tensor in [*part._parameters.values(), *part._buffers.values()]):
            _record_memory_around(part, name or "model")


def _record_memory_around(module: nn.Module, name: str) -> None:
    def record(*_: Any) -> None:
        profiler.record_torch(name, _cuda.allocated_bytes() if _cuda.count() else get_resident_bytes())

    def after(_module: nn.Module, _inputs: Any, output: Any) -> None:
        record()
        for tensor in output if isinstance(output, (tuple, list)) else [output]:
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(record)

    module.register_forward_pre_hook(record)
    module.register_forward_hook(after)
