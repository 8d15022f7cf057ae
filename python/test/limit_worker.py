"""What test_memory_limit.py starts: trains under one budget of the whole process, and says what that took at most.

limit_worker.py MEMORY LAYERS [init] SAMPLES...: a step for each number of samples. MEMORY is JSON: the configuration's
"memory". init: the model is built in a block of patrickstar.init, not by a function.
Prints a JSON object: {"peak_bytes": ...} or {"refused": text, "n_steps": steps that were done}."""
import json
import logging
import os
import sys

import torch
import torch.nn as nn

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from support import square  # noqa: E402
from patrickstar import BudgetError, init, initialize_engine  # noqa: E402

WIDTH = 1024
TIMES = 16


class Layer(nn.Linear):
    """Much memory of activations for few products, which take long by a plain BLAS."""

    def forward(self, x):
        x = super().forward(x)
        for _ in range(TIMES):
            x = torch.sigmoid(x)
        return x


def peak_bytes():
    """As the system counts it, with pages of libraries."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def main():
    torch.set_num_threads(2)
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("patrickstar")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    memory, layers, n_steps = json.loads(sys.argv[1]), int(sys.argv[2]), 0
    config = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "default_chunk_size": WIDTH * (WIDTH + 1),
              "memory": memory}
    is_in_block = sys.argv[3] == "init"

    def build():
        return nn.Sequential(*[Layer(WIDTH, WIDTH) for _ in range(layers)])

    try:
        if is_in_block:
            with init(config):
                module = build()
            model, optimizer = initialize_engine(model=module)
        else:
            model, optimizer = initialize_engine(build, 0, config)
        for samples in sys.argv[4 if is_in_block else 3:]:
            model.backward(square(model(torch.randn(int(samples), WIDTH))))
            optimizer.step()
            n_steps += 1
        info = model.client.get_info()
        done = {"peak_bytes": peak_bytes(), "model_data_bytes": info.model_data_bytes,
                "disk_bytes": info.peak_bytes[2], "framework_bytes": info.framework_peak_bytes, "lines": lines}
        model.close()
    except BudgetError as error:
        done = {"refused": str(error), "n_steps": n_steps, "peak_bytes": peak_bytes()}
    print(json.dumps(done))


if __name__ == "__main__":
    main()
