#!/usr/bin/env python3
"""Are the tokenizers of two Hugging Face folders the same to transformers: ids, special tokens, chat template?

usage: python3 check_tokenizer.py FOLDER_A FOLDER_B

Exit status 0 when they are. Needs transformers, of version 4.47 or later.
"""
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"  # a name that is no folder is an error, not a download

import transformers

TEXT = "the film was quite good, <|endoftext|> [MASK] naïve\n  12345"
CHAT = [{"role": "user", "content": "was it good?"}, {"role": "assistant", "content": "very"}]


def facts(folder):
    t = transformers.AutoTokenizer.from_pretrained(folder)
    out = {"ids": t(TEXT)["input_ids"], "vocabulary": len(t), "special": t.special_tokens_map, "length": t.model_max_length,
           "template": t.chat_template}
    if t.chat_template:
        out["chat"] = t.apply_chat_template(CHAT, tokenize=False)
    return out


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    a, b = facts(sys.argv[1]), facts(sys.argv[2])
    different = [k for k in sorted(a.keys() | b.keys()) if a.get(k) != b.get(k)]
    for k in different:
        print(f"{k}: {a.get(k)} and {b.get(k)}")
    print(f"{sys.argv[1]}, {sys.argv[2]}: {len(a) - len(different)} of {len(a)} facts the same")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
