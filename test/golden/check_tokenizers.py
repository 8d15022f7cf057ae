#!/usr/bin/env python3
"""Saves tokenizers as transformers does, and compares the ids and texts that pstar gives with theirs.

usage (from the repository root): python3 test/golden/check_tokenizers.py PSTAR WORK

PSTAR is the program, WORK a folder to write into. Needs tokenizers and transformers, of version 4.47 or later.
"""
import json
import os
import random
import struct
import subprocess
import sys

import tokenizers
import transformers

FOLDER = "test/golden/tokenizers/"
SPELT = ["<s>", " </s> ", "<|endoftext|>", "<|im_end|>", "<|begin_of_text|>", "[MASK]", "[SEP] ", "<unk>", "<0x41>"]


def mixed_text(n):
    """Fragments of many scripts and what reads like special tokens. It begins with a word: so does what goes before the first."""
    r = random.Random(11)
    fragments = [x.decode() for x in open("test/golden/tokenizer_fragments.bin", "rb").read().split(b"\xff")[:-1]]
    return "whale" + "".join(r.choice(SPELT if r.random() < 0.03 else fragments) for _ in range(n))


def fast(data, **special):
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(data)), **special)


def all_tokenizers(work):
    def load(name):
        return json.load(open(FOLDER + name, encoding="utf-8"))

    yield "qwen", fast(load("qwen_like.json"), eos_token="<|endoftext|>")
    yield "llama3", fast(load("llama_like.json"), bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>")
    yield "bert", fast(load("bert_like.json"), pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    gpt2 = transformers.GPT2TokenizerFast.from_pretrained("data/gpt2")
    yield "gpt2", gpt2
    data = load("llama2_like.json")
    llama = fast(data, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    yield "llama2", llama
    for prefix, splits in (("first", False), ("always", True), ("never", False)):
        data["normalizer"] = None
        data["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": prefix, "split": splits}
        yield "metaspace_" + prefix, fast(data, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    yield "llama2_class", transformers.LlamaTokenizerFast.from_pretrained(os.path.join(work, "llama2"))


def read_ids(path):
    """llm.c's token file."""
    raw = open(path, "rb").read()
    _, version, n = struct.unpack("<3i", raw[:12])
    return list(struct.unpack("<%d%s" % (n, "H" if version == 1 else "I"), raw[1024:]))


def pstar(program, *arguments):
    done = subprocess.run([program, "tokenize", *arguments], capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit("pstar tokenize %s: %s" % (" ".join(arguments), done.stderr.decode()))


def first_difference(a, b):
    n = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return "from %d on: %r, expected %r" % (n, a[n:n + 8], b[n:n + 8])


def main():
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    program, work = sys.argv[1:]
    transformers.logging.set_verbosity_error()
    os.makedirs(work, exist_ok=True)
    text = mixed_text(20000)
    text_file, ids_file, back_file = (os.path.join(work, x) for x in ("text", "ids.bin", "back"))
    with open(text_file, "wb") as f:
        f.write(text.encode())
    for name, t in all_tokenizers(work):
        folder = os.path.join(work, name)
        t.save_pretrained(folder)
        pstar(program, "--special", "--vocab", folder, "--output", ids_file, text_file)
        pstar(program, "--decode", "--vocab", folder, "--output", back_file, ids_file)
        ids, expected = read_ids(ids_file), t(text, add_special_tokens=False)["input_ids"]
        if ids != expected:
            sys.exit("%s: ids differ %s" % (name, first_difference(ids, expected)))
        back, expected = open(back_file, "rb").read(), t.decode(ids, clean_up_tokenization_spaces=False).encode()
        if back != expected:
            sys.exit("%s: texts differ %s" % (name, first_difference(back, expected)))
        maximum = json.load(open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8")).get("model_max_length")
        print("%s: %d ids, %d bytes, maximum length %s" % (name, len(ids), len(back), maximum))


if __name__ == "__main__":
    main()
