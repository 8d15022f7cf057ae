"""One rank of test_failures.py, as torchrun starts it: initialize_engine fails, on both ranks and on one, again and
again, and then it does not."""
import gc
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from support import F32, config  # noqa: E402
from patrickstar import BudgetError, PatrickStarError, Refused  # noqa: E402
from patrickstar.runtime import initialize_engine  # noqa: E402

WIDTH = 1024
LONG = 3  # seconds that a model takes to be built


def make():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))


def make_slowly():
    time.sleep(LONG)
    return make()


def make_what_is_refused():
    return nn.Embedding(9, 4, sparse=True)


def start(model_func, device):
    return initialize_engine(model_func, 0, config(F32, memory__device=device, memory__host=0, memory__disk=0,
                                                   default_chunk_size=1 << 20))


def failure_of(kind, model_func, device):
    try:
        start(model_func, device)
    except kind as failure:
        return str(failure)
    raise AssertionError("initialize_engine did not fail")


def holdings():
    """Bytes of shared memory, files and threads of this process."""
    gc.collect()
    with open("/proc/self/status") as status:
        shared = next(int(line.split()[1]) for line in status if line.startswith("RssShmem"))
    return shared << 10, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def main():
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    failure_of(BudgetError, make, "20KB")
    before = holdings()
    for _ in range(3):
        failure_of(BudgetError, make, "20KB")
    after = holdings()
    assert after[0] < 1 << 20, after
    assert after[1] <= before[1] + 2 and after[2] <= before[2] + 1, (before, after)
    dist.barrier()
    began = time.monotonic()
    if rank == 1:
        assert "sparse=False" in failure_of(Refused, make_what_is_refused, "64MB")
        assert time.monotonic() - began < LONG, "it waited for the other rank"
    else:
        heard = failure_of(PatrickStarError, make_slowly, "64MB")
        assert "rank 1" in heard and "sparse=False" in heard, heard
    model, optimizer = start(make, "64MB")
    model.backward(model(torch.ones(2, WIDTH)).square().mean())
    optimizer.step()
    model.close()
    print("rank %d: done" % rank, flush=True)


if __name__ == "__main__":
    main()
