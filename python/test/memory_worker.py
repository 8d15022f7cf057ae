"""What test_memory.py starts: trains in a third of its model data, and says how much memory the process took at most.

memory_worker.py DEVICE_BYTES HOST_BYTES SAMPLES [DISK_BYTES [init]]: prints a JSON object, or why it does not fit.
init: the model is built in a block of patrickstar.init, not by a function."""
import json
import os
import resource
import sys
import tempfile

import torch
import torch.nn as nn

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from support import square  # noqa: E402
from patrickstar import BudgetError, init, initialize_engine  # noqa: E402

WIDTH, LAYERS = 1024, 12


def build():
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    device, host, samples = (int(value) for value in sys.argv[1:4])
    disk = int(sys.argv[4]) if len(sys.argv) > 4 else 10**9
    torch.set_num_threads(2)
    linear = nn.Linear(WIDTH, WIDTH)  # what PyTorch takes once
    square(linear(torch.randn(64, WIDTH))).backward()
    del linear
    before = peak_bytes()
    with tempfile.TemporaryDirectory() as folder:
        config = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "default_chunk_size": WIDTH * (WIDTH + 1),
                  "memory": {"device": device, "host": host, "disk": disk, "disk_path": folder}}
        if sys.argv[5:] == ["init"]:
            with init(config):
                module = build()
            model, optimizer = initialize_engine(model=module)
        else:
            model, optimizer = initialize_engine(build, 0, config)
        built = peak_bytes()
        for step in range(2):
            torch.manual_seed(step)
            try:
                model.backward(square(model(torch.randn(samples, WIDTH))))
            except BudgetError as error:
                print(json.dumps({"refused": str(error)}))
                return
            optimizer.step()
        info = model.client.get_info()
        print(json.dumps({
            "built_bytes": built - before, "trained_bytes": peak_bytes() - before,
            "model_data_bytes": info.model_data_bytes, "budget_bytes": list(info.budget_bytes),
            "peak_bytes": list(info.peak_bytes), "framework_bytes": info.framework_peak_bytes}))
        model.close()


if __name__ == "__main__":
    main()
