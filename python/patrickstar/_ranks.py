"""Ranks: how the processes that train one model together meet, as PyTorch or MPI has started them.

Where torch.distributed has a process group, the default one or one that the program gives, the library's messages go
through an all-to-all of bytes in a gloo group beside it, of the same processes, whatever that group's backend is (gloo
carries bytes of the host, NCCL would not). It is the library's alone: one thread of the library makes all its calls, so
that it never meets the program's own collectives, nor those of other engines. Under mpirun or srun without
torch.distributed, the library speaks MPI itself.

Sums are added by the library in the order of ranks: bits are the same over gloo and MPI.
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
    """A communicator of the library, until close(). `comm` is its handle, or None: this process is alone."""

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

    def close(self) -> None:
        """Leave, after everything that uses `comm` has ended. All ranks call; the well ones wait for each other."""
        if self.comm is None or self._pid != os.getpid():  # a forked child has the handle, and none of its threads
            return
        comm, self.comm = self.comm, None
        _open.pop(id(self), None)
        library.ps_comm_close(comm)
        if self._group is not None:
            self._group.leave()
        atexit.unregister(self._close_at_exit)

    def fail(self, error: BaseException) -> None:
        """This rank cannot go on: the others' next call fails with these words, and close() waits for nobody."""
        if self.comm is not None and self._pid == os.getpid():
            library.ps_comm_fail(self.comm, ("%s: %s" % (type(error).__name__, error)).encode()[:495])

    def agree(self, failure: Optional[Exception], what: str) -> None:
        """All ranks go on, or none does: raises what this one has come to, or tells what another one has. All call."""
        if self.size > 1:
            texts = self.gather(str(failure) if failure is not None else "")
            other = next((rank for rank, text in enumerate(texts) if text), None)
            if failure is None and other is not None:
                failure = Refused("%s: nothing was loaded, as rank %d has refused it: %s" % (what, other, texts[other]))
        if failure is not None:
            raise failure

    def gather(self, text: str) -> List[str]:
        """A text of each, cut. All call."""
        mine = text.encode()[:_TEXT_BYTES - 1].ljust(_TEXT_BYTES, b"\0")
        texts = ctypes.create_string_buffer(self.size * _TEXT_BYTES)
        check(library.ps_comm_all_gather(self.comm, mine, _TEXT_BYTES, texts))
        return [texts.raw[rank * _TEXT_BYTES:(rank + 1) * _TEXT_BYTES].rstrip(b"\0").decode(errors="replace")
                for rank in range(self.size)]

    def _close_at_exit(self) -> None:
        # The library's thread calls into Python: it must have ended before the interpreter does.
        tell_why_this_rank_ends()
        self.close()


_open: "weakref.WeakValueDictionary[int, Ranks]" = weakref.WeakValueDictionary()


def tell_why_this_rank_ends() -> None:
    """At the end of the process, before anything is closed: where an exception ends it, nobody is to wait for it in any
    of the groups that it is in, as closing the first of them would wait for ranks that wait for it in another one."""
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
        # A thread of gloo's may let go of a work after it has told that it is done. Were it the last to do so, it would
        # give back the tensors, for which it needs the interpreter; and who leaves the group waits for that thread, with
        # the interpreter in its hands (PyTorch 2.4).
        self._recent_works: Deque[Any] = collections.deque(maxlen=64)
        # ctypes keeps no reference to callbacks: they live as long as this object, which Ranks has.
        self._all_to_all, self._close = ALL_TO_ALL(self._on_all_to_all), CLOSE(self._on_close)
        self._name = "torch.distributed (gloo beside %s)" % dist.get_backend(group)
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
        except BaseException as failure:  # nothing may leave a callback
            self._has_failed = True
            text = ("%s: %s" % (type(failure).__name__, failure)).encode()[:MESSAGE_ERROR_BYTES - 1]
            ctypes.memmove(error, text + b"\0", len(text) + 1)
            return 1

    def _on_close(self, _user, _is_orderly) -> None:
        self._is_closed = True

    def leave(self) -> None:
        """After ps_comm_close. Until the others close too, the library's thread may go on to call this group, and one
        that has failed is left to the end of the process."""
        if not self._is_closed:
            _parting.append(self)
        elif not self._has_failed and dist.is_initialized():
            if self._is_registered:
                dist.destroy_process_group(self._group)
            self._group = None  # the last reference: threads of gloo's are joined
            self._recent_works.clear()


_parting: List[_GlooGroup] = []  # groups that are to be left when the library's thread does not call them any more


def _leave_those_that_are_closed() -> None:
    groups, _parting[:] = _parting[:], []
    for group in groups:
        group.leave()


def meet(config: Optional[ctypes.c_void_p] = None, group: Any = None) -> Ranks:
    """The ranks that this process is one of; all of them call.

    config: a ps_config, whose section comm is read (None: the defaults). group: a process group of torch.distributed,
    whose members they are; None is its default group where there is one. Processes that torchrun has started without
    one get one, of gloo. Else those that mpirun or srun has started; else this process is alone.
    """
    if group is not None:
        _check_group(group)
    _leave_those_that_are_closed()
    if group is None and not _has_process_group() and _torchrun_size() > 1:
        dist.init_process_group("gloo")
    comm = ctypes.c_void_p()
    if group is None and not _has_process_group():
        _meet_by_launcher(config, comm)
        if library.ps_comm_size(comm) > 1:
            return Ranks(comm)
        library.ps_comm_close(comm)
        return Ranks(None)
    if dist.get_world_size(group) == 1:
        return Ranks(None)
    gloo = _GlooGroup(group)
    check(library.ps_comm_meet_by_process_group(config, ctypes.byref(gloo.table), ctypes.byref(comm)))
    return Ranks(comm, gloo)


def _meet_by_launcher(config: Optional[ctypes.c_void_p], comm: ctypes.c_void_p) -> None:
    defaults = ctypes.c_void_p()
    if config is None:
        check(library.ps_config_parse(b"{}", b"defaults", ctypes.byref(defaults)))
    try:
        check(library.ps_comm_meet(config or defaults, ctypes.byref(comm)))
    finally:
        library.ps_config_destroy(defaults)


def _has_process_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def _torchrun_size() -> int:
    """How many processes torchrun has started, where it has told them how to meet."""
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
        raise PatrickStarError("EINVAL", "process_group is %s; it must be what torch.distributed.new_group gives, or "
                               "None for the default group" % type(group).__name__)
    try:
        dist.get_rank(group)
    except (RuntimeError, ValueError) as error:
        raise Refused("process_group: torch.distributed does not know it (%s), as it was destroyed; make a new one by "
                      "torch.distributed.new_group" % error) from None


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
    """dist.new_group of some of the processes wants all of them to call; this one only its members. A number in its
    name, counted by each of them alike, keeps it apart from earlier ones of the same processes."""
    name = "patrickstar/%s/%d" % ("-".join(map(str, ranks)), _n_groups_of[ranks])
    _n_groups_of[ranks] += 1
    store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
    return dist.ProcessGroupGloo(store, ranks.index(dist.get_rank()), len(ranks))


def _bytes_at(address: Optional[int], n_bytes: int) -> torch.Tensor:
    if n_bytes == 0:
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    return torch.frombuffer((ctypes.c_char * n_bytes).from_address(address), dtype=torch.uint8)
