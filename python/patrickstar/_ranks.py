"""Ranks: rendezvous of the processes that train one model together, as started by PyTorch or MPI.

If torch.distributed has a process group, the default one or one that the program passes, the library's messages use an
all-to-all of bytes in a separate gloo group of the same processes, whatever that group's backend is (gloo transfers
host memory, NCCL would not). The library alone uses it: one thread of the library makes all its calls, so that it never
interferes with the program's collectives, nor with those of other engines. Under mpirun or srun without
torch.distributed, the library uses MPI itself.

The library adds sums in the order of ranks: bits are the same over gloo and MPI.
"""
import atexit
import collections
import ctypes
import os
import sys
import weakref
from typing import Any, Deque, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist

from ._library import (ALL_TO_ALL, CLOSE, MESSAGE_ERROR_BYTES, PatrickStarError, ProcessGroup, Refused, check,
                       library)

_TEXT_BYTES = 1024


class Ranks:
    """A communicator of the library, until close(). `comm` is its handle, or None: a single rank."""

    def __init__(self, comm: Optional[ctypes.c_void_p], group: Optional["_GlooGroup"] = None) -> None:
        self.comm = comm
        self._group = group
        self._pid = os.getpid()
        self.rank = library.ps_comm_rank(comm) if comm else 0
        self.size = library.ps_comm_size(comm) if comm else 1
        self.local_rank = library.ps_comm_local_rank(comm) if comm else 0
        self.description = library.ps_comm_describe(comm).decode() if comm else "single"
        if comm:
            _open[id(self)] = self
            atexit.register(self._close_at_exit)

    def __repr__(self) -> str:
        return "rank %d of %d (%s)" % (self.rank, self.size, self.description)

    def close(self) -> None:
        """Close, after everything that uses `comm` has ended. All ranks call; those without failure wait for each
        other."""
        if self.comm is None or self._pid != os.getpid():  # a forked child has the handle, and none of its threads
            return
        comm, self.comm = self.comm, None
        _open.pop(id(self), None)
        library.ps_comm_close(comm)
        if self._group is not None:
            self._group.leave()
        atexit.unregister(self._close_at_exit)

    def fail(self, error: BaseException) -> None:
        """This rank has failed: the others' next call fails with this text, and close() does not wait."""
        if self.comm is not None and self._pid == os.getpid():
            library.ps_comm_fail(self.comm, ("%s: %s" % (type(error).__name__, error)).encode()[:495])

    def agree(self, failure: Optional[Exception], what: str) -> None:
        """All ranks continue, or none does: raises this rank's failure, or that of another one. All call."""
        if self.size > 1:
            texts = self.gather(str(failure) if failure is not None else "")
            other = next((rank for rank, text in enumerate(texts) if text), None)
            if failure is None and other is not None:
                failure = Refused("%s: nothing was loaded, as rank %d has refused it: %s" % (what, other, texts[other]))
        if failure is not None:
            raise failure

    def gather(self, text: str) -> List[str]:
        """A text of each rank, truncated. All call."""
        mine = text.encode()[:_TEXT_BYTES - 1].ljust(_TEXT_BYTES, b"\0")
        texts = ctypes.create_string_buffer(self.size * _TEXT_BYTES)
        check(library.ps_comm_all_gather(self.comm, mine, _TEXT_BYTES, texts))
        return [texts.raw[rank * _TEXT_BYTES:(rank + 1) * _TEXT_BYTES].rstrip(b"\0").decode(errors="replace")
                for rank in range(self.size)]

    def _close_at_exit(self) -> None:
        # The library's thread calls into Python: it must have ended before the interpreter does.
        report_failure_to_ranks()
        self.close()


_open: "weakref.WeakValueDictionary[int, Ranks]" = weakref.WeakValueDictionary()


def report_failure_to_ranks() -> None:
    """At the end of the process, before anything is closed: if an exception ends it, other ranks are notified in all of
    its groups first, as closing one of them would wait for ranks that wait for it in another one."""
    error = getattr(sys, "last_value", None)
    if error is not None:
        for ranks in list(_open.values()):
            ranks.fail(error)


class _GlooGroup:
    """A gloo group of the processes of `group`, as the library calls it."""

    def __init__(self, group: Any) -> None:
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self._group, self._is_registered = _new_gloo_group(group)
        self._is_closed = self._has_failed = False
        # A thread of gloo may drop a work object after it has reported that it is done. If it holds the last reference
        # it frees the tensors, for which it needs the interpreter; and destroying the group waits for that thread,
        # while holding the interpreter's lock (PyTorch 2.4).
        self._recent_works: Deque[Any] = collections.deque(maxlen=64)
        # ctypes keeps no reference to callbacks: they must live as long as this object, which Ranks holds.
        self._all_to_all, self._close = ALL_TO_ALL(self._on_all_to_all), CLOSE(self._on_close)
        self._name = "torch.distributed (gloo next to %s)" % dist.get_backend(group)
        self.table = ProcessGroup(rank=self.rank, size=self.size, name=self._name.encode(), all_to_all=self._all_to_all,
                                  close=self._close)

    def _on_all_to_all(self, _user, send, send_bytes, receive, receive_bytes, error) -> int:
        try:
            sent, received = send_bytes[:self.size], receive_bytes[:self.size]
            work = dist.all_to_all_single(_bytes_at(receive, sum(received)), _bytes_at(send, sum(sent)), received, sent,
                                          group=self._group, async_op=True)
            self._recent_works.append(work)
            work.wait()
            return 0
        except BaseException as failure:  # no exception may leave a callback
            self._has_failed = True
            text = ("%s: %s" % (type(failure).__name__, failure)).encode()[:MESSAGE_ERROR_BYTES - 1]
            ctypes.memmove(error, text + b"\0", len(text) + 1)
            return 1

    def _on_close(self, _user, _is_orderly) -> None:
        self._is_closed = True

    def leave(self) -> None:
        """After ps_comm_close. Until the others close too, the library's thread may still call this group, and a failed
        group is destroyed at the end of the process."""
        if not self._is_closed:
            _closed_groups.append(self)
        elif not self._has_failed and dist.is_initialized():
            if self._is_registered:
                dist.destroy_process_group(self._group)
            self._group = None  # the last reference: joins threads of gloo
            self._recent_works.clear()


_closed_groups: List[_GlooGroup] = []  # groups to be destroyed when the library's thread no longer calls them


def _leave_closed_groups() -> None:
    groups, _closed_groups[:] = _closed_groups[:], []
    for group in groups:
        group.leave()


def init(config: Optional[ctypes.c_void_p] = None, group: Any = None) -> Ranks:
    """The ranks that this process is one of; all of them call.

    config: a ps_config, whose section comm is read (None: the defaults). group: a process group of torch.distributed,
    whose members they are; None is its default group if there is one. Processes started by torchrun without a group
    get one, of gloo. Otherwise the ranks are those started by mpirun or srun, or this process alone.
    """
    if group is not None:
        _check_group(group)
    _leave_closed_groups()
    if group is None and not _has_process_group() and _torchrun_size() > 1:
        dist.init_process_group("gloo")
    comm = ctypes.c_void_p()
    if group is None and not _has_process_group():
        _init_by_launcher(config, comm)
        if library.ps_comm_size(comm) > 1:
            return Ranks(comm)
        library.ps_comm_close(comm)
        return Ranks(None)
    if dist.get_world_size(group) == 1:
        return Ranks(None)
    gloo = _GlooGroup(group)
    check(library.ps_comm_init_process_group(config, ctypes.byref(gloo.table), ctypes.byref(comm)))
    return Ranks(comm, gloo)


def _init_by_launcher(config: Optional[ctypes.c_void_p], comm: ctypes.c_void_p) -> None:
    defaults = ctypes.c_void_p()
    if config is None:
        check(library.ps_config_parse(b"{}", b"defaults", ctypes.byref(defaults)))
    try:
        check(library.ps_comm_init(config or defaults, ctypes.byref(comm)))
    finally:
        library.ps_config_destroy(defaults)


def _has_process_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def _torchrun_size() -> int:
    """The number of processes that torchrun has started, if it has set their rendezvous."""
    known = all(os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    return int(os.environ["WORLD_SIZE"]) if known and dist.is_available() else 1


def _check_group(group: Any) -> None:
    """Is it a group of torch.distributed that this process is a member of?"""
    if not _has_process_group():
        raise Refused("process_group=%s: torch.distributed has no process groups here, or none any more; call "
                      "torch.distributed.init_process_group before, or leave process_group out" % type(group).__name__)
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise Refused("process_group: this process, rank %d of %d, is not a member of it; only members call "
                      "initialize_engine: `if torch.distributed.get_rank(group) >= 0:`"
                      % (dist.get_rank(), dist.get_world_size()))
    if not isinstance(group, dist.ProcessGroup):
        raise PatrickStarError("EINVAL", "process_group is %s; it must be a result of torch.distributed.new_group, or "
                               "None for the default group" % type(group).__name__)
    try:
        dist.get_rank(group)
    except (RuntimeError, ValueError) as error:
        raise Refused("process_group: torch.distributed does not know it (%s), as it was destroyed; create a new one "
                      "by torch.distributed.new_group" % error) from None


def _new_gloo_group(group: Any) -> Tuple[Any, bool]:
    """The group, and whether torch.distributed keeps it in its list of groups."""
    if not dist.is_gloo_available():
        raise PatrickStarError("ENOSYS", "several ranks over torch.distributed: this PyTorch has no gloo; start the "
                               "processes by mpirun, without init_process_group")
    if group is None or dist.get_world_size(group) == dist.get_world_size():
        return dist.new_group(backend="gloo"), True
    ranks = tuple(dist.get_global_rank(group, rank) for rank in range(dist.get_world_size(group)))
    return _gloo_group_of_members(ranks), False


_n_groups_of: Dict[Tuple[int, ...], int] = collections.Counter()  # made so far, by their members


def _gloo_group_of_members(ranks: Tuple[int, ...]) -> Any:
    """dist.new_group of some of the processes requires all of them to call; this one only its members. A number in its
    name, counted by each of them alike, distinguishes it from earlier ones of the same processes."""
    name = "patrickstar/%s/%d" % ("-".join(map(str, ranks)), _n_groups_of[ranks])
    _n_groups_of[ranks] += 1
    store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
    return dist.ProcessGroupGloo(store, ranks.index(dist.get_rank()), len(ranks))


def _bytes_at(address: Optional[int], n_bytes: int) -> torch.Tensor:
    if n_bytes == 0:
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    return torch.frombuffer((ctypes.c_char * n_bytes).from_address(address), dtype=torch.uint8)
