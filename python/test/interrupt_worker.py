"""Ctrl-C at random instants of training steps: prints how often it was a KeyboardInterrupt, and how often it was lost."""
import json
import os
import random
import signal
import sys
import threading
import time

import torch

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from support import square  # noqa: E402
from patrickstar.runtime import initialize_engine  # noqa: E402

WIDTH, LAYERS, TIMES = 64, 24, 30


def main():
    torch.set_num_threads(1)
    model, optimizer = initialize_engine(
        lambda: torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]), 0, {"memory": "2GB"})
    x = torch.randn(32, WIDTH)
    sys.unraisablehook = lambda lost: None

    def step():
        optimizer.zero_grad()
        model.backward(square(model(x)))
        optimizer.step()

    for _ in range(3):
        step()
    begin = time.perf_counter()
    step()
    step_s = time.perf_counter() - begin
    n_caught = n_lost = 0
    for _ in range(TIMES):
        sent = threading.Event()

        def interrupt():
            time.sleep(random.random() * 2 * step_s)
            sent.set()
            os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=interrupt)
        try:
            thread.start()
            while not sent.is_set():
                step()
            step()
            thread.join()
            n_lost += 1
        except KeyboardInterrupt:
            n_caught += 1
        except RuntimeError as error:  # before PyTorch 2, from hooks
            if "KeyboardInterrupt" not in str(error):
                raise
            n_caught += 1
        thread.join()
    step()
    print(json.dumps({"caught": n_caught, "lost": n_lost}))


main()
