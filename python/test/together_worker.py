"""One rank of test_together.py: a step with all ranks, and then what argument 1 says, of which rank 1 has another idea
than the others. Prints "rank N heard: ..." with the failure, or "rank N: done"."""
import io
import os
import signal
import sys

import torch
import torch.nn as nn

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from support import F32, WIDTH, config, once, square, values  # noqa: E402
from patrickstar import PatrickStarError  # noqa: E402
from patrickstar.runtime import initialize_engine  # noqa: E402


class Experts(nn.Module):
    """Each row goes to one of them, whichever the caller says; all are called where all_are_called."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.experts = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(4)])
        self.chosen, self.all_are_called = None, False

    def forward(self, x):
        x = self.first(x)
        if self.chosen is None:
            return sum(expert(x) for expert in self.experts)
        if not self.all_are_called:
            return self.experts[self.chosen](x)
        return sum(expert(x if i == self.chosen else x[:0]).sum() for i, expert in enumerate(self.experts))


def evaluate(model):
    model.eval()
    with torch.no_grad():
        model(values(dtype=F32))
    model.train()


def save_on_one(model, optimizer, rank):
    if rank == 0:
        torch.save(model.state_dict(), io.BytesIO())
    once(model, optimizer, values(dtype=F32))


def save_on_all(model, optimizer, rank):
    state = model.state_dict()
    if rank == 0:
        torch.save(state, io.BytesIO())
    evaluate(model)
    once(model, optimizer, values(dtype=F32))


def save_on_one_at_the_end(model, optimizer, rank):
    if rank == 0:
        model.state_dict()


def evaluate_on_one(model, optimizer, rank):
    if rank == 0:
        evaluate(model)
    once(model, optimizer, values(dtype=F32))


def evaluate_on_one_at_the_end(model, optimizer, rank):
    evaluate(model)
    if rank == 0:
        evaluate(model)


def raise_on_one(model, optimizer, rank):
    if rank == 1:
        raise ValueError("the batch is empty")
    once(model, optimizer, values(dtype=F32))


def use_other_experts(model, optimizer, rank):
    model.chosen = rank
    once(model, optimizer, values(dtype=F32))


def call_all_experts(model, optimizer, rank):
    model.all_are_called = True
    for step in range(6):
        model.chosen = (rank + step) % 4
        model.backward(square(model(values(dtype=F32))))
        optimizer.step()


def be_killed(model, optimizer, rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    once(model, optimizer, values(dtype=F32))


def main():
    model, optimizer = initialize_engine(Experts, int(os.environ["LOCAL_RANK"]), config(F32))
    rank = model.ranks.rank
    try:
        once(model, optimizer, values(dtype=F32))  # a rank that has ended its own part may be killed meanwhile
        globals()[sys.argv[1]](model, optimizer, rank)
    except PatrickStarError as failure:
        print("rank %d heard: %s" % (rank, failure), flush=True)
        raise
    model.close()
    print("rank %d: done" % rank, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
