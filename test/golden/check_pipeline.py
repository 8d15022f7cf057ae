#!/usr/bin/env python3
"""Does transformers' pipeline give a classifier's texts the labels that the data have?

usage: python3 check_pipeline.py FOLDER DATA.jsonl

All texts go through in batches, with the folder's own tokenizer and padding. Prints the share that got their label;
exit status 0 when that is at least 95 %.
"""
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"  # a name that is no folder is an error, not a download

import transformers


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    with open(sys.argv[2], encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    classify = transformers.pipeline("text-classification", sys.argv[1], device="cpu")
    given = [x["label"] for x in classify([x["text"] for x in lines], batch_size=8)]
    n_right = sum(a == x["label"] for a, x in zip(given, lines))
    print(f"{sys.argv[1]}: {n_right} of {len(lines)} right; labels {classify.model.config.id2label}, "
          f"padding {classify.model.config.pad_token_id}")
    sys.exit(0 if n_right >= 0.95 * len(lines) else 1)


if __name__ == "__main__":
    main()
