#!/usr/bin/env python3
"""Loads two Hugging Face model folders with the class that their config.json names, and compares what they compute.

usage: python3 check_roundtrip.py FOLDER_A FOLDER_B      exit status 0: equal, bit for bit; 1: not

Works with transformers 4.4x on PyTorch 1.13 as well as with recent versions.
"""
import json
import os
import sys

import torch
import transformers

B, T = 2, 12


def output_of(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        name = json.load(f)["architectures"][0]
    model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        problems = [k for k in info[what] if "position_ids" not in str(k) and "pooler" not in str(k)]
        if problems:
            sys.exit(f"{folder}: {what}: {', '.join(map(str, problems))}")
    model = model.float().eval()
    tokens = torch.randint(3, model.config.vocab_size, (B, T), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(tokens)
    mask[1, T - 4:] = 0
    tokens[1, T - 4:] = model.config.pad_token_id or 0
    with torch.no_grad():
        return name, model(input_ids=tokens, attention_mask=mask)[0]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    (name_a, a), (name_b, b) = (output_of(folder) for folder in sys.argv[1:])
    if name_a != name_b or a.shape != b.shape:
        sys.exit(f"{name_a} {tuple(a.shape)}, but {name_b} {tuple(b.shape)}")
    if not torch.equal(a, b):
        sys.exit(f"{name_a}: outputs differ by up to {float((a - b).abs().max()):.3g}")
    print(f"{name_a}: equal outputs {tuple(a.shape)}")


if __name__ == "__main__":
    main()
