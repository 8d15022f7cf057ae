"""What test_stops.py kills: stop_worker.py FOLDER STEPS KIND. Trains a model of four times the budgets' data, saves
every second step, resumes from the last checkpoint, and at the end prints a hash of all values. Of 0 steps: budgets
alone."""
import hashlib
import json
import os
import resource
import sys

import torch

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from support import square  # noqa: E402
from patrickstar import _client  # noqa: E402
from patrickstar.runtime import initialize_engine  # noqa: E402

WIDTH, LAYERS, T = 256, 6, 64
BLOCK = 1 << 20


class Small:
    """Linear layers with dropout."""

    def __init__(self, is_bf16):
        _client.MEASURE = 0  # PyTorch itself takes more than these budgets
        torch.set_num_threads(1)
        self.memory = {"device": "1000KB", "host": "350KB" if is_bf16 else "550KB", "disk": "64MB",
                       "save_buffer": "64KB"}
        self.more = {"default_chunk_size": 16384}

    def build(self):
        layers = []
        for _ in range(LAYERS):
            layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Dropout(0.1)]
        return torch.nn.Sequential(*layers)

    def loss(self, model, step):
        x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(step))
        return square(model(x.to(model.client.dtype)))


class Gpt2:
    """Of transformers."""

    def __init__(self, kind):
        sizes = {"gpt2-124m-f32": (768, 12, 12, "360MB", "140MB"),
                 "gpt2-774m-bf16": (1280, 36, 20, "1700MB", "1000MB")}[kind.replace("-one-layer", "")]
        self.width, self.layers, self.heads, device, host = sizes
        self.layers = 1 if kind.endswith("-one-layer") else self.layers
        self.memory = {"device": device, "host": host, "disk": "14GB"}
        self.more = {}

    def build(self):
        from transformers import GPT2Config, GPT2LMHeadModel
        return GPT2LMHeadModel(GPT2Config(n_embd=self.width, n_layer=self.layers, n_head=self.heads))

    def loss(self, model, step):
        ids = torch.randint(0, 50257, (1, T), generator=torch.Generator().manual_seed(step))
        return model(input_ids=ids, labels=ids).loss


def hash_of(model):
    digest = hashlib.sha256()
    for slot in model.front.slots:
        for name in [None] + model.client.get_state_names():
            for first in range(0, slot.shape.numel(), BLOCK):
                n = min(BLOCK, slot.shape.numel() - first)
                digest.update(model.client.read_range(slot.number, name, first, n).numpy().tobytes())
    return digest.hexdigest()


def say(**what):
    print(json.dumps(what), flush=True)


def main():
    folder, n_steps, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    what = Gpt2(kind) if kind.startswith("gpt2") else Small(kind == "bf16")
    config = {
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "bf16": {"enabled": "bf16" in kind},
        "memory": dict(what.memory, disk_path=folder), "train": {"save_interval": 2, "output_dir": folder}, **what.more}
    if n_steps == 0:
        read = _client.Config(config)
        say(budgets=read.get_int("memory.device") + read.get_int("memory.host"))
        return
    torch.manual_seed(3)
    model, optimizer = initialize_engine(what.build, 0, config)
    at = {"step": 0}
    model.client_state_from(lambda: dict(at))
    _, state = model.load_checkpoint(os.path.join(folder, "checkpoints"))
    at.update(state)
    info = model.client.get_info()
    say(step=at["step"], model_data=info.model_data_bytes, budgets=sum(info.budget_bytes[:2]))
    for step in range(at["step"], n_steps):
        optimizer.zero_grad()
        model.backward(what.loss(model, step))
        at["step"] = step + 1
        optimizer.step()
    say(hash=hash_of(model), peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    model.close()


if __name__ == "__main__":
    main()
