#!/usr/bin/env python3
"""Runs the steps of the Containerfile in root file systems that debootstrap makes, where there is no container engine.

usage: python3 tool/container_root.py FOLDER [CONTAINERFILE]

As root, with debootstrap and the network. Each stage, FROM docker.io/library/debian:SUITE-slim, becomes FOLDER/NAME,
a copy of FOLDER/SUITE, which debootstrap makes where it is missing. DEBIAN_MIRROR names the mirror. The last stage's
CMD is run at the end. Only what the Containerfile uses is understood: FROM, RUN, COPY [--from=STAGE], WORKDIR, USER,
CMD.
"""
import json
import os
import re
import shutil
import subprocess
import sys

TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def steps_of(path):
    """[(instruction, arguments)], with continued lines joined and comments left out."""
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"^\s*#.*\n", "", file.read(), flags=re.M)
    lines = re.sub(r"\\\n", " ", text).split("\n")
    return [tuple(line.split(None, 1)) for line in lines if line.strip()]


def debian_root(*words):
    status = subprocess.run(["sh", os.path.join(TREE, "tool", "debian_root.sh"), *words]).returncode
    if status != 0:
        sys.exit("container_root: status %d of: %s" % (status, words[-1]))


def start(folder, image, name):
    """The root file system of a stage."""
    found = re.match(r"docker\.io/library/debian:([a-z]+)-slim$", image)
    if found is None:
        sys.exit("container_root: FROM %s: expected docker.io/library/debian:SUITE-slim" % image)
    base = os.path.join(folder, found[1])
    debian_root("make", base, found[1])
    root = os.path.join(folder, name)
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(["cp", "-a", base, root], check=True)
    return root


def run(root, user, where, command):
    debian_root("run", root, user, "sh", "-c", 'cd "$0" && exec sh -c "$1"', where, command)


def copy(sources, source_root, target):
    os.makedirs(target, exist_ok=True)
    for source in sources:
        path = os.path.normpath(os.path.join(source_root, source.lstrip("/")))
        if os.path.abspath(path) == os.path.abspath(TREE):  # what git knows of, which is what .dockerignore leaves
            names = subprocess.run(["git", "-C", TREE, "ls-files", "-z"], check=True, stdout=subprocess.PIPE).stdout
            subprocess.run(["tar", "-C", TREE, "--null", "-T", "-", "-cf", target + ".tar"], input=names, check=True)
            subprocess.run(["tar", "-C", target, "-xf", target + ".tar"], check=True)
            os.remove(target + ".tar")
        else:
            shutil.copytree(path, target, dirs_exist_ok=True)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python3 tool/container_root.py FOLDER [CONTAINERFILE]")
    folder = os.path.abspath(sys.argv[1])
    os.makedirs(folder, exist_ok=True)
    roots, root, user, where = {}, None, "root", "/"
    for instruction, arguments in steps_of(sys.argv[2] if len(sys.argv) == 3 else os.path.join(TREE, "Containerfile")):
        print("== %s %s" % (instruction, arguments), flush=True)
        words = arguments.split()
        if instruction == "FROM":
            name = words[2] if len(words) == 3 else "stage%d" % len(roots)
            root, user, where = start(folder, words[0], name), "root", "/"
            roots[name] = root
        elif instruction == "RUN":
            run(root, user, where, arguments)
        elif instruction == "COPY":
            stage = words.pop(0)[len("--from="):] if words[0].startswith("--from=") else None
            copy(words[:-1], roots[stage] if stage else TREE, root + words[-1])
        elif instruction == "WORKDIR":
            where = arguments
            os.makedirs(root + where, exist_ok=True)
        elif instruction == "USER":
            user = arguments
        elif instruction == "CMD":
            run(root, user, where, " ".join(json.loads(arguments)))
        else:
            sys.exit("container_root: %s is not understood" % instruction)


if __name__ == "__main__":
    main()
