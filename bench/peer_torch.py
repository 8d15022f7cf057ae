"""Seconds of training steps in PyTorch on the CPU, for comparison with bench_step; bench/peers.py runs both in turns.

usage: python3 bench/peer_torch.py MODEL B T THREADS STEPS KIND

MODEL  gpt2 (124M) or llama (150M: 16 blocks of 768, 12 heads, 4 of keys and values, 2048 wide, 32000 tokens, untied)
KIND   autocast  bf16 autocast over fp32 parameters     fp32  nothing else      bf16  parameters, gradients and states in bf16
       with "+compile" appended: through torch.compile

AdamW (fused where this PyTorch has that on the CPU), gradients clipped at norm 1, dropout off: what a PyTorch user writes. Two steps
come first and are not counted. Prints one line of JSON.
Run it without OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE in the environment, which would slow its fp32 products.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F

HAS_SDPA = hasattr(F, "scaled_dot_product_attention")
HEADS = 12


def causal_attention(q, k, v):
    """q [B, H, T, D], k and v [B, KV, T, D]"""
    if k.shape[1] != q.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    if HAS_SDPA:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    T = q.shape[2]
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    p = ((q @ k.transpose(-1, -2)) * q.shape[3] ** -0.5).masked_fill(~mask, float("-inf")).softmax(-1)
    return p.to(v.dtype) @ v


class GPT2Block(torch.nn.Module):
    def __init__(self, C):
        super().__init__()
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(C), torch.nn.LayerNorm(C)
        self.qkv, self.proj = torch.nn.Linear(C, 3 * C), torch.nn.Linear(C, C)
        self.fc, self.out = torch.nn.Linear(C, 4 * C), torch.nn.Linear(4 * C, C)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(B, T, 3, HEADS, C // HEADS).permute(2, 0, 3, 1, 4)
        x = x + self.proj(causal_attention(q, k, v).transpose(1, 2).reshape(B, T, C))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(torch.nn.Module):
    vocabulary = 50257

    def __init__(self, C=768, L=12, positions=1024):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(self.vocabulary, C), torch.nn.Embedding(positions, C)
        self.h = torch.nn.ModuleList(GPT2Block(C) for _ in range(L))
        self.ln_f = torch.nn.LayerNorm(C)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.float().view(-1, self.vocabulary), targets.view(-1))


class RMSNorm(torch.nn.Module):
    def __init__(self, C):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(C))

    def forward(self, x):
        f = x.float()
        return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


class LlamaBlock(torch.nn.Module):
    def __init__(self, C, KV, width):
        super().__init__()
        D = C // HEADS
        self.KV, self.D = KV, D
        self.ln_1, self.ln_2 = RMSNorm(C), RMSNorm(C)
        self.q, self.k, self.v, self.o = (torch.nn.Linear(C, n, bias=False) for n in (C, KV * D, KV * D, C))
        self.gate, self.up = torch.nn.Linear(C, width, bias=False), torch.nn.Linear(C, width, bias=False)
        self.down = torch.nn.Linear(width, C, bias=False)

    def forward(self, x, cos, sin):
        B, T, C = x.shape
        y = self.ln_1(x)
        q = self.turn(self.q(y).view(B, T, HEADS, self.D).transpose(1, 2), cos, sin)
        k = self.turn(self.k(y).view(B, T, self.KV, self.D).transpose(1, 2), cos, sin)
        v = self.v(y).view(B, T, self.KV, self.D).transpose(1, 2)
        x = x + self.o(causal_attention(q, k, v).transpose(1, 2).reshape(B, T, C))
        y = self.ln_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    @staticmethod
    def turn(x, cos, sin):
        a, b = x.chunk(2, -1)
        return (x * cos + torch.cat((-b, a), -1) * sin).to(x.dtype)


class Llama(torch.nn.Module):
    vocabulary = 32000

    def __init__(self, C=768, L=16, KV=4, width=2048):
        super().__init__()
        self.embed = torch.nn.Embedding(self.vocabulary, C)
        self.h = torch.nn.ModuleList(LlamaBlock(C, KV, width) for _ in range(L))
        self.norm = RMSNorm(C)
        self.head = torch.nn.Linear(C, self.vocabulary, bias=False)
        self.register_buffer("inv_freq", 10000.0 ** -(torch.arange(0, C // HEADS, 2) / (C // HEADS)), persistent=False)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        angle = torch.arange(tokens.shape[1]).float()[:, None] * self.inv_freq.float()
        angle = torch.cat((angle, angle), -1)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for block in self.h:
            x = block(x, cos, sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().view(-1, self.vocabulary), targets.view(-1))


def make_optimizer(model):
    try:
        return torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True), "fused AdamW"
    except (RuntimeError, TypeError):  # this version fuses on GPUs only
        return torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1), "AdamW"


def main():
    name, B, T, threads, n_steps, kind = (int(given) if given.isdigit() else given for given in sys.argv[1:])
    number, _, compiled = kind.partition("+")
    if name not in ("gpt2", "llama") or number not in ("autocast", "fp32", "bf16") or compiled not in ("", "compile"):
        sys.exit(__doc__)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = GPT2() if name == "gpt2" else Llama()
    for p in model.parameters():
        if p.dim() == 2:
            torch.nn.init.normal_(p, std=0.02)
    if number == "bf16":
        model.bfloat16()
    optimizer, optimizer_name = make_optimizer(model)
    run = torch.compile(model) if compiled else model
    tokens = torch.randint(0, model.vocabulary, (B, T))
    targets = torch.randint(0, model.vocabulary, (B, T))
    seconds = []
    for _ in range(2 + n_steps):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=number == "autocast"):
            loss = run(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"version": torch.__version__, "optimizer": optimizer_name, "seconds": seconds[2:], "loss": loss.item(),
                      "parameters": sum(p.numel() for p in model.parameters())}))


main()
