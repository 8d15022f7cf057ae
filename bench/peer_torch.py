"""Seconds of a training step of GPT-2 124M in PyTorch on the CPU, for comparison with bench_step.

usage: /usr/bin/python3 bench/peer_torch.py [B] [T] [THREADS] [STEPS]     (4 64 2 5)
Needs PyTorch (Debian: python3-torch). bf16 autocast over fp32 parameters, AdamW, clipping at norm 1: what a PyTorch user writes.
Run it without OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE in the environment, which would slow its fp32 products.
"""
import sys
import time

import torch
import torch.nn.functional as F

B, T, THREADS, STEPS = (int(given) for given in (sys.argv[1:] + ["4", "64", "2", "5"][len(sys.argv) - 1:]))
V, C, L, H = 50257, 768, 12, 12
torch.set_num_threads(THREADS)
torch.manual_seed(0)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(C), torch.nn.LayerNorm(C)
        self.qkv, self.proj = torch.nn.Linear(C, 3 * C), torch.nn.Linear(C, C)
        self.fc, self.out = torch.nn.Linear(C, 4 * C), torch.nn.Linear(4 * C, C)
        self.register_buffer("mask", torch.ones(T, T).tril().bool())

    def forward(self, x):
        q, k, v = self.qkv(self.ln_1(x)).view(B, T, 3, H, C // H).permute(2, 0, 3, 1, 4)
        s = (q @ k.transpose(-1, -2)) * (C // H) ** -0.5
        p = s.masked_fill(~self.mask, float("-inf")).softmax(-1)
        x = x + self.proj((p.to(v.dtype) @ v).transpose(1, 2).reshape(B, T, C))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(V, C), torch.nn.Embedding(1024, C)
        self.h = torch.nn.ModuleList(Block() for _ in range(L))
        self.ln_f = torch.nn.LayerNorm(C)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(T))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.float().view(-1, V), targets.view(-1))


model = GPT2()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
tokens, targets = torch.randint(0, V, (B, T)), torch.randint(0, V, (B, T))
times = []
for step in range(STEPS + 2):
    begin = time.time()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(tokens, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step >= 2:
        times.append(time.time() - begin)
times.sort()
print("PyTorch %s, B=%d T=%d, %d threads: median %.4f s, least %.4f s a step, %d parameters"
      % (torch.__version__, B, T, THREADS, times[len(times) // 2], times[0], sum(p.numel() for p in model.parameters())))
