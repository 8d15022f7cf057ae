"""What test_stops.py kills: stop_worker.py FOLDER STEPS FORMAT. Trains a model of four times the
budgets' data, saves every second step, goes on from the last checkpoint, and at the end prints a hash of all values."""
import hashlib
import json
import os
import sys

import torch

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from support import BF16, F32, square  # noqa: E402
from patrickstar import _client  # noqa: E402
from patrickstar.runtime import initialize_engine  # noqa: E402

WIDTH, LAYERS = 256, 6


def model_func():
    layers = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Dropout(0.1)]
    return torch.nn.Sequential(*layers)


def batch(step, dtype):
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(step)).to(dtype)


def hash_of(model):
    digest = hashlib.sha256()
    for slot in model.front.slots:
        for name in [None] + model.client.get_state_names():
            digest.update(model.client.read(slot.number, name, slot.shape).numpy().tobytes())
    return digest.hexdigest()


def main():
    folder, steps, dtype = sys.argv[1], int(sys.argv[2]), {"f32": F32, "bf16": BF16}[sys.argv[3]]
    _client.MEASURE = 0  # PyTorch itself takes more than these budgets
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model, optimizer = initialize_engine(model_func, 0, {
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "bf16": {"enabled": dtype == BF16},
        "default_chunk_size": 16384,
        "memory": {"device": "1000KB", "host": "350KB" if dtype == BF16 else "550KB", "disk": "64MB",
                   "disk_path": folder, "save_buffer": "64KB"},
        "train": {"save_interval": 2, "output_dir": folder, "threads": 1}})
    at = {"step": 0}
    model.client_state_from(lambda: dict(at))
    _, state = model.load_checkpoint(os.path.join(folder, "checkpoints"))
    at.update(state)
    print(json.dumps({"step": at["step"], "model_data": model.client.get_info().model_data_bytes,
                      "budgets": sum(model.client.get_info().budget_bytes[:2])}), flush=True)
    for step in range(at["step"], steps):
        optimizer.zero_grad()
        model.backward(square(model(batch(step, dtype))))
        at["step"] = step + 1
        optimizer.step()
    print(hash_of(model), flush=True)
    model.close()


if __name__ == "__main__":
    main()
