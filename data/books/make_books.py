#!/usr/bin/env python3
"""Writes train.jsonl and validation.jsonl: short pieces of two texts of the same years, each labelled with its text.

usage: python3 data/books/make_books.py        (writes beside itself; the same bytes each time)

A piece is one or more whole sentences of one paragraph, 30 to 60 words. Only words, spaces and . , ; : ? ! ' - are in it, so
that no quotation marks, dashes, figures or headings tell the texts apart. Validation pieces come from another part than
the training pieces: the last fifth of the novel, and the last of the five addresses.
"""
import json
import os
import random
import re

HERE = os.path.dirname(os.path.abspath(__file__))
SEED = 1851
N_TRAIN, N_VALIDATION = 400, 90  # of each text
WORDS_MIN, WORDS_MAX = 30, 60
ABBREVIATION = re.compile(r"\b(Mr|Mrs|Dr|St|Messrs|Gen|Col|Capt|Hon|No|Rev|[A-Z])\.$")


def read(name):
    with open(os.path.join(HERE, "..", "text", name), encoding="utf-8") as f:
        return f.read()


def sentences(paragraph):
    begin = 0
    for end in re.finditer(r"[.?!](?= [A-Z])", paragraph):
        if not ABBREVIATION.search(paragraph[:end.end()]):
            yield paragraph[begin:end.end()].strip()
            begin = end.end()
    yield paragraph[begin:].strip()


def is_plain(sentence):
    return (re.fullmatch(r"[A-Z][A-Za-z ,;:?!.'-]*[.?!]", sentence) is not None and "--" not in sentence
            and re.search(r"[A-Z]{3}|CHAPTER", sentence) is None)


def pieces(text):
    """Neighbouring plain sentences until there are WORDS_MIN words; what then has too many is left out."""
    for paragraph in re.split(r"\n\s*\n", text):
        paragraph = " ".join(paragraph.replace("’", "'").split())
        taken = []
        for sentence in sentences(paragraph):
            taken = taken + [sentence] if is_plain(sentence) else []
            n_words = len(" ".join(taken).split())
            if WORDS_MIN <= n_words <= WORDS_MAX:
                yield " ".join(taken)
            if n_words >= WORDS_MIN:
                taken = []


def spread(items, n):
    """n of them, at equal distances."""
    assert len(items) >= n, f"{len(items)} pieces, {n} needed"
    return [items[i * len(items) // n] for i in range(n)]


def write(name, labelled):
    random.Random(SEED).shuffle(labelled)
    path = os.path.join(HERE, name)
    with open(path, "w", encoding="utf-8") as f:
        for text, label in labelled:
            f.write(json.dumps({"text": text, "label": label}) + "\n")
    print(f"{name}: {len(labelled)} pieces, {os.path.getsize(path)} bytes")


def main():
    novel = read("moby-dick.txt")
    cut = novel.index("\nCHAPTER ", len(novel) * 4 // 5)
    addresses = read("state-of-the-union-1849-1853.txt").rstrip("\n").split("\n\n")
    parts = {"moby-dick": (novel[:cut], novel[cut:]),
             "state-of-the-union": ("\n\n".join(addresses[:-1]), addresses[-1])}
    train, validation = [], []
    for label, (first, last) in parts.items():
        train += [(piece, label) for piece in spread(list(pieces(first)), N_TRAIN)]
        validation += [(piece, label) for piece in spread(list(pieces(last)), N_VALIDATION)]
    write("train.jsonl", train)
    write("validation.jsonl", validation)


if __name__ == "__main__":
    main()
