"""The lock of an output folder, as two runs that save into one would remove each other's files: .lock in it, which
names the owner. `pstar train` uses the same (cli/train/run_log.c)."""
import fcntl
import os
import platform
import weakref
from typing import Any, Callable, Optional

from ._library import PatrickStarError


class OutputLock:
    """Held until release(), the last reference to it, or the end of the process. A folder that cannot be locked is used
    without a lock."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = os.open(os.path.join(folder, ".lock"), flags, 0o666)
        except OSError:
            self.release: Callable[[], Any] = lambda: None
            return
        self.release = weakref.finalize(self, _give_back, file)
        self.release.atexit = False  # type: ignore[attr-defined]
        self.file = file
        _locks.add(self)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.pwrite(file, _own_name().encode() + b"\n", 0)
        except BlockingIOError:
            holder = os.pread(file, 128, 0).partition(b"\n")[0].decode("ascii", "replace")
            raise _refusal(folder, holder) from None
        except OSError:
            pass


_locks: "weakref.WeakSet[OutputLock]" = weakref.WeakSet()


def _give_back(file: int) -> None:
    fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


def _forget_in_child() -> None:
    """A forked child inherits the files: it must neither hold the locks after its parent, nor release them."""
    for lock in list(_locks):
        if lock.release.detach() is not None:  # type: ignore[attr-defined]
            os.close(lock.file)


os.register_at_fork(after_in_child=_forget_in_child)


def _own_name() -> str:
    return "process %d on %s" % (os.getpid(), platform.node())


def _refusal(folder: str, holder: str) -> PatrickStarError:
    if holder == _own_name():
        return PatrickStarError("ESTATE", "train.output_dir: another engine of this process (%s) saves into %s: end it "
                                "by model.close(), or name another folder" % (holder, folder))
    return PatrickStarError("ESTATE", "train.output_dir: another run is writing into %s%s: wait for its end, or name "
                            "another folder" % (folder, " (%s)" % holder if holder.isprintable() and holder else ""))


def lock_output(config: Any, rank: int) -> Optional[OutputLock]:
    """The lock if the configuration has the engine save there; rank 0's for all."""
    if rank > 0 or config.get_int("train.save_interval") == 0:
        return None
    return OutputLock(config.get_string("train.output_dir"))
