"""Makes the wheel of the package `patrickstar`: its modules, and in patrickstar/lib the library, plug-ins and pstar.

    pip install ./python          calls this (PEP 517): a wheel for this machine
    make python                   a wheel for any x86-64 Linux with glibc 2.28 or later, and the source distribution
    python3 python/build_wheel.py [--licenses FOLDER] DEST      writes a wheel into DEST
    python3 python/build_wheel.py --sdist DEST                  writes the source distribution into DEST

Which library goes into a wheel, the first of these that there is:

1. PATRICKSTAR_LIBRARY=FILE; plug-ins and pstar from beside it, or from where `make install` puts them beside it
2. that of the source tree around this folder, brought up to date by `make` (a minute or so the first time)
3. one that is installed in the system. It is not copied: the wheel has modules only, and loads that one

The wheel is tagged for this machine's kind of processor and system (linux_x86_64). Libraries that libpatrickstar.so
(jansson, uring, xxhash) and pstar (pcre2, utf8proc, zlib and zstd too) need are the system's, unless they are linked
statically, as `make python` does: FOLDER then has their licences, which go into the wheel, and auditwheel gives it the tag
manylinux.

The version is that of include/patrickstar.h, by which the library says its own. The source distribution has what builds
the library, the program and the package, without tests and data, and a pyproject.toml at its top.
"""
import argparse
import base64
import ctypes
import ctypes.util
import glob
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from typing import Dict, List, NamedTuple, Optional, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(HERE)

METADATA = """\
Metadata-Version: 2.4
Name: patrickstar
Version: {version}
Summary: Trains PyTorch modules whose model data does not fit the device, in chunks on device, host and disk
License-Expression: {licence}
{license_files}Classifier: Development Status :: 4 - Beta
Classifier: Intended Audience :: Science/Research
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Requires-Python: >=3.9
Requires-Dist: torch
Description-Content-Type: text/plain

PatrickStar trains PyTorch modules, such as those of Hugging Face's transformers, whose parameters, gradients and
optimizer states do not fit the memory that you give them. They lie in chunks on device, host and disk, within budgets
in bytes, and results do not depend on the budgets, to the bit. `python -m patrickstar.info` shows what it finds
on a machine, and `python -m patrickstar --help-config` lists the options.
"""
# Of what every wheel has: the library is BSD-3-Clause, uPlot, which is in the reports that it writes, MIT.
LICENCES = {"BSD-3-Clause", "MIT"}
OWN_LICENSES = {"LICENSE": "LICENSE", "uPlot": "third_party/uplot/LICENSE"}

# What the source distribution has, of the tree.
SOURCES = ("CHANGELOG.md", "LICENSE", "Makefile", "README.md", "cli", "doc", "examples", "include",
           "python/build_wheel.py", "python/patrickstar", "python/pyproject.toml", "src", "third_party", "tool")
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
    packages = _missing_packages()
    raise SystemExit(
        "patrickstar: no libpatrickstar.so: %s, and none is installed.\n%s"
        "Any one of these will do:\n"
        "  in the source tree: make deps && make, then pip install ./python   (Debian; elsewhere gcc, make, and the\n"
        "      headers of jansson, pcre2, liburing, utf8proc, xxhash, zlib and zstd)\n"
        "  make install, as root\n"
        "  PATRICKSTAR_LIBRARY=/path/to/libpatrickstar.so pip install ./python"
        % (why, "Debian packages that are missing: apt-get install --no-install-recommends %s\n" % " ".join(packages)
           if packages else ""))


def _missing_packages() -> List[str]:
    """Of the Debian packages that building needs, which the Makefile names, those that this system has not."""
    makefile = os.path.join(TREE, "Makefile")
    if shutil.which("dpkg-query") is None or not os.path.exists(makefile):
        return []
    with open(makefile, encoding="utf-8") as file:
        named = re.search(r"^DEPS_BUILD :=(.*)$", file.read(), re.M)
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status}"]
    return [name for name in ["make"] + (named[1].split() if named else [])
            if subprocess.run(query + [name], capture_output=True, text=True).stdout != "installed"]


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


def _licenses(folder: Optional[str]) -> Tuple[str, Dict[str, bytes]]:
    """An SPDX expression, and the texts by name; those in the folder belong to libraries that are linked statically."""
    files = {name: os.path.join(TREE, *path.split("/")) for name, path in OWN_LICENSES.items()}
    licences = set(LICENCES)
    if folder is not None:
        try:
            files.update((name, os.path.join(folder, name)) for name in sorted(os.listdir(folder)))
        except OSError as error:
            raise SystemExit("patrickstar: --licenses %s: %s" % (folder, error.strerror))
        with open(os.path.join(TREE, "third_party", "libraries.txt"), encoding="utf-8") as table:
            rows = [line.split() for line in table if line.strip() and not line.startswith("#")]
        for row in rows:
            licences.add(row[2])
            if row[0] not in files:
                raise SystemExit("patrickstar: --licenses %s: there is no licence of %s" % (folder, row[0]))
    return (" AND ".join(sorted(licences)),
            {name: _read(path) for name, path in files.items() if folder is not None or os.path.exists(path)})


def _metadata(version: str, licenses: Tuple[str, Dict[str, bytes]]) -> bytes:
    return METADATA.format(version=version, licence=licenses[0], license_files="".join(
        "License-File: %s\n" % name for name in licenses[1])).encode()


def _write_wheel(folder: str, library: Library, members: List[Tuple[str, bytes, int]], is_pure: bool,
                 license_folder: Optional[str] = None) -> str:
    platform = "any" if is_pure else re.sub(r"[-.]", "_", sysconfig.get_platform())
    tag = "py3-none-" + platform
    info = "patrickstar-%s.dist-info/" % library.version
    licenses = _licenses(license_folder)
    members = members + [(info + "licenses/" + name, text, 0o644) for name, text in licenses[1].items()] + [
        (info + "METADATA", _metadata(library.version, licenses), 0o644),
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
    return _build_wheel(wheel_directory, None)


def _build_wheel(folder: str, license_folder: Optional[str]) -> str:
    library = find_library()
    members = [(name, _read(path), 0o644) for name, path in sorted(_modules().items())]
    for file in library.files:
        members.append(("patrickstar/lib/" + os.path.basename(file), _stripped(file), 0o755))
    return _write_wheel(folder, library, members, is_pure=not library.files, license_folder=license_folder)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    """The modules stay where they are, and load the library of the tree's build/."""
    library = find_library()
    return _write_wheel(wheel_directory, library, [("patrickstar.pth", (HERE + "\n").encode(), 0o644)], is_pure=True)


def build_sdist(sdist_directory, config_settings=None) -> str:
    version = _version_of_header()
    missing = [source for source in SOURCES if not os.path.exists(os.path.join(TREE, source))]
    if version is None or missing:
        raise SystemExit("patrickstar: a source distribution needs the source tree around %s; there is no %s"
                         % (HERE, ", ".join(missing or ["include/patrickstar.h"])))
    name = "patrickstar-%s" % version
    files = {path: _read(os.path.join(TREE, path)) for source in SOURCES for path in _source_files(source)}
    here = os.path.basename(HERE)
    files["pyproject.toml"] = files[here + "/pyproject.toml"].replace(b'["."]', b'["%s"]' % here.encode())
    files["PKG-INFO"] = _metadata(version, (_licenses(None)[0], {path: b"" for path in OWN_LICENSES.values()}))
    os.makedirs(sdist_directory, exist_ok=True)
    path = os.path.join(sdist_directory, name + ".tar.gz")
    # Of the epoch, by no one: the same content is the same archive.
    with open(path + ".part", "wb") as raw, gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as packed:
        with tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as tar:
            for member, data in sorted(files.items()):
                entry = tarfile.TarInfo(name + "/" + member)
                entry.size, entry.mode = len(data), 0o644
                tar.addfile(entry, io.BytesIO(data))
    os.replace(path + ".part", path)
    return os.path.basename(path)


def _source_files(source: str) -> List[str]:
    """The files of a path in SOURCES, relative to the tree."""
    if os.path.exists(os.path.join(TREE, ".git")) and shutil.which("git"):  # without what else lies in the tree
        listed = subprocess.run(["git", "-C", TREE, "ls-files", "-z", source], stdout=subprocess.PIPE)
        if listed.returncode == 0:
            names = listed.stdout.decode().split("\0")[:-1]
            return [name for name in names if os.path.isfile(os.path.join(TREE, name))]
    if os.path.isfile(os.path.join(TREE, source)):
        return [source]
    found = []
    for folder, folders, names in os.walk(os.path.join(TREE, source)):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [os.path.relpath(os.path.join(folder, name), TREE) for name in names
                  if not name.endswith((".pyc", ".o", ".swp"))]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="build_wheel.py", description="Writes a wheel of the package patrickstar.")
    parser.add_argument("--sdist", action="store_true", help="the source distribution instead")
    parser.add_argument("--licenses", metavar="FOLDER", help="licences of the libraries that are linked statically")
    parser.add_argument("dest", metavar="DEST")
    a = parser.parse_args()
    if a.sdist and a.licenses is not None:
        parser.error("--licenses is not for --sdist")
    print(os.path.join(a.dest, build_sdist(a.dest) if a.sdist else _build_wheel(a.dest, a.licenses)))


if __name__ == "__main__":
    main()
