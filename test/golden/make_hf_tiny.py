#!/usr/bin/env python3
"""Writes <name>_tiny.safetensors for tiny models of Hugging Face's own classes: what transformers and PyTorch compute.

usage: python3 make_hf_tiny.py [FOLDER]        (default: the folder of this script)
       python3 make_hf_tiny.py --rounding      write nothing; print how far float32 is from float64

Needs recent versions of torch and transformers. README.md lists the files and their tensors.
"""
import json
import math
import os
import sys

import torch
import transformers
from safetensors.torch import save_file

N_STEPS, B, T = 4, 2, 20
VOCABULARY = 61
LLAMA = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, attn_implementation="eager",
             tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0)
BERT = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=32, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            attn_implementation="eager", pad_token_id=0)

# name -> class, arguments of its configuration, what it is trained on
MODELS = {
    # wave lengths from 2 pi to 50000: with 32 original positions all three bands of llama3 occur
    "llama": ("Llama", "ForCausalLM", dict(LLAMA, rope_parameters={
        "rope_type": "llama3", "rope_theta": 50000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32})),
    "llama_linear": ("Llama", "ForCausalLM", dict(
        LLAMA, num_key_value_heads=1, tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
        rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5})),
    "mistral": ("Mistral", "ForCausalLM", dict(LLAMA, sliding_window=7,
                                               rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "qwen2": ("Qwen2", "ForCausalLM", dict(
        LLAMA, tie_word_embeddings=True, use_sliding_window=True, sliding_window=5, max_window_layers=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})),
    "qwen3": ("Qwen3", "ForCausalLM", dict(LLAMA, head_dim=16,
                                           rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})),
    "bert_mlm": ("Bert", "ForMaskedLM", dict(BERT)),
    "bert_cls": ("Bert", "ForSequenceClassification", dict(BERT, num_labels=3)),
    "gpt2_cls": ("GPT2", "ForSequenceClassification", dict(
        vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, attn_implementation="eager", pad_token_id=0, bos_token_id=1, eos_token_id=2, num_labels=2)),
}


def make_model(name):
    family, head, arguments = MODELS[name]
    config = getattr(transformers, family + "Config")(**arguments)
    torch.manual_seed(20261121)
    model = getattr(transformers, family + head)(config)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():  # biases and norms away from 0 and 1, so that an error in them shows
        for parameter_name, p in model.named_parameters():
            z = torch.randn(p.shape, generator=generator)
            is_norm = ("norm" in parameter_name.lower() or ".ln_" in parameter_name) and parameter_name.endswith("weight")
            if p.dim() >= 2:
                p.copy_(0.08 * z)
            elif is_norm:  # with heads of norm 1 scores grow large, and 16 bits cannot follow softmax
                p.copy_((0.6 if "q_norm" in parameter_name or "k_norm" in parameter_name else 1.0) + 0.1 * z)
            else:
                p.copy_(0.05 * z)
    return model.train(), head


def make_batches(head):
    """A noisy counting task. Encoders and classifiers get rows of different lengths, padded with 0."""
    g = torch.Generator().manual_seed(11)
    start = torch.randint(3, VOCABULARY, (N_STEPS, B, 1), generator=g)
    text = 3 + (start + torch.arange(T + 1) * torch.randint(1, 4, (N_STEPS, B, 1), generator=g)) % (VOCABULARY - 3)
    out = {"tokens": text[..., :-1].contiguous(), "targets": text[..., 1:].contiguous()}
    if head == "ForCausalLM":
        return out
    lengths = torch.randint(T // 3, T, (N_STEPS, B, 1), generator=g)
    lengths[:, 0] = T  # one row without padding
    mask = (torch.arange(T) < lengths).long()
    out["tokens"] = out["tokens"] * mask
    out["attention_mask"] = mask
    if head == "ForMaskedLM":
        hidden = (torch.rand(out["tokens"].shape, generator=g) < 0.25) & mask.bool()
        hidden[:, :, 2] = True
        out["targets"] = torch.where(hidden, out["tokens"], -100)
        out["tokens"] = torch.where(hidden, 2, out["tokens"])
    else:
        out["targets"] = torch.randint(0, 2, (N_STEPS, B), generator=g)
    return out


def add_types(batches, name):
    if name.startswith("bert"):
        batches["token_type_ids"] = ((torch.arange(T) >= T // 4).long().expand_as(batches["tokens"])
                                     * batches["attention_mask"])


def logits_of(model, batches, step):
    inputs = {k: batches[k][step] for k in ("attention_mask", "token_type_ids") if k in batches}
    return model(input_ids=batches["tokens"][step], **inputs).logits


def warmup_cosine(peak, n_warmup, n_total, step):
    if step < n_warmup:
        return peak * step / n_warmup
    return peak * 0.5 * (1.0 + math.cos(math.pi * (step - n_warmup) / (n_total - n_warmup)))


def train(name, dtype):
    model, head = make_model(name)
    model = model.to(dtype)
    batches = make_batches(head)
    add_types(batches, name)
    p = dict(model.named_parameters())  # tied ones once
    out = {f"init.{n}": x.detach().clone() for n, x in p.items()}
    optimizer = torch.optim.AdamW([{"params": [x for x in p.values() if x.dim() >= 2], "weight_decay": 0.1},
                                   {"params": [x for x in p.values() if x.dim() < 2], "weight_decay": 0.0}],
                                  lr=0.0, betas=(0.9, 0.95), eps=1e-8)
    losses, lrs, norms = [], [], []
    for step in range(N_STEPS):
        optimizer.zero_grad()
        logits = logits_of(model, batches, step)
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]),
                                                 batches["targets"][step].reshape(-1), ignore_index=-100)
        loss.backward()
        for parameter in p.values():  # such as a pooler's, which nothing depends on
            assert parameter.grad is not None
        if step == 0:
            out.update({f"grad.{n}": x.grad.clone() for n, x in p.items()})
        norms.append(math.sqrt(sum(float((x.grad.double() ** 2).sum()) for x in p.values())))
        torch.nn.utils.clip_grad_norm_(p.values(), 0.5)
        lrs.append(warmup_cosine(1e-3, 2, 8, step))
        for group in optimizer.param_groups:
            group["lr"] = lrs[-1]
        optimizer.step()
        losses.append(loss.item())
    out.update({f"final.{n}": x.detach().clone() for n, x in p.items()})
    out.update({k: v.int() for k, v in batches.items()})
    out["losses"], out["lrs"], out["grad_norms"] = (torch.tensor(x, dtype=torch.float32) for x in (losses, lrs, norms))
    model_config = model.config.to_dict()
    model_config["architectures"] = [type(model).__name__]
    return out, {"format": "pt", "config": json.dumps(model_config), "transformers": transformers.__version__,
                 "torch": torch.__version__}


def print_rounding(name):
    """Distance of the float32 run from the same run in float64: no test of float32 code can ask for less."""
    exact, rounded = train(name, torch.float64)[0], train(name, torch.float32)[0]
    for kind in ("losses", "grad_norms", "grad.", "final."):
        worst = sorted(((float((exact[n].double() - rounded[n].double()).abs().max()), n)
                        for n in exact if n.startswith(kind)), reverse=True)
        print(f"{name} {kind}: " + ", ".join(f"{n} {d:.2g}" for d, n in worst[:3]))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in MODELS:
        if folder == "--rounding":
            print_rounding(name)
            continue
        tensors, facts = train(name, torch.float32)
        path = os.path.join(folder, name + "_tiny.safetensors")
        save_file({k: v.contiguous() for k, v in tensors.items()}, path, facts)
        print(f"{os.path.basename(path)}: {os.path.getsize(path)} bytes, losses {tensors['losses'].tolist()}")


if __name__ == "__main__":
    main()
