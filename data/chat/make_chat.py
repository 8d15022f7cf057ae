#!/usr/bin/env python3
"""Writes train.jsonl and validation.jsonl: conversations about sums of two digits, in words and figures.

usage: python3 data/chat/make_chat.py        (writes beside itself; the same bytes each time)

Each of the 100 sums is in one file: 80 to train on, 20 to validate on.
"""
import json
import os
import random

WORDS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
         "eighteen").split()


def conversation(r, a, b):
    first, second, total = WORDS[a], WORDS[b], WORDS[a + b]
    messages = [{"role": "user", "content": "What is %s plus %s?" % (first, second)},
                {"role": "assistant", "content": "%s plus %s is %s." % (first.capitalize(), second, total)}]
    if r.random() < 0.25:
        messages.insert(0, {"role": "system", "content": "You answer in whole sentences."})
    if r.random() < 0.25:
        messages += [{"role": "user", "content": "In figures?"},
                     {"role": "assistant", "content": "%d + %d = %d" % (a, b, a + b)}]
    return {"messages": messages}


def main():
    r = random.Random(1202)
    sums = [(a, b) for a in range(10) for b in range(10)]
    r.shuffle(sums)
    lines = [json.dumps(conversation(r, a, b)) + "\n" for a, b in sums]
    folder = os.path.dirname(os.path.abspath(__file__))
    for name, part in (("train.jsonl", lines[:80]), ("validation.jsonl", lines[80:])):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.writelines(part)


main()
