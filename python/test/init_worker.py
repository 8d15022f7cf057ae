"""One rank of test_init.py: builds a model by patrickstar.init, and does what argument 1 says."""
import os
import sys

import torch

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from support import F32, Two, config, engine, once, values  # noqa: E402
from patrickstar import init, initialize_engine  # noqa: E402


def build(seed):
    torch.manual_seed(seed)
    with init(config(F32)):
        return Two()


def train(rank):
    model, optimizer = initialize_engine(model=build(rank))
    torch.manual_seed(0)
    first = Two().state_dict()
    for name, value in model.state_dict().items():
        assert torch.equal(value, first[name]), name
    torch.manual_seed(rank)
    once(model, optimizer, values(dtype=F32))
    found = model.state_dict()
    model.close()
    other, optimizer = engine(Two, F32)
    torch.manual_seed(rank)
    once(other, optimizer, values(dtype=F32))
    for name, value in other.state_dict().items():
        assert torch.equal(value, found[name]), name
    other.close()


def fail_on_one(rank):
    with init(config(F32)):
        model = Two()
        if rank == 1:
            raise ValueError("no file")
    initialize_engine(model=model)


def never_given(rank):
    build(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]](int(os.environ["RANK"]))
    print("done", flush=True)
