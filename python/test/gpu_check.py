"""The package for PyTorch on a GPU, in two minutes: the losses of plain PyTorch, the same bits in any budgets and peaks
within them, copies that run while PyTorch computes, two ranks that share the GPU, and how long a step takes next to plain
PyTorch's. tool/gpu_check.sh runs it where PyTorch sees a GPU.

usage: python3 python/test/gpu_check.py

PATRICKSTAR_LIBRARY names the library, PATRICKSTAR_PLUGIN_PATH the folder with the kernels for GPUs. FAKE=1: on the
processor, with a small model, to try this file where there is no GPU. Exit status 1 when something was not as it should
be, after a line "FAILED: ..."; 77 where nothing could be tried.
"""
import gc
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # the same bits when run twice
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from patrickstar import BudgetError  # noqa: E402
from patrickstar.runtime import initialize_engine  # noqa: E402

IS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if IS_GPU else "cpu"
VOCABULARY, LENGTH, BATCH, STEPS = (4096, 128, 8, 6) if IS_GPU else (256, 16, 4, 6)
WIDTH, LAYERS, HEADS = (512, 6, 8) if IS_GPU else (64, 6, 2)
AMPLE = {"device": "4GB", "host": "1GB", "disk": 0} if IS_GPU else {"device": "200MB", "host": 0, "disk": 0}
RANKS = 2
failed = False


def fail(text):
    global failed
    failed = True
    print("FAILED: " + text, flush=True)


def attention(q, k, v, is_causal):
    """Of a PyTorch before 2.0, which has no scaled_dot_product_attention."""
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v


attend = getattr(F, "scaled_dot_product_attention", attention)


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
        x = x + self.proj(attend(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Model(nn.Module):
    def __init__(self, vocabulary=VOCABULARY, width=WIDTH, layers=LAYERS, heads=HEADS, length=LENGTH):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("numbers", torch.arange(length), persistent=False)  # the engine takes it to its device

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(self.numbers[:tokens.shape[1]])
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batches(n, batch=BATCH, length=LENGTH, vocabulary=VOCABULARY):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, vocabulary, (batch, length), generator=generator) for _ in range(n)]


def loss_of(model, tokens):
    logits = model(tokens).float()
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def config(is_bf16, memory):
    return {"bf16": {"enabled": is_bf16}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.1}},
            "train": {"backend": DEVICE}, "default_chunk_size": 1 << 20 if IS_GPU else 1 << 15, "memory": memory}


def synchronize():
    if IS_GPU:
        torch.cuda.synchronize()


def train(optimizer, step, data, device):
    """Losses and seconds of each step; step(tokens) goes forward and backward on device, and gives the loss."""
    losses, seconds = [], []
    for tokens in data or batches(STEPS):
        tokens = tokens.to(device)
        begin = time.perf_counter()
        loss = step(tokens)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        synchronize()
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
    got = train(optimizer, step, data, model.device)
    info = model.client.get_info()
    got.update({"model_data": info.model_data_bytes, "framework": info.framework_peak_bytes,
                "budgets": list(info.budget_bytes), "peaks": list(info.peak_bytes),
                "moved": list(info.moved_bytes), "gpu": info.gpu, "waited": info.wait_ns * 1e-9})
    model.close()
    del model, optimizer, step
    gc.collect()  # modules and hooks refer to each other
    if IS_GPU:
        torch.cuda.empty_cache()
    return got


def plain(is_bf16, make=Model, data=None):
    torch.manual_seed(0)
    model = make().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, **({"fused": True} if IS_GPU else {}))

    def step(tokens):
        with torch.autocast(DEVICE, torch.bfloat16, enabled=is_bf16):
            loss = loss_of(model, tokens)
        loss.backward()
        return loss
    return train(optimizer, step, data, DEVICE)


def check_overlap():
    """Chunks that come and go while PyTorch computes: less is waited for than copies alone would take."""
    ample = package(True, AMPLE)
    tight = (ample["framework"] + int(0.6 * ample["model_data"]) + (2 << 20)) >> 21 << 21
    got = package(True, {"device": tight, "host": "1GB", "disk": 0})
    n_bytes = 1 << 28
    source, target = torch.empty(n_bytes, dtype=torch.uint8).pin_memory(), torch.empty(n_bytes, dtype=torch.uint8).cuda()
    rates = []
    for _ in range(3):
        begin = time.perf_counter()
        target.copy_(source)
        synchronize()
        rates.append(n_bytes / (time.perf_counter() - begin))
    alone = sum(got["moved"][:2]) / max(rates)
    print("overlap: %.0f MB moved, %.3f s if nothing else ran; waited for %.3f s in %d steps of %.3f s" % (
        sum(got["moved"][:2]) * 1e-6, alone, got["waited"], STEPS, statistics.median(got["seconds"])), flush=True)
    if sum(got["moved"][:2]) == 0:
        fail("overlap: nothing was moved")
    elif got["waited"] > alone:
        fail("overlap: %.3f s were waited for, and all copies take %.3f s" % (got["waited"], alone))


def train_as_rank():
    """One process of RANKS: each rank has its part of each batch, and all ranks of this machine GPU 0."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    got = package(False, AMPLE if IS_GPU else dict(AMPLE, host="50MB"),
                  data=[tokens.chunk(RANKS)[rank] for tokens in batches(STEPS)])
    losses = torch.tensor(got["losses"], dtype=torch.float64)
    torch.distributed.all_reduce(losses)
    if rank == 0:
        print("ranks: " + " ".join("%.9g" % (loss / RANKS) for loss in losses.tolist()), flush=True)
    torch.distributed.destroy_process_group()


def check_ranks():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(RANKS)}
    ranks = [subprocess.Popen([sys.executable, os.path.abspath(__file__), "--rank"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True,
                              env=dict(os.environ, **where, RANK=str(rank), CUDA_VISIBLE_DEVICES="0"))
             for rank in range(RANKS)]
    said = [rank.communicate()[0] for rank in ranks]
    found = re.search(r"^ranks: (.*)$", said[0], re.M)
    if found is None or any(rank.returncode for rank in ranks):
        fail("ranks: status %s:\n%s" % ([rank.returncode for rank in ranks], "\n".join(text[-2000:] for text in said)))
        return
    alone = package(False, AMPLE)["losses"]
    most = max(abs(float(a) - b) / abs(b) for a, b in zip(found[1].split(), alone))
    print("ranks: losses of %d ranks within %.2g of one rank's" % (RANKS, most), flush=True)
    if most > 1e-4:
        fail("ranks: losses are %s, of one rank %s" % (found[1], alone))


def check_format(is_bf16, folder):
    name = "bf16" if is_bf16 else "f32"
    ample = package(is_bf16, AMPLE)
    print("%s, ample: %s" % (name, ample), flush=True)
    if IS_GPU and ample["gpu"] < 0:
        fail("the processor computed")
    peer = plain(is_bf16)
    most = max(abs(a - b) / abs(b) for a, b in zip(ample["losses"], peer["losses"]))
    print("%s: losses within %.2g of plain PyTorch's" % (name, most), flush=True)
    if most > (2e-2 if is_bf16 else 1e-4):
        fail("%s: losses are %s, plain PyTorch's %s" % (name, ample["losses"], peer["losses"]))
    tight = (ample["framework"] + int(0.45 * ample["model_data"]) + (2 << 20)) >> 21 << 21
    for memory in (AMPLE, {"device": tight, "host": "1GB" if IS_GPU else ample["model_data"], "disk": 0},
                   {"device": tight, "host": "40MB" if IS_GPU else "1MB", "disk": "2GB", "disk_path": folder}):
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


def tried(check, *arguments):
    """Where it fails the others may tell more."""
    try:
        check(*arguments)
    except Exception as error:
        traceback.print_exc()
        fail("%s: %s: %s" % (check.__name__, type(error).__name__, error))


def main():
    if not IS_GPU and not os.environ.get("FAKE"):
        print("skipped: PyTorch %s sees no GPU" % torch.__version__)
        return 77
    if sys.argv[1:] == ["--rank"]:
        train_as_rank()
        return 0
    print("PyTorch %s, %s" % (torch.__version__, torch.cuda.get_device_name() if IS_GPU else "the processor"))
    torch.use_deterministic_algorithms(True, warn_only=True)
    with tempfile.TemporaryDirectory() as folder:
        for is_bf16 in False, True:
            tried(check_format, is_bf16, folder)
    torch.use_deterministic_algorithms(False)
    tried(check_ranks)
    if IS_GPU:
        tried(check_overlap)
    if IS_GPU and not failed:
        show_speed()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
