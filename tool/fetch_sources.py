#!/usr/bin/env python3
"""Fetches the sources of third_party/libraries.txt from a Debian mirror, unpacks and patches them.

usage: python3 tool/fetch_sources.py DEST [TABLE]

DEST gets a folder for each library, called by its name, and DEST/archives what was downloaded, which is not downloaded
again while its SHA-256 is right. DEBIAN_MIRROR names the mirror, https://deb.debian.org by default. What a mirror no
longer has comes from https://snapshot.debian.org. http_proxy, https_proxy and SSL_CERT_FILE are respected.

Exit status: 0 all there, 1 a file that is not what the table says or a patch that does not apply, 2 usage or a bad
table, 3 no server has a file or can be reached. Needs Python 3.9 or later, and `patch`.
"""
import gzip
import hashlib
import http.client
import os
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.request
from typing import Dict, List, NamedTuple, NoReturn

MIRROR = "https://deb.debian.org"
SNAPSHOT = "https://snapshot.debian.org/archive/%s/%s/%s"
SNAPSHOT_TIME = "20261115T000000Z"
TIMEOUT_S = 60
TRIALS = 3


class Source(NamedTuple):
    name: str
    version: str
    licence: str
    file: str
    sha256: str

    @property
    def archive(self) -> str:
        return os.path.basename(self.file).replace("%2b", "+")

    @property
    def is_patch(self) -> bool:
        return self.archive.endswith(".diff.gz")


def stop(status: int, text: str) -> NoReturn:
    print("fetch_sources: " + text, file=sys.stderr)
    sys.exit(status)


def read_table(path: str) -> List[Source]:
    sources: List[Source] = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.split()
            if not fields or line.startswith("#"):
                continue
            if len(fields) != len(Source._fields) or len(fields[-1]) != 64:
                stop(2, "%s:%d: expected NAME VERSION LICENCE FILE SHA-256, found: %s" % (path, number, line.strip()))
            sources.append(Source(*fields))
    return sources


def sha256_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def addresses(source: Source) -> List[str]:
    mirror = os.environ.get("DEBIAN_MIRROR", MIRROR).rstrip("/")
    archive, _, path = source.file.partition("/")
    return [mirror + "/" + source.file, SNAPSHOT % (archive, SNAPSHOT_TIME, path)]


def fetch(source: Source, path: str) -> None:
    """Writes the archive to path, which it is only when its SHA-256 is right."""
    failures = []
    for address in addresses(source):
        for trial in range(TRIALS):
            try:
                with urllib.request.urlopen(address, timeout=TIMEOUT_S) as reply, open(path + ".part", "wb") as file:
                    shutil.copyfileobj(reply, file)
                break
            except (OSError, http.client.HTTPException) as error:
                failures.append("%s: %s" % (address, error))
                if getattr(error, "code", None) in (403, 404):  # it would not be there the next time either
                    break
                time.sleep(trial)
        else:
            continue
        if not os.path.exists(path + ".part"):
            continue
        found = sha256_of(path + ".part")
        if found == source.sha256:
            os.replace(path + ".part", path)
            return
        os.remove(path + ".part")
        failures.append("%s: its SHA-256 is %s, not %s" % (address, found, source.sha256))
    is_wrong = any("SHA-256" in failure for failure in failures)
    stop(1 if is_wrong else 3, "%s %s is not there:\n    %s\nDEBIAN_MIRROR names another mirror; or put the file at %s"
         % (source.name, source.version, "\n    ".join(failures), path))


def unpack(archive: str, folder: str) -> None:
    """The content of the archive's one folder becomes the folder."""
    part = folder + ".part"
    shutil.rmtree(part, ignore_errors=True)
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(part, filter="data")
        else:
            tar.extractall(part)  # SHA-256 has said what it is
    shutil.rmtree(folder, ignore_errors=True)
    inner = os.listdir(part)
    if len(inner) != 1:
        stop(1, "%s has %d folders, expected one" % (archive, len(inner)))
    os.replace(os.path.join(part, inner[0]), folder)
    os.rmdir(part)


def apply_patch(archive: str, folder: str) -> None:
    with gzip.open(archive) as file:
        text = file.read()
    if shutil.which("patch") is None:
        stop(1, "there is no program `patch` to apply %s with (Debian: patch)" % archive)
    done = subprocess.run(["patch", "-p1", "--batch", "--silent", "-d", folder], input=text, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0:
        stop(1, "%s does not apply to %s:\n%s" % (archive, folder, done.stdout.decode(errors="replace")))


def main() -> None:
    if len(sys.argv) not in (2, 3):
        stop(2, "usage: python3 tool/fetch_sources.py DEST [TABLE]")
    dest = sys.argv[1]
    table = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "third_party", "libraries.txt")
    archives = os.path.join(dest, "archives")
    os.makedirs(archives, exist_ok=True)
    by_name: Dict[str, List[Source]] = {}
    for source in read_table(sys.argv[2] if len(sys.argv) == 3 else table):
        by_name.setdefault(source.name, []).append(source)
    for sources in by_name.values():
        for source in sources:
            path = os.path.join(archives, source.archive)
            if not os.path.exists(path) or sha256_of(path) != source.sha256:
                fetch(source, path)
    for name, sources in by_name.items():
        folder = os.path.join(dest, name)
        for source in sources:
            path = os.path.join(archives, source.archive)
            if source.is_patch:
                apply_patch(path, folder)
            else:
                unpack(path, folder)
    print("%s: %s" % (dest, ", ".join("%s %s" % (name, sources[-1].version) for name, sources in by_name.items())))


if __name__ == "__main__":
    main()
