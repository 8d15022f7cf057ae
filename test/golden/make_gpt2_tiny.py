#!/usr/bin/env python3
"""Writes gpt2_tiny.safetensors and the other gpt2_tiny_*.safetensors but _cls: what PyTorch computes in float32 for a tiny GPT-2.

usage: python3 make_gpt2_tiny.py [FOLDER]        (default: the folder of this script)
       python3 make_gpt2_tiny.py --rounding      write nothing; print how far float32 is from float64

The model is written out in plain torch operations, so that each line can be held against the C code. Names are Hugging
Face's GPT-2 names, linear weights are [in, out] as in their Conv1D, y = x W + b. README.md lists the tensors.
"""
import json
import math
import os
import struct
import sys

import numpy as np
import torch

V, T, C, L, H, B = 131, 16, 48, 2, 3, 2
LAYER_NORM_EPS = 1e-5
INIT_STD = 0.02


# ---- model -----------------------------------------------------------------------------------------------------------

def parameter_shapes(tied):
    """Name -> shape, in the order in which the forward pass meets them."""
    shapes = {"wte.weight": (V, C), "wpe.weight": (T, C)}
    for i in range(L):
        h = f"h.{i}."
        shapes[h + "ln_1.weight"] = shapes[h + "ln_1.bias"] = (C,)
        shapes[h + "attn.c_attn.weight"], shapes[h + "attn.c_attn.bias"] = (C, 3 * C), (3 * C,)
        shapes[h + "attn.c_proj.weight"], shapes[h + "attn.c_proj.bias"] = (C, C), (C,)
        shapes[h + "ln_2.weight"] = shapes[h + "ln_2.bias"] = (C,)
        shapes[h + "mlp.c_fc.weight"], shapes[h + "mlp.c_fc.bias"] = (C, 4 * C), (4 * C,)
        shapes[h + "mlp.c_proj.weight"], shapes[h + "mlp.c_proj.bias"] = (4 * C, C), (C,)
    shapes["ln_f.weight"] = shapes["ln_f.bias"] = (C,)
    if not tied:
        shapes["lm_head.weight"] = (V, C)
    return shapes


def make_parameters(tied, generator, dtype):
    """GPT-2's initialisation, but biases and layer norms away from 0 and 1, so that an error in them shows."""
    p = {}
    for name, shape in parameter_shapes(tied).items():
        z = torch.randn(shape, generator=generator)
        if "ln_" in name and name.endswith("weight"):
            z = 1.0 + 0.1 * z
        elif name.endswith("bias"):
            z = 0.05 * z
        elif name.endswith("c_proj.weight"):
            z = INIT_STD / math.sqrt(2 * L) * z
        else:
            z = INIT_STD * z
        p[name] = z.to(dtype).requires_grad_()
    return p


def gelu_new(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x ** 3)))


def gelu_erf(x):
    return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))


def attention(p, prefix, x):
    b, t, _ = x.shape
    qkv = x @ p[prefix + "c_attn.weight"] + p[prefix + "c_attn.bias"]
    q, k, v = (s.view(b, t, H, C // H).transpose(1, 2) for s in qkv.split(C, dim=-1))  # [B, H, T, D]
    scores = q @ k.transpose(-1, -2) / math.sqrt(C // H)
    future = torch.ones(t, t, dtype=torch.bool).triu(1)
    probabilities = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
    y = (probabilities @ v).transpose(1, 2).reshape(b, t, C)
    return y @ p[prefix + "c_proj.weight"] + p[prefix + "c_proj.bias"]


def gpt2_loss(p, tokens, targets, gelu):
    def layer_norm(x, name):
        return torch.nn.functional.layer_norm(x, (C,), p[name + ".weight"], p[name + ".bias"], LAYER_NORM_EPS)

    x = p["wte.weight"][tokens] + p["wpe.weight"][: tokens.shape[1]]
    for i in range(L):
        h = f"h.{i}."
        x = x + attention(p, h + "attn.", layer_norm(x, h + "ln_1"))
        y = gelu(layer_norm(x, h + "ln_2") @ p[h + "mlp.c_fc.weight"] + p[h + "mlp.c_fc.bias"])
        x = x + y @ p[h + "mlp.c_proj.weight"] + p[h + "mlp.c_proj.bias"]
    head = p.get("lm_head.weight", p["wte.weight"])
    logits = layer_norm(x, "ln_f") @ head.T
    return torch.nn.functional.cross_entropy(logits.view(-1, V), targets.reshape(-1))  # mean over rows


# ---- training --------------------------------------------------------------------------------------------------------

def warmup_cosine(peak, n_warmup, n_total, step):
    """Hugging Face's cosine schedule with min_lr_ratio 0."""
    if step < n_warmup:
        return peak * step / n_warmup
    return peak * 0.5 * (1.0 + math.cos(math.pi * (step - n_warmup) / (n_total - n_warmup)))


def make_batches(n_steps, n_micro, generator):
    """A noisy counting task: something to learn, different in each batch. Both [n_steps, n_micro, B, T]."""
    start = torch.randint(V, (n_steps, n_micro, B, 1), generator=generator)
    stride = torch.randint(1, 4, (n_steps, n_micro, B, 1), generator=generator)
    noise = torch.randint(V, (n_steps, n_micro, B, T + 1), generator=generator)
    is_noise = torch.rand((n_steps, n_micro, B, T + 1), generator=generator) < 0.2
    text = torch.where(is_noise, noise, (start + stride * torch.arange(T + 1)) % V)
    return text[..., :-1].contiguous(), text[..., 1:].contiguous()


def global_norm(p):
    return math.sqrt(sum(float((x.grad.double() ** 2).sum()) for x in p.values() if x.grad is not None))


def train(p, tokens, targets, gelu, make_optimizer, max_norm, lr_at, rates=None, change=None):
    """Returns what the C code must reproduce. A step's gradient is the mean over its micro-batches. rates: of each of the
    optimizer's groups, relative to lr_at. change: what is done to gradients before they are looked at."""
    out = {f"init.{n}": x.detach().clone() for n, x in p.items()}
    optimizer = make_optimizer(p)
    losses, lrs, norms = [], [], []
    for step in range(tokens.shape[0]):
        n_micro = tokens.shape[1]
        optimizer.zero_grad()
        loss_sum = 0.0
        for micro in range(n_micro):
            loss = gpt2_loss(p, tokens[step, micro], targets[step, micro], gelu)
            (loss / n_micro).backward()
            loss_sum += loss.item()
        if step == 0:
            out.update({f"grad.{n}": x.grad.clone() for n, x in p.items() if x.requires_grad})
        if change:
            change(p)
        norms.append(global_norm(p))
        if max_norm > 0.0:
            torch.nn.utils.clip_grad_norm_([x for x in p.values() if x.grad is not None], max_norm)
        lrs.append(lr_at(step))
        for i, group in enumerate(optimizer.param_groups):
            group["lr"] = lrs[-1] * (rates[i] if rates else 1.0)
        optimizer.step()
        losses.append(loss_sum / n_micro)
        print(f"  step {step}: loss {losses[-1]:.6f} lr {lrs[-1]:.6g} gradient norm {norms[-1]:.6f}")
    out.update({f"final.{n}": x.detach().clone() for n, x in p.items()})
    out["tokens"], out["targets"] = tokens.squeeze(1).int(), targets.squeeze(1).int()  # drops a single micro-batch
    out["losses"], out["lrs"], out["grad_norms"] = (torch.tensor(x, dtype=torch.float32) for x in (losses, lrs, norms))
    return out


def decay_groups(p, weight_decay):
    """Norms and biases do not decay."""
    trained = [x for x in p.values() if x.requires_grad]
    return [{"params": [x for x in trained if x.dim() >= 2], "weight_decay": weight_decay},
            {"params": [x for x in trained if x.dim() < 2], "weight_decay": 0.0}]


def gpt2_tiny(dtype=torch.float32):
    generator = torch.Generator().manual_seed(20260101)
    p = make_parameters(True, generator, dtype)
    tokens, targets = make_batches(5, 1, generator)

    def make_optimizer(p):
        return torch.optim.AdamW(decay_groups(p, 0.1), lr=0.0, betas=(0.9, 0.95), eps=1e-8)

    facts = {"optimizer": "AdamW", "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "max_grad_norm": 0.5,
             "lr": 1e-3, "schedule": "cosine", "warmup_num_steps": 2, "total_num_steps": 8, "activation": "gelu_new",
             "tied": True, "micro_batches": 1}
    return train(p, tokens, targets, gelu_new, make_optimizer, 0.5, lambda s: warmup_cosine(1e-3, 2, 8, s)), facts


FROZEN = ("wte.weight", "wpe.weight", "h.0.", "h.1.ln_2.", "h.1.attn.c_attn.weight", "h.1.mlp.c_proj.bias")


def gpt2_tiny_frozen(dtype=torch.float32):
    """gpt2_tiny with its tables and lower half frozen; of the upper half a norm, a weight and a bias."""
    generator = torch.Generator().manual_seed(20260105)
    p = make_parameters(True, generator, dtype)
    tokens, targets = make_batches(5, 1, generator)
    for name, x in p.items():
        x.requires_grad_(not name.startswith(FROZEN))

    def make_optimizer(p):
        return torch.optim.AdamW(decay_groups(p, 0.1), lr=0.0, betas=(0.9, 0.95), eps=1e-8)

    facts = {"optimizer": "AdamW", "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "max_grad_norm": 0.2,
             "lr": 1e-3, "schedule": "cosine", "warmup_num_steps": 2, "total_num_steps": 8, "activation": "gelu_new",
             "tied": True, "micro_batches": 1, "frozen": list(FROZEN)}
    return train(p, tokens, targets, gelu_new, make_optimizer, 0.2, lambda s: warmup_cosine(1e-3, 2, 8, s)), facts


def gpt2_tiny_groups(dtype=torch.float32):
    """gpt2_tiny with param_groups: each with a rate of its own, all of which the schedule scales; first match wins."""
    generator = torch.Generator().manual_seed(20260106)
    p = make_parameters(True, generator, dtype)
    tokens, targets = make_batches(5, 1, generator)
    rates = []

    def make_optimizer(p):
        tables = [x for n, x in p.items() if n.endswith(("wte.weight", "wpe.weight"))]
        lower = [x for n, x in p.items() if n.startswith("h.0.")]
        rest = {n: x for n, x in p.items() if not n.startswith(("h.0.", "wte.", "wpe."))}
        groups = [{"params": tables, "lr": 2e-4, "weight_decay": 0.0},
                  {"params": lower, "lr": 5e-4, "weight_decay": 0.3, "betas": (0.8, 0.9), "eps": 1e-6},
                  *[{**g, "lr": 1e-3} for g in decay_groups(rest, 0.1)]]
        rates[:] = [g["lr"] / 1e-3 for g in groups]
        return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8)

    facts = {"optimizer": "AdamW", "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "max_grad_norm": 0.5,
             "lr": 1e-3, "schedule": "cosine", "warmup_num_steps": 2, "total_num_steps": 8, "activation": "gelu_new",
             "tied": True, "micro_batches": 1}
    return train(p, tokens, targets, gelu_new, make_optimizer, 0.5, lambda s: warmup_cosine(1e-3, 2, 8, s), rates), facts


def gpt2_tiny_changed(dtype=torch.float32):
    """gpt2_tiny whose gradients are changed between backward and step."""
    generator = torch.Generator().manual_seed(20260107)
    p = make_parameters(True, generator, dtype)
    tokens, targets = make_batches(5, 1, generator)

    def make_optimizer(p):
        return torch.optim.AdamW(decay_groups(p, 0.1), lr=0.0, betas=(0.9, 0.95), eps=1e-8)

    def change(p):
        p["h.0.mlp.c_fc.weight"].grad.mul_(3.0)
        p["wte.weight"].grad[: V // 2] = 0.0
        p["ln_f.bias"].grad.add_(0.125)

    facts = {"optimizer": "AdamW", "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "max_grad_norm": 0.5,
             "lr": 1e-3, "schedule": "cosine", "warmup_num_steps": 2, "total_num_steps": 8, "activation": "gelu_new",
             "tied": True, "micro_batches": 1}
    return (train(p, tokens, targets, gelu_new, make_optimizer, 0.5, lambda s: warmup_cosine(1e-3, 2, 8, s), change=change),
            facts)


def gpt2_tiny_untied_erf(dtype=torch.float32):
    generator = torch.Generator().manual_seed(20260102)
    p = make_parameters(False, generator, dtype)
    tokens, targets = make_batches(3, 2, generator)

    def make_optimizer(p):
        return torch.optim.Adam(decay_groups(p, 0.01), lr=0.0, betas=(0.9, 0.999), eps=1e-8)

    facts = {"optimizer": "Adam", "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01, "max_grad_norm": 0,
             "lr": 1e-3, "schedule": "constant", "activation": "gelu", "tied": False, "micro_batches": 2}
    return train(p, tokens, targets, gelu_erf, make_optimizer, 0.0, lambda s: 1e-3), facts


def gpt2_tiny_sgd(dtype=torch.float32):
    generator = torch.Generator().manual_seed(20260103)
    p = make_parameters(True, generator, dtype)
    tokens, targets = make_batches(5, 1, generator)

    def make_optimizer(p):
        return torch.optim.SGD(decay_groups(p, 0.01), lr=0.1, momentum=0.9, dampening=0.25)

    facts = {"optimizer": "SGD", "momentum": 0.9, "dampening": 0.25, "weight_decay": 0.01, "max_grad_norm": 0.5, "lr": 0.1,
             "schedule": "cosine", "warmup_num_steps": 2, "total_num_steps": 8, "activation": "gelu_new", "tied": True,
             "micro_batches": 1}
    return train(p, tokens, targets, gelu_new, make_optimizer, 0.5, lambda s: warmup_cosine(0.1, 2, 8, s)), facts


def gpt2_tiny_sgd_nesterov(dtype=torch.float32):
    generator = torch.Generator().manual_seed(20260104)
    p = make_parameters(True, generator, dtype)
    tokens, targets = make_batches(3, 2, generator)

    def make_optimizer(p):
        return torch.optim.SGD(decay_groups(p, 0.1), lr=0.1, momentum=0.8, nesterov=True)

    facts = {"optimizer": "SGD", "momentum": 0.8, "nesterov": True, "weight_decay": 0.1, "max_grad_norm": 0, "lr": 0.05,
             "schedule": "constant", "activation": "gelu_new", "tied": True, "micro_batches": 2}
    return train(p, tokens, targets, gelu_new, make_optimizer, 0.0, lambda s: 0.05), facts


# ---- file ------------------------------------------------------------------------------------------------------------

def save_safetensors(path, tensors, facts):
    """8 bytes little-endian header length, JSON header padded with spaces to a multiple of 8, then the data."""
    dtypes = {np.dtype("float32"): "F32", np.dtype("int32"): "I32"}
    header, data = {"__metadata__": {"format": "pt", **{k: v if isinstance(v, str) else json.dumps(v) for k, v in facts.items()}}}, b""
    for name in sorted(tensors):
        a = tensors[name].numpy()
        raw = a.astype(a.dtype.newbyteorder("<")).tobytes()
        header[name] = {"dtype": dtypes[a.dtype], "shape": list(a.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    print(f"{os.path.basename(path)}: {len(tensors)} tensors, {8 + len(text) + len(data)} bytes")


def print_rounding(make):
    """Distance of the float32 run from the same run in float64: no test of float32 code can ask for less."""
    exact, rounded = make(torch.float64)[0], make(torch.float32)[0]
    for kind in ("losses", "grad_norms", "grad.", "final."):
        worst = sorted(((float((exact[n].double() - rounded[n].double()).abs().max()), n)
                        for n in exact if n.startswith(kind)), reverse=True)
        print(f"{make.__name__} {kind}: " + ", ".join(f"{n} {d:.2g}" for d, n in worst[:4]))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for make in (gpt2_tiny, gpt2_tiny_frozen, gpt2_tiny_groups, gpt2_tiny_changed, gpt2_tiny_untied_erf, gpt2_tiny_sgd, gpt2_tiny_sgd_nesterov):
        if folder == "--rounding":
            print_rounding(make)
            continue
        tensors, facts = make()
        save_safetensors(os.path.join(folder, make.__name__ + ".safetensors"), tensors, facts)


if __name__ == "__main__":
    main()
