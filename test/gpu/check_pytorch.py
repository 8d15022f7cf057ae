"""The package for PyTorch on a GPU: the losses of plain PyTorch, the same bits in any budgets, peaks within them, and how
long a step takes next to plain PyTorch's. tool/gpu_check.sh runs it where PyTorch sees a GPU.

usage: python3 test/gpu/check_pytorch.py

PATRICKSTAR_LIBRARY names the library, PATRICKSTAR_PLUGIN_PATH the folder with the kernels for GPUs. Exit status 1 when
something was not as it should be, after a line "FAILED: ...".
"""
import gc
import os
import re
import statistics
import sys
import tempfile
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # the same bits when run twice
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from patrickstar import BudgetError  # noqa: E402
from patrickstar.runtime import initialize_engine  # noqa: E402

VOCABULARY, LENGTH, BATCH, STEPS = 4096, 128, 8, 6
failed = False


def fail(text):
    global failed
    failed = True
    print("FAILED: " + text, flush=True)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Model(nn.Module):
    def __init__(self, vocabulary=VOCABULARY, width=512, layers=6, heads=8, length=LENGTH):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batches(n, batch=BATCH, length=LENGTH, vocabulary=VOCABULARY):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, vocabulary, (batch, length), generator=generator).cuda() for _ in range(n)]


def loss_of(model, tokens):
    logits = model(tokens).float()
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def config(is_bf16, memory):
    return {"bf16": {"enabled": is_bf16}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.1}},
            "train": {"backend": "cuda"}, "default_chunk_size": 1 << 20, "memory": memory}


def train(optimizer, step, data):
    """Losses and seconds of each step; step(tokens) goes forward and backward, and gives the loss."""
    losses, seconds = [], []
    for tokens in data or batches(STEPS):
        begin = time.perf_counter()
        loss = step(tokens)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return {"losses": losses, "seconds": seconds}


def package(is_bf16, memory, make=Model, data=None):
    """What train gives, and what the client says of it."""
    torch.manual_seed(0)
    model, optimizer = initialize_engine(make, 0, config(is_bf16, memory))

    def step(tokens):
        loss = loss_of(model, tokens)
        model.backward(loss)
        return loss
    got = train(optimizer, step, data)
    info = model.client.get_info()
    got.update({"model_data": info.model_data_bytes, "framework": info.framework_peak_bytes,
                "budgets": list(info.budget_bytes), "peaks": list(info.peak_bytes),
                "moved": list(info.moved_bytes), "gpu": info.gpu})
    model.close()
    del model, optimizer, step
    gc.collect()  # modules and hooks refer to each other
    torch.cuda.empty_cache()
    return got


def plain(is_bf16, make=Model, data=None):
    torch.manual_seed(0)
    model = make().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)

    def step(tokens):
        with torch.autocast("cuda", torch.bfloat16, enabled=is_bf16):
            loss = loss_of(model, tokens)
        loss.backward()
        return loss
    return train(optimizer, step, data)


def check_format(is_bf16, folder):
    name = "bf16" if is_bf16 else "f32"
    ample = package(is_bf16, {"device": "4GB", "host": "1GB", "disk": 0})
    print("%s, ample: %s" % (name, ample), flush=True)
    if ample["gpu"] < 0:
        fail("the processor computed")
    peer = plain(is_bf16)
    most = max(abs(a - b) / abs(b) for a, b in zip(ample["losses"], peer["losses"]))
    print("%s: losses within %.2g of plain PyTorch's" % (name, most), flush=True)
    if most > (2e-2 if is_bf16 else 1e-4):
        fail("%s: losses are %s, plain PyTorch's %s" % (name, ample["losses"], peer["losses"]))
    tight = (ample["framework"] + int(0.45 * ample["model_data"]) + (2 << 20)) >> 21 << 21
    for memory in ({"device": "4GB", "host": "1GB", "disk": 0}, {"device": tight, "host": "1GB", "disk": 0},
                   {"device": tight, "host": "40MB", "disk": "2GB", "disk_path": folder}):
        try:
            got = package(is_bf16, memory)
        except BudgetError as error:  # it names a budget that suffices
            print("%s, %s: %s" % (name, memory, error), flush=True)
            named = re.findall(r"memory\.device=([0-9.]+[kMGT]B)", str(error))
            if not named:
                fail("no budget is named")
                continue
            gc.collect()
            got = package(is_bf16, dict(memory, device=named[0]))
        print("%s, %s: peaks %s, moved %s" % (name, memory, got["peaks"], got["moved"]), flush=True)
        if got["losses"] != ample["losses"]:
            fail("%s, %s: losses are %s, with much memory %s" % (name, memory, got["losses"], ample["losses"]))
        if any(peak > budget for peak, budget in zip(got["peaks"], got["budgets"])):
            fail("%s: peaks %s, budgets %s" % (name, got["peaks"], got["budgets"]))


def show_speed():
    """Of the shape of GPT-2 124M; nothing is asserted."""
    def make():
        return Model(50304, 768, 12, 12, 1024)
    data = batches(10, 16, 1024, 50304)
    rows = [("plain PyTorch, autocast, fused AdamW", plain(True, make=make, data=data))]
    ample = package(True, {"device": "60GB", "host": "1GB", "disk": 0}, make=make, data=data)
    rows.append(("package, all on the GPU", ample))
    tight = ample["framework"] + ample["model_data"] // 3
    rows.append(("package, a third of the chunks' bytes on the GPU",
                 package(True, {"device": tight, "host": "8GB", "disk": 0}, make=make, data=data)))
    rows.append(("plain PyTorch again", plain(True, make=make, data=data)))
    for name, got in rows:
        print("speed: %-50s %.4f s a step (%.4f to %.4f)" % (
            name, statistics.median(got["seconds"][3:]), min(got["seconds"][3:]), max(got["seconds"][3:])), flush=True)


def main():
    if not torch.cuda.is_available():
        print("skipped: PyTorch %s sees no GPU" % torch.__version__)
        return 77
    print("PyTorch %s, %s" % (torch.__version__, torch.cuda.get_device_name()))
    torch.use_deterministic_algorithms(True, warn_only=True)
    with tempfile.TemporaryDirectory() as folder:
        for is_bf16 in False, True:
            try:
                check_format(is_bf16, folder)
            except Exception as error:  # the other format may tell more
                import traceback
                traceback.print_exc()
                fail("%s: %s" % (type(error).__name__, error))
    torch.use_deterministic_algorithms(False)
    if not failed:
        show_speed()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
