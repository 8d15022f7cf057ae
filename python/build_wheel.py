"""Makes the wheel of the package `patrickstar`: its modules, and in patrickstar/lib the library, plug-ins and pstar.

    pip install ./python                          calls this (PEP 517)
    make python                                   also: python3 python/build_wheel.py FOLDER writes the wheel there

Which library goes in, the first of these that there is:

1. PATRICKSTAR_LIBRARY=FILE; plug-ins and pstar from beside it, or from where `make install` puts them beside it
2. that of the source tree around this folder, brought up to date by `make` (a minute or so the first time)
3. one that is installed in the system. It is not copied: the wheel has modules only, and loads that one

The wheel is for this machine's kind of processor and system. Libraries that libpatrickstar.so (jansson, uring, xxhash) and
pstar (pcre2, utf8proc, zlib and zstd too) need are the system's and not inside.
"""
import base64
import ctypes
import ctypes.util
import glob
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from typing import Dict, List, NamedTuple, Optional, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(HERE)

METADATA = """\
Metadata-Version: 2.1
Name: patrickstar
Version: {version}
Summary: Trains PyTorch modules whose model data does not fit the device, in chunks on device, host and disk
License: BSD-3-Clause
Requires-Python: >=3.9
Requires-Dist: torch
"""
ENTRY_POINTS = """\
[console_scripts]
pstar = patrickstar._program:main
patrickstar = patrickstar.__main__:main
"""


class Library(NamedTuple):
    """What goes into patrickstar/lib, and which version it is."""
    files: List[str]
    version: str


# ---- the library ----------------------------------------------------------------------------------------------------

def find_library() -> Library:
    given = os.environ.get("PATRICKSTAR_LIBRARY")
    if given:
        return _library_at(os.path.abspath(given), "PATRICKSTAR_LIBRARY=" + given)
    why = "there is no source tree around %s" % HERE
    if os.path.exists(os.path.join(TREE, "Makefile")) and os.path.isdir(os.path.join(TREE, "src")):
        why = _make()
        if why is None:
            path = os.path.join(TREE, "build", "libpatrickstar.so")
            return _library_at(path, path)
    installed = ctypes.util.find_library("patrickstar")
    if installed:
        version = _version_of(installed)
        _say("%s; the library that is installed will be used: %s, version %s" % (why, installed, version))
        return Library([], version)
    raise SystemExit(
        "patrickstar: no libpatrickstar.so: %s, and none is installed.\n"
        "Any one of these will do:\n"
        "  in the source tree: make deps && make, then pip install ./python   (Debian; elsewhere gcc, make, and the\n"
        "      headers of jansson, pcre2, liburing, utf8proc, xxhash, zlib and zstd)\n"
        "  make install, as root\n"
        "  PATRICKSTAR_LIBRARY=/path/to/libpatrickstar.so pip install ./python" % why)


def _make() -> Optional[str]:
    """Bring the tree's build up to date: None, or why that cannot be."""
    if shutil.which("make") is None:
        return "there is no make to build the source tree %s with" % TREE
    command = ["make", "-C", TREE, "DEPS=0", "DEBUG=0", "SAN=", "WERROR=", "MINIMAL="]
    _say("building the library: " + " ".join(command))
    # Not as a part of a make that may run this: its flags are not ours.
    foreign = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    if done.returncode == 0:
        return None
    return "`%s` failed with status %d:\n%s\n" % (" ".join(command), done.returncode,
                                                  "\n".join("    " + line for line in done.stdout.splitlines()[-15:]))


def _library_at(path: str, name: str) -> Library:
    if not os.path.exists(path):
        raise SystemExit("patrickstar: %s: there is no such file" % name)
    path = os.path.realpath(path)
    version = _version_of(path)
    folder = os.path.dirname(path)
    near = [folder, os.path.join(folder, "patrickstar"), os.path.join(folder, "..", "bin")]
    files = [path]
    for pattern in ("libpatrickstar_*.so", "pstar"):
        found = [file for place in near for file in sorted(glob.glob(os.path.join(place, pattern)))
                 if os.path.basename(file) != "libpatrickstar_data.so"]  # no plug-in: tokenizers, which pstar has
        names = [os.path.basename(file) for file in found]
        files += [file for i, file in enumerate(found) if names[i] not in names[:i]]
    if os.path.basename(files[-1]) != "pstar":
        raise SystemExit("patrickstar: there is no program pstar beside %s, which `patrickstar.merge` and "
                         "`patrickstar.visualize` need: build it too (make), or install (make install)" % path)
    return Library(files, version)


def _version_of(library: str) -> str:
    try:
        handle = ctypes.CDLL(library)
    except OSError as error:
        raise SystemExit("patrickstar: %s cannot be loaded: %s. What is missing is a library of the system: "
                         "`make deps` installs them on Debian" % (library, error))
    handle.ps_version.restype = ctypes.c_char_p
    version = handle.ps_version(None, None, None).decode()
    wanted = _version_of_header()
    if wanted is not None and version != wanted:
        raise SystemExit("patrickstar: %s is version %s, and this source tree is %s: build the tree's own (make), or "
                         "take the sources of %s" % (library, version, wanted, version))
    return version


def _version_of_header() -> Optional[str]:
    path = os.path.join(TREE, "include", "patrickstar.h")
    if not os.path.exists(path):
        return None
    with open(path) as header:
        text = header.read()
    parts = ("MAJOR", "MINOR", "PATCH")
    return ".".join(re.search(r"^#define PS_VERSION_%s (\d+)" % part, text, re.M)[1] for part in parts)


def _say(text: str) -> None:
    print("patrickstar: " + text, file=sys.stderr, flush=True)


# ---- the wheel ------------------------------------------------------------------------------------------------------

def _modules() -> Dict[str, str]:
    """Name in the wheel -> file."""
    files = {}
    for folder, _, names in os.walk(os.path.join(HERE, "patrickstar")):
        for name in names:
            if name.endswith((".py", ".pyi", ".typed")):
                path = os.path.join(folder, name)
                files[os.path.relpath(path, HERE)] = path
    return files


def _stripped(path: str) -> bytes:
    """A file of machine code without what only debuggers read: half of it."""
    if shutil.which("strip") is not None:
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "stripped")
            if subprocess.run(["strip", "--strip-debug", "-o", copy, path], capture_output=True).returncode == 0:
                path = copy
            with open(path, "rb") as file:
                return file.read()
    with open(path, "rb") as file:
        return file.read()


def _write_wheel(folder: str, library: Library, members: List[Tuple[str, bytes, int]], is_pure: bool) -> str:
    platform = "any" if is_pure else re.sub(r"[-.]", "_", sysconfig.get_platform())
    tag = "py3-none-" + platform
    info = "patrickstar-%s.dist-info/" % library.version
    members = members + [
        (info + "METADATA", METADATA.format(version=library.version).encode(), 0o644),
        (info + "WHEEL", ("Wheel-Version: 1.0\nGenerator: patrickstar\nRoot-Is-Purelib: %s\nTag: %s\n"
                          % ("true" if is_pure else "false", tag)).encode(), 0o644),
        (info + "entry_points.txt", ENTRY_POINTS.encode(), 0o644)]
    record = io.StringIO()
    for name, data, _ in members:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.write("%s,sha256=%s,%d\n" % (name, digest, len(data)))
    record.write(info + "RECORD,,\n")
    members.append((info + "RECORD", record.getvalue().encode(), 0o644))

    name = "patrickstar-%s-%s.whl" % (library.version, tag)
    os.makedirs(folder, exist_ok=True)
    part = os.path.join(folder, name + ".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data, mode in members:
            entry = zipfile.ZipInfo(path)  # of 1980: the same content is the same wheel
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    os.replace(part, os.path.join(folder, name))
    return name


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# ---- what pip calls (PEP 517, PEP 660) ------------------------------------------------------------------------------

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    library = find_library()
    members = [(name, _read(path), 0o644) for name, path in sorted(_modules().items())]
    for file in library.files:
        members.append(("patrickstar/lib/" + os.path.basename(file), _stripped(file), 0o755))
    return _write_wheel(wheel_directory, library, members, is_pure=not library.files)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    """The modules stay where they are, and load the library of the tree's build/."""
    library = find_library()
    return _write_wheel(wheel_directory, library, [("patrickstar.pth", (HERE + "\n").encode(), 0o644)], is_pure=True)


def build_sdist(sdist_directory, config_settings=None) -> str:
    raise SystemExit("patrickstar: the source distribution is the whole tree (git archive)")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python3 python/build_wheel.py FOLDER")
    print(os.path.join(sys.argv[1], build_wheel(sys.argv[1])))
