"""Seconds of training steps in PyTorch on a GPU, of the model that a configuration of ours describes; tool/gpu_bench.sh runs it in turns
with pstar (make gpu-bench). Needs PyTorch and nothing else: the models are written here, weights and tokens are random.

usage: python3 bench/gpu_peer.py CONFIG.json KIND STEPS OUT.json [KEY=VALUE...]

KIND   autocast  fp32 parameters and states, computed in bf16: what most train with     bf16  parameters, gradients and states in bf16,
       which loses small updates      with "+compile" appended: through torch.compile
KEY    of the configuration's model, data.sequence_length, train_micro_batch_size_per_gpu, gradient_accumulation_steps;
       device=cpu tries the script without a GPU

Fused AdamW, gradients clipped at the configuration's norm, scaled_dot_product_attention, no dropout. Three steps come first and are not counted.
OUT.json gets one line: seconds of each step, peak bytes of the GPU, parameters, versions. Activation checkpointing is torch.utils.checkpoint of
each block where the configuration asks for it.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

WARM_UP = 3
HAS_GQA = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 5)


def attend(q, k, v):
    """q [B, H, T, D], k and v [B, KV, T, D], causal"""
    if k.shape[1] == q.shape[1]:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True) if hasattr(F, "scaled_dot_product_attention") else plain(q, k, v)
    if HAS_GQA:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return attend(q, *(x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v)))


def plain(q, k, v):
    """For a PyTorch before 2.0, to try the script."""
    mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).tril()
    p = ((q @ k.transpose(-1, -2)) * q.shape[3] ** -0.5).masked_fill(~mask, float("-inf")).softmax(-1)
    return p.to(v.dtype) @ v


class GPT2Block(torch.nn.Module):
    def __init__(self, m):
        super().__init__()
        C = m["hidden_size"]
        self.heads = m["num_attention_heads"]
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(C), torch.nn.LayerNorm(C)
        self.qkv, self.proj = torch.nn.Linear(C, 3 * C), torch.nn.Linear(C, C)
        self.fc, self.out = torch.nn.Linear(C, 4 * C), torch.nn.Linear(4 * C, C)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(attend(q, k, v).transpose(1, 2).reshape(B, T, C))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class RMSNorm(torch.nn.Module):
    def __init__(self, C):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(C))

    def forward(self, x):
        f = x.float()
        return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


def turn(x, cos, sin):
    a, b = x.chunk(2, -1)
    return (x * cos + torch.cat((-b, a), -1) * sin).to(x.dtype)


class LlamaBlock(torch.nn.Module):
    """With biases on queries, keys and values: Qwen2's."""

    def __init__(self, m):
        super().__init__()
        C, H, KV, I = m["hidden_size"], m["num_attention_heads"], m["num_key_value_heads"], m["intermediate_size"]
        D, bias = C // H, m["type"] == "qwen2"
        self.H, self.KV, self.D = H, KV, D
        self.ln_1, self.ln_2 = RMSNorm(C), RMSNorm(C)
        self.q, self.k, self.v = (torch.nn.Linear(C, n * D, bias=bias) for n in (H, KV, KV))
        self.o = torch.nn.Linear(H * D, C, bias=False)
        self.gate, self.up = torch.nn.Linear(C, I, bias=False), torch.nn.Linear(C, I, bias=False)
        self.down = torch.nn.Linear(I, C, bias=False)

    def forward(self, x, cos, sin):
        B, T, C = x.shape
        y = self.ln_1(x)
        q, k, v = (f(y).view(B, T, n, self.D).transpose(1, 2) for f, n in ((self.q, self.H), (self.k, self.KV), (self.v, self.KV)))
        x = x + self.o(attend(turn(q, cos, sin), turn(k, cos, sin), v).transpose(1, 2).reshape(B, T, C))
        y = self.ln_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(torch.nn.Module):
    def __init__(self, m, recomputes):
        super().__init__()
        C, V, L = m["hidden_size"], m["vocab_size"], m["num_hidden_layers"]
        self.is_gpt2, self.recomputes = m["type"] == "gpt2", recomputes
        self.embed = torch.nn.Embedding(V, C)
        if self.is_gpt2:
            self.positions = torch.nn.Embedding(m["max_position_embeddings"], C)
        else:
            D = C // m["num_attention_heads"]
            self.register_buffer("inv_freq", m.get("rope_theta", 10000.0) ** -(torch.arange(0, D, 2) / D), persistent=False)
        self.h = torch.nn.ModuleList((GPT2Block if self.is_gpt2 else LlamaBlock)(m) for _ in range(L))
        self.norm = torch.nn.LayerNorm(C) if self.is_gpt2 else RMSNorm(C)
        self.head = None if m.get("tie_word_embeddings", True) else torch.nn.Linear(C, V, bias=False)
        for p in self.parameters():
            if p.dim() == 2:
                torch.nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x, more = self.embed(tokens), ()
        if self.is_gpt2:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        else:
            angle = torch.arange(tokens.shape[1], device=tokens.device).float()[:, None] * self.inv_freq.float()
            angle = torch.cat((angle, angle), -1)
            more = (angle.cos().to(x.dtype), angle.sin().to(x.dtype))
        for block in self.h:
            x = checkpoint(block, x, *more, use_reentrant=False) if self.recomputes else block(x, *more)
        weight = self.embed.weight if self.head is None else self.head.weight
        logits = F.linear(self.norm(x), weight)
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))


ALIASES = {"n_positions": "max_position_embeddings", "n_ctx": "max_position_embeddings", "n_embd": "hidden_size",
           "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}


def read_config(path, changes):
    """The configuration's values by dotted key, with names as in config.json."""
    flat = {}

    def put(value, prefix):
        if isinstance(value, dict):
            for key in value:
                put(value[key], prefix + [ALIASES.get(key, key)])
        else:
            flat[".".join(prefix)] = value

    with open(path) as f:
        put(json.load(f), [])
    for change in changes:
        key, value = change.split("=", 1)
        parts = key.split(".")
        try:
            value = json.loads(value)
        except ValueError:
            pass  # a word
        flat[".".join(ALIASES.get(part, part) for part in parts)] = value
    return flat


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    path, kind, n_steps, out = sys.argv[1:5]
    c = read_config(path, sys.argv[5:])
    number, _, compiled = kind.partition("+")
    if number not in ("autocast", "bf16") or compiled not in ("", "compile"):
        sys.exit("KIND '%s' is none of autocast, bf16, with or without +compile" % kind)
    model_config = {key[6:]: value for key, value in c.items() if key.startswith("model.")}
    device, B = c.get("device", "cuda"), c["train_micro_batch_size_per_gpu"]
    T, accumulation = c["data.sequence_length"], c.get("gradient_accumulation_steps", 1)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    is_gpu = device != "cpu"
    if is_gpu:
        torch.set_default_device(device)  # parameters begin there
    model = Model(model_config, c.get("activation_checkpointing.enabled", False))
    if number == "bf16":
        model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, **({"fused": True} if is_gpu else {}))
    run = torch.compile(model) if compiled else model
    batches = [torch.randint(0, model_config["vocab_size"], (B, T + 1), device=device) for _ in range(4)]
    seconds, loss = [], None
    for step in range(WARM_UP + int(n_steps)):
        begin = time.perf_counter()
        for micro in range(accumulation):
            batch = batches[(step * accumulation + micro) % len(batches)]
            with torch.autocast(device, torch.bfloat16, enabled=number == "autocast"):
                loss = run(batch[:, :-1], batch[:, 1:].contiguous()) / accumulation
            loss.backward()
        if c.get("gradient_clipping", 0) > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), c["gradient_clipping"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if is_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    with open(out, "w") as f:
        json.dump({"seconds": seconds[WARM_UP:], "peak_bytes": torch.cuda.max_memory_allocated() if is_gpu else 0,
                   "parameters": sum(p.numel() for p in model.parameters()), "loss": loss.item() * accumulation,
                   "version": torch.__version__, "kind": kind}, f)
        f.write("\n")


main()
