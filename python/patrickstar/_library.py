"""The shared library: where it is, and how its failures become exceptions."""
import ctypes
import ctypes.util
import os
from typing import Optional

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


class PatrickStarError(RuntimeError):
    """What the library refused or failed in: `status` is the name of its ps_status, the text its last error."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


def _find() -> str:
    given = os.environ.get("PATRICKSTAR_LIBRARY")
    if given:
        return given
    for folder in (os.path.join(_PACKAGE, "lib"), os.path.join(_PACKAGE, "..", "..", "build")):
        path = os.path.join(folder, "libpatrickstar.so")
        if os.path.exists(path):
            return os.path.realpath(path)
    return ctypes.util.find_library("patrickstar") or "libpatrickstar.so.0"


_path = _find()
library = ctypes.CDLL(_path)
library.ps_last_error.restype = ctypes.c_char_p
library.ps_status_name.restype = ctypes.c_char_p
library.ps_version.restype = ctypes.c_char_p
library.ps_version.argtypes = [ctypes.c_void_p] * 3


def path() -> str:
    """The file that the library was loaded from."""
    return _path


def check(status: int, what: Optional[str] = None) -> None:
    """Raise PatrickStarError unless status is PS_OK."""
    if status != 0:
        text = library.ps_last_error().decode("utf-8", "replace")
        raise PatrickStarError(library.ps_status_name(status).decode(), "%s: %s" % (what, text) if what else text)
