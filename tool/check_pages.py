"""Check README.md and the pages of doc/: links and anchors, columns, the index, and that each fenced block is run or listed.

A block of commands is run by test/cli/test_doc_commands.sh where each of its lines is a command of pstar alone. Every other
block has a line in test/cli/doc_blocks.txt: which test runs it, or why none does. JSON is parsed.

usage: python3 tool/check_pages.py
"""
import glob
import json
import os
import re
import subprocess
import sys

LIST = "test/cli/doc_blocks.txt"
README_LINES, COLUMNS = 150, 120
GENERATED = ("doc/config.md", "doc/hardware.md")  # their own tests hold them; columns follow from their tables
problems = []


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def blocks(page):
    """(line number, language, lines) of each fenced block."""
    found, language = [], None
    for number, line in enumerate(read(page).split("\n"), 1):
        fence = re.match(r" *```(.*)$", line)
        if fence is None:
            if language is not None:
                found[-1][2].append(line)
        elif language is None:
            language = fence.group(1)
            found.append((number, language, []))
        else:
            language = None
    return found


def are_commands(lines):
    """Each line is a command of pstar, perhaps with a comment."""
    lines = [line for line in lines if line.strip()]
    return bool(lines) and all(re.match(r"pstar [a-z]", line) and not line.endswith("\\") for line in lines)


def is_json(lines):
    """One value, the members of an object, or a value a line."""
    text = "\n".join(lines)
    for form in (text, "{" + text.rstrip().rstrip(",") + "}"):
        try:
            json.loads(form)
            return True
        except ValueError:
            pass
    try:
        return all(json.loads(line) is not None for line in lines if line.strip())
    except ValueError:
        return False


def check_blocks(pages):
    listed = {}
    for number, line in enumerate(read(LIST).split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split(" | ")]
        if len(parts) != 3:
            problems.append("%s:%d: expected PAGE | BEGINNING | run: TEST or not run: WHY" % (LIST, number))
            continue
        page, begins, how = parts
        listed[page, begins] = number
        test = re.match(r"run: (\S+)", how)
        if test and not os.path.exists(test.group(1)):
            problems.append("%s:%d: there is no %s" % (LIST, number, test.group(1)))
        if not test and not how.startswith("not run: "):
            problems.append("%s:%d: neither 'run: TEST' nor 'not run: WHY'" % (LIST, number))
    used, n_run = set(), 0
    for page in pages:
        for number, language, lines in blocks(page):
            if language == "json" and not is_json(lines):
                problems.append("%s:%d: no JSON" % (page, number))
            first = next((line.strip() for line in lines if line.strip()), "")
            match = [key for key in listed if key[0] == page and first.startswith(key[1])]
            used.update(match)
            is_run = language == "sh" and are_commands(lines)
            n_run += 1 if is_run else 0
            if not match and not is_run:
                problems.append("%s:%d: no test runs the block '%s', and %s does not say why" % (page, number, first, LIST))
    for key in sorted(set(listed) - used):
        problems.append("%s:%d: %s has no block that begins so" % (LIST, listed[key], key[0]))
    return n_run, len(used)


def anchors(path):
    """GitHub's anchors of the headings of a page."""
    found, inside = {}, False
    for line in read(path).split("\n"):
        if re.match(r" *```", line):
            inside = not inside
        heading = None if inside else re.match(r"#+ +(.*)$", line)
        if heading:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).replace("`", "").lower()
            slug = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
            n = found.get(slug, 0)
            found[slug] = n + 1
            if n:
                found["%s-%d" % (slug, n)] = 1
    return found


def check_links(page):
    text = re.sub(r"^ *```.*?^ *```$", "", read(page), flags=re.M | re.S)
    text = re.sub(r"``?[^`\n]*``?(?!\])", "", text)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(path):
            problems.append("%s: link to %s, which is not there" % (page, target))
        elif anchor and path.endswith(".md") and anchor not in anchors(path):
            problems.append("%s: link to %s: no such heading" % (page, target))


def check_columns(page):
    inside = False
    for number, line in enumerate(read(page).split("\n"), 1):
        if re.match(r" *```|<!-- bench_op|<!-- end", line):  # what tool/gpu_tables.sh writes is as wide as it is
            inside = not inside
        elif not inside and len(line) > COLUMNS and not line.startswith("|"):
            problems.append("%s:%d: longer than %d columns" % (page, number, COLUMNS))


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    pages = ["README.md"] + sorted(glob.glob("doc/*.md"))
    n_run, n_listed = check_blocks(pages)
    tracked = subprocess.run(["git", "ls-files", "*.md"], stdout=subprocess.PIPE, universal_newlines=True).stdout.split()
    for page in sorted(set(tracked or pages) | set(pages)):
        if os.path.exists(page) and not page.startswith(("third_party/", "tool/")):
            check_links(page)
    for page in pages + ["CHANGELOG.md", "CONTRIBUTING.md"]:
        if page not in GENERATED:
            check_columns(page)
    if len(read("README.md").splitlines()) > README_LINES:
        problems.append("README.md has more than %d lines" % README_LINES)
    for page in pages[1:]:
        if page != "doc/README.md" and "(%s)" % os.path.basename(page) not in read("doc/README.md"):
            problems.append("doc/README.md does not list %s" % page)
    print("\n".join(problems) if problems else "%d blocks of commands are run, %d listed" % (n_run, n_listed))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
