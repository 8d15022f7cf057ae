#!/usr/bin/env python3
"""Writes <name>_heads.safetensors: what transformers' classes with other heads than the next token compute in ten steps.

usage: python3 make_heads_tiny.py [FOLDER]        (default: the folder of this script)
       python3 make_heads_tiny.py --rounding      write nothing; print how far float32 is from float64

The losses are those that the classes compute from `labels`, or from `start_positions` and `end_positions`, but for the
one with weights of classes, smoothed labels and z-loss. Needs torch and transformers, such as make test-data installs
(4.49 on PyTorch 1.13). README.md lists the files and their tensors.
"""
import math
import os
import sys

import torch
import transformers

from make_gpt2_tiny import save_safetensors, warmup_cosine
from make_hf_tiny import print_distances

N_STEPS, B, T, VOCABULARY = 10, 3, 12, 37
COMMON = dict(vocab_size=VOCABULARY, attn_implementation="eager", pad_token_id=0, bos_token_id=1, eos_token_id=2,
              classifier_dropout=0.0)
BERT = dict(COMMON, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
            max_position_embeddings=16, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
GPT2 = dict(COMMON, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
LLAMA = dict(COMMON, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, max_position_embeddings=16, rms_norm_eps=1e-5, tie_word_embeddings=False)
CLASS_WEIGHTS, SMOOTHING, Z_LOSS = [0.5, 2.0, 1.25], 0.1, 1e-2

# name -> family, end of the class, arguments of its configuration, what it learns
MODELS = {
    "bert_regression": ("Bert", "ForSequenceClassification", dict(BERT, num_labels=1), "values"),
    "bert_multi": ("Bert", "ForSequenceClassification",
                   dict(BERT, num_labels=4, problem_type="multi_label_classification"), "truth"),
    "bert_weighted": ("Bert", "ForSequenceClassification", dict(BERT, num_labels=3), "weighted"),
    "bert_token": ("Bert", "ForTokenClassification", dict(BERT, num_labels=5), "tokens"),
    "bert_qa": ("Bert", "ForQuestionAnswering", dict(BERT), "span"),
    "gpt2_regression": ("GPT2", "ForSequenceClassification", dict(GPT2, num_labels=3, problem_type="regression"),
                        "values"),
    "gpt2_token": ("GPT2", "ForTokenClassification", dict(GPT2, num_labels=5), "tokens"),
    "gpt2_qa": ("GPT2", "ForQuestionAnswering", dict(GPT2), "span"),
    "llama_multi": ("Llama", "ForSequenceClassification",
                    dict(LLAMA, num_labels=4, problem_type="multi_label_classification"), "truth"),
    "llama_token": ("Llama", "ForTokenClassification", dict(LLAMA, num_labels=5), "tokens"),
    "llama_qa": ("Llama", "ForQuestionAnswering", dict(LLAMA), "span"),
    "qwen2_qa": ("Qwen2", "ForQuestionAnswering", dict(LLAMA), "span"),
    "mistral_token": ("Mistral", "ForTokenClassification", dict(LLAMA), "tokens"),
}


def make_model(name):
    family, end, arguments, learns = MODELS[name]
    config = getattr(transformers, family + "Config")(**arguments)
    torch.manual_seed(20261123)
    model = getattr(transformers, family + end)(config)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():  # away from 0 and 1, so that an error in them shows
        for parameter_name, p in model.named_parameters():
            z = torch.randn(p.shape, generator=generator)
            is_norm = ("norm" in parameter_name.lower() or ".ln_" in parameter_name) and parameter_name.endswith("weight")
            p.copy_(0.15 * z if p.dim() >= 2 else (1.0 + 0.1 * z) if is_norm else 0.05 * z)
    return model.train(), learns


def make_batches(learns, n_labels):
    """Random tokens in rows of different lengths, padded with 0; targets that depend on them."""
    g = torch.Generator().manual_seed(11)
    tokens = torch.randint(3, VOCABULARY, (N_STEPS, B, T), generator=g)
    lengths = torch.randint(T // 2, T, (N_STEPS, B, 1), generator=g)
    lengths[:, 0] = T
    mask = (torch.arange(T) < lengths).long()
    if learns != "span":  # there padding takes part in the softmax, but embeddings of padding_idx have no gradient
        tokens = tokens * mask
    out = {"tokens": tokens, "attention_mask": mask}
    if learns == "values":
        out["values"] = torch.randn((N_STEPS, B, n_labels), generator=g) + tokens[..., :1] / VOCABULARY
    elif learns == "truth":
        out["values"] = (torch.rand((N_STEPS, B, n_labels), generator=g) < 0.4).float()
    elif learns == "weighted":
        out["targets"] = torch.randint(0, n_labels, (N_STEPS, B), generator=g)
    elif learns == "tokens":
        is_first = (torch.rand(tokens.shape, generator=g) < 0.7) & mask.bool()
        is_first[..., 0] = True
        out["targets"] = torch.where(is_first, tokens % n_labels, -100)
    else:
        start = (torch.rand((N_STEPS, B, 1), generator=g) * lengths).long()
        end = start + (torch.rand((N_STEPS, B, 1), generator=g) * (lengths - start)).long()
        out["targets"] = torch.cat([start, end], -1)
        out["targets"][1, 0, 1] = T  # behind the sequence: takes no part, so one end fewer than beginnings
        out["targets"][2, 1] = T
    return out


def inputs_of(batches, step):
    return {"input_ids": batches["tokens"][step],
            **{k: batches[k][step] for k in ("attention_mask", "token_type_ids") if k in batches}}


def loss_of(model, batches, step, learns):
    inputs = inputs_of(batches, step)
    if learns == "span":
        start, end = batches["targets"][step].unbind(-1)
        return model(**inputs, start_positions=start, end_positions=end).loss
    if learns == "weighted":
        logits, targets = model(**inputs).logits, batches["targets"][step]
        weights = torch.tensor(CLASS_WEIGHTS, dtype=logits.dtype)
        loss = torch.nn.functional.cross_entropy(logits, targets, weight=weights, label_smoothing=SMOOTHING)
        of_target = weights[targets]
        return loss + Z_LOSS * (of_target * torch.logsumexp(logits, -1) ** 2).sum() / of_target.sum()
    labels = batches["values" if "values" in batches else "targets"][step]
    if labels.is_floating_point():
        labels = labels.to(next(model.parameters()).dtype)
        if labels.shape[-1] == 1:
            labels = labels.squeeze(-1)
    return model(**inputs, labels=labels).loss


def train(model, batches, learns):
    p = dict(model.named_parameters())
    out = {f"init.{n}": x.detach().clone() for n, x in p.items()}
    optimizer = torch.optim.AdamW([{"params": [x for x in p.values() if x.dim() >= 2], "weight_decay": 0.1},
                                   {"params": [x for x in p.values() if x.dim() < 2], "weight_decay": 0.0}],
                                  lr=0.0, betas=(0.9, 0.95), eps=1e-8)
    losses, lrs, norms = [], [], []
    for step in range(N_STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, batches, step, learns)
        loss.backward()
        if step == 0:
            out.update({f"grad.{n}": x.grad.clone() for n, x in p.items()})
        norms.append(math.sqrt(sum(float((x.grad.double() ** 2).sum()) for x in p.values())))
        torch.nn.utils.clip_grad_norm_(p.values(), 0.5)
        lrs.append(warmup_cosine(1e-3, 2, 16, step))
        for group in optimizer.param_groups:
            group["lr"] = lrs[-1]
        optimizer.step()
        losses.append(loss.item())
    out.update({f"final.{n}": x.detach().clone() for n, x in p.items()})
    out.update({k: v.float() if v.is_floating_point() else v.int() for k, v in batches.items()})
    if learns == "span":  # what lies behind the sequence is -100 for us
        out["targets"] = torch.where(out["targets"] >= T, -100, out["targets"]).int()
    out["losses"], out["lrs"], out["grad_norms"] = (torch.tensor(x, dtype=torch.float32) for x in (losses, lrs, norms))
    return out


def make(name, dtype):
    model, learns = make_model(name)
    batches = make_batches(learns, model.config.num_labels)
    if name.startswith("bert"):
        batches["token_type_ids"] = ((torch.arange(T) >= T // 3).long().expand_as(batches["tokens"])
                                     * batches["attention_mask"])
    out = train(model.to(dtype), batches, learns)
    model_config = model.config.to_dict()
    model_config["architectures"] = [type(model).__name__]
    return out, {"config": model_config, "transformers": transformers.__version__, "torch": torch.__version__}


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    for name in MODELS:
        if folder == "--rounding":
            exact, rounded = make(name, torch.float64)[0], make(name, torch.float32)[0]
            print_distances(name, exact, rounded)
            continue
        tensors, facts = make(name, torch.float32)
        save_safetensors(os.path.join(folder, name + "_heads.safetensors"), tensors, facts)
        print(name, tensors["losses"].tolist())


if __name__ == "__main__":
    main()
