#!/usr/bin/env python3
"""Check that identifiers, file names and texts have no word that tool/words.txt replaces by a standard term.

usage: python3 tool/check_words.py [WORDS]

Prints FILE:LINE: WORD, the name or line it stands in, and what to use instead; status 1 when there is any."""
import re
import subprocess
import sys

FOLDERS = ("src", "cli", "include", "test", "bench", "examples", "python", "tool", "doc", "README.md", "CONTRIBUTING.md")
NOT_READ = re.compile(r"tool/words\.txt|bench/results/|bench/notes\.md|test/(abi|golden|fuzz/corpus)/|.*\.(json|bin|png|svg)$")
CODE = re.compile(r".*\.(c|h|cu|cuh|hpp|cpp|def|py|sh)$")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
C_CODE = re.compile(r".*\.(c|h|cu|cuh|hpp|cpp)$")
NO_CODE = re.compile(r"/\*.*?\*/|//[^\n]*|^[ \t]*#[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S | re.M)


def read_words(path):
    words = {"name": [], "phrase": [], "except": set()}
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.rstrip("\n").split("\t")
            if not line.strip() or line.startswith("#"):
                continue
            if fields[0] == "except" and len(fields) == 2:
                words["except"].add(fields[1])
            elif fields[0] in ("name", "phrase") and len(fields) == 3:
                words[fields[0]].append((fields[1], fields[2]))
            else:
                sys.exit("%s:%d: expected name, phrase or except with their fields, separated by tabs" % (path, number))
    return words


def main():
    words = read_words(sys.argv[1] if len(sys.argv) > 1 else "tool/words.txt")
    instead = dict(words["name"])
    part = re.compile("(?<![a-z0-9])(%s)(?![a-z0-9])" % "|".join(sorted(instead, key=len, reverse=True)))
    phrase = None
    if words["phrase"]:
        phrase = re.compile(r"(?<!\w)(%s)(?!\w)" % "|".join(re.escape(text) for text, _ in words["phrase"]), re.I)
    instead_of_phrase = {text.lower(): use for text, use in words["phrase"]}
    n = 0

    def report(where, word, text, use):
        nonlocal n
        n += 1
        print("%s: %s in '%s': use %s" % (where, word, text.strip()[:120], use))

    for path in subprocess.run(["git", "ls-files", *FOLDERS], capture_output=True, text=True, check=True).stdout.split("\n"):
        if not path or NOT_READ.match(path):
            continue
        found = part.search(path.rsplit("/", 1)[-1].lower())
        if found and path not in words["except"]:
            report(path, found.group(1), path, instead[found.group(1)])
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if C_CODE.match(path):  # a name of one word is told from prose only where comments and texts are left out
            code = NO_CODE.sub(lambda match: "\n" * match[0].count("\n"), text)
            for number, line in enumerate(code.split("\n"), 1):
                for name in NAME.findall(line):
                    if "_" not in name and name.lower() in instead and name not in words["except"]:
                        report("%s:%d" % (path, number), name, name, instead[name.lower()])
        for number, line in enumerate(text.split("\n"), 1):
            where = "%s:%d" % (path, number)
            if CODE.match(path) or "`" in line:
                for name in NAME.findall(line):
                    found = part.search(name.lower()) if "_" in name else None
                    if found and name not in words["except"]:
                        report(where, found.group(1), name, instead[found.group(1)])
            for found in phrase.finditer(line) if phrase else ():
                if line.strip() not in words["except"]:
                    report(where, found.group(1), line, instead_of_phrase[found.group(1).lower()])
    return n > 0


if __name__ == "__main__":
    sys.exit(main())
