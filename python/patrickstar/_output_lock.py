"""The lock of an output folder, as two runs that save into one would remove each other's files: .lock in it, which says
who has it. `pstar train` takes the same (cli/train/run_log.c)."""
import fcntl
import os
import platform
import weakref
from typing import Any, Callable, Optional

from ._library import PatrickStarError


class OutputLock:
    """Until release(), the last reference to it, or the end of the process. A folder that cannot be locked is used
    without."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = os.open(os.path.join(folder, ".lock"), flags, 0o666)
        except OSError:
            self.release: Callable[[], Any] = lambda: None
            return
        self.release = weakref.finalize(self, _give_back, file, os.getpid())
        self.release.atexit = False  # type: ignore[attr-defined]
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.pwrite(file, _own_name().encode() + b"\n", 0)
        except BlockingIOError:
            _refuse(folder, os.pread(file, 128, 0).partition(b"\n")[0].decode("ascii", "replace"))
        except OSError:
            pass


def _give_back(file: int, pid: int) -> None:
    if os.getpid() == pid:  # a forked child has the file too: it neither keeps the lock nor gives it back
        fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


def _own_name() -> str:
    return "process %d on %s" % (os.getpid(), platform.node())


def _refuse(folder: str, holder: str) -> None:
    if holder == _own_name():
        raise PatrickStarError("ESTATE", "train.output_dir: another engine of this process (%s) saves into %s: end it "
                               "by model.close(), or name another folder" % (holder, folder))
    raise PatrickStarError("ESTATE", "train.output_dir: another run is writing into %s%s: wait for its end, or name "
                           "another folder" % (folder, " (%s)" % holder if holder.isprintable() and holder else ""))


def lock_output(config: Any, rank: int) -> Optional[OutputLock]:
    """Where the engine of this configuration saves there by itself; the first rank's for all."""
    if rank > 0 or config.get_int("train.save_interval") == 0:
        return None
    return OutputLock(config.get_string("train.output_dir"))
