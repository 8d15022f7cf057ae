#!/usr/bin/env python3
"""Are two Hugging Face model folders the same model to transformers? And two others, and so on?

usage: python3 check_roundtrip.py [--within MAX_DIFFERENCE] DIR_A DIR_B [DIR_A DIR_B]...

Loads both with the class that "architectures" of their config.json names, in float32, and compares what they give for the same
tokens: logits, or hidden states where there is no head. They must have the same bits, or differ by MAX_DIFFERENCE at
most. A warning of transformers about a tensor missing, unexpected or of another shape is a failure. Weights that both have
are compared as well.

Exit status: 0 the same, 1 not, 2 usage. Needs torch and transformers, of version 4.47 (with torch 1.13) or later;
tool/transformers_venv.sh makes an environment with the former.
"""
import argparse
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"  # a name that is no folder is an error, not a download

import torch
import transformers

B, T = 3, 19


class Different(Exception):
    pass


def load(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    name = (config.get("architectures") or ["none given"])[0]
    if not hasattr(transformers, name):
        raise Different(f"{folder}: transformers {transformers.__version__} has no class {name}")
    model, info = getattr(transformers, name).from_pretrained(folder, attn_implementation="eager", torch_dtype=torch.float32,
                                                              output_loading_info=True)
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        if info.get(problem):
            raise Different(f"{folder}: {problem} of {name}: {sorted(info[problem], key=str)}")
    return model.eval()


def make_inputs(config):
    """Rows of all lengths from 1 to T, padded at the end as models are used; token types for BERT."""
    g = torch.Generator().manual_seed(5)
    n_tokens = min(T, config.max_position_embeddings)
    lengths = torch.linspace(1, n_tokens, B).long().view(B, 1)
    mask = (torch.arange(n_tokens) < lengths).long()
    padding = config.pad_token_id if config.pad_token_id is not None else 0
    tokens = torch.randint(config.vocab_size, (B, n_tokens), generator=g)
    tokens = torch.where(tokens == padding, (tokens + 1) % config.vocab_size, tokens)
    inputs = {"input_ids": torch.where(mask.bool(), tokens, torch.tensor(padding)), "attention_mask": mask}
    if config.model_type == "bert":
        inputs["token_type_ids"] = (torch.arange(n_tokens) >= n_tokens // 2).long() % config.type_vocab_size * mask
    return inputs


def output_of(model, inputs):
    """At padding a causal model may give anything."""
    with torch.no_grad():
        output = model(**inputs)
    if hasattr(output, "start_logits"):
        output = torch.stack([output.start_logits, output.end_logits], -1)
    else:
        output = output.logits if hasattr(output, "logits") else output.last_hidden_state
    return output if output.dim() == 2 else output[inputs["attention_mask"].bool()]


def compare(what, a, b, allowed):
    if a.shape != b.shape:
        raise Different(f"{what}: shapes {list(a.shape)} and {list(b.shape)}")
    distance = float((a.double() - b.double()).abs().max())
    if not distance <= allowed:  # NaN neither
        raise Different(f"{what}: the largest difference is {distance:.3g}, allowed {allowed:.3g}")
    return distance


def compare_folders(folder_a, folder_b, allowed):
    a, b = load(folder_a), load(folder_b)
    if type(a) is not type(b):
        raise Different(f"{type(a).__name__} and {type(b).__name__}")
    inputs = make_inputs(a.config)
    weights_a, weights_b = a.state_dict(), b.state_dict()
    if weights_a.keys() != weights_b.keys():
        raise Different(f"weights in one only: {sorted(weights_a.keys() ^ weights_b.keys())}")
    if "cls.predictions.decoder.bias" in weights_a:  # the one that is used; in version 5 the other may be a second one
        del weights_a["cls.predictions.bias"]
    furthest = max(compare(name, weights_a[name], weights_b[name], allowed) for name in weights_a)
    distance = compare("output", output_of(a, inputs), output_of(b, inputs), allowed)
    print(f"{type(a).__name__}: {len(weights_a)} tensors, differing by {furthest:.3g} at most; outputs by {distance:.3g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--within", type=float, default=0.0, metavar="MAX_DIFFERENCE")
    parser.add_argument("folders", nargs="+", metavar="DIR")
    given = parser.parse_args()
    if len(given.folders) % 2 != 0:
        parser.error(f"folders come in pairs, {len(given.folders)} are given")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    status = 0
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    for a, b in zip(given.folders[::2], given.folders[1::2]):
        if a.endswith("qwen2_qa") and version < (4, 49):
            print(f"{a}: not compared, transformers {transformers.__version__} does not find the weights of its prefix")
            continue
        try:
            compare_folders(a, b, given.within)
        except (Different, OSError, ValueError, RuntimeError) as e:
            print(f"check_roundtrip: {a}, {b}: {e}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
