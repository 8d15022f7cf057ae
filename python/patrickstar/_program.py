"""The program pstar that belongs to the library."""
import os
import shutil
import subprocess
import sys
from typing import List, NoReturn

from . import _library, _nvidia


def find() -> str:
    """The path of pstar: next to the loaded library (a wheel's, a build's), where `make install` puts it relative to
    that, or in PATH. SystemExit when there is none."""
    folder = os.path.dirname(os.path.realpath(_library.path())) if os.path.sep in _library.path() else ""
    places = [os.path.join(folder, "pstar"), os.path.join(folder, "..", "bin", "pstar")] if folder else []
    for path in places:
        if os.access(path, os.X_OK):
            return path
    for path in filter(None, (shutil.which("pstar", path=entry) for entry in os.get_exec_path())):
        if not _is_this_package(path):
            return path
    raise SystemExit("patrickstar: there is no program pstar%s, nor in PATH: `make install` puts it there"
                     % (" next to " + folder if folder else ""))


def _is_this_package(path: str) -> bool:
    """Skips the command that pip creates for main() below."""
    with open(path, "rb") as file:
        return b"patrickstar._program" in file.read(4096)


def run(arguments: List[str]) -> int:
    """Runs pstar with these arguments: its exit status."""
    sys.stdout.flush()
    return subprocess.run([find()] + arguments, env=_nvidia.environment()).returncode


def run_quietly(arguments: List[str]) -> int:
    """The same without pstar's normal output; errors are printed."""
    return subprocess.run([find()] + arguments, env=_nvidia.environment(), stdout=subprocess.DEVNULL).returncode


def main() -> NoReturn:
    """The command `pstar` of an installed wheel."""
    path = find()
    os.execve(path, [path] + sys.argv[1:], _nvidia.environment())
