"""One rank of test_train_ranks.py, as torchrun or mpirun starts it: train_worker.py FOLDER FORMAT."""
import os
import sys

import torch
import torch.distributed as dist

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from support import BF16, F32, config, masters  # noqa: E402
from test_modules import Own  # noqa: E402
from patrickstar import Refused, _client  # noqa: E402
from patrickstar.runtime import initialize_engine  # noqa: E402

N_STEPS, SAMPLES = 6, 6


def batch(step, rank, n_ranks):
    """A rank's part of a step's samples."""
    torch.manual_seed(step)
    ids = torch.randint(0, 50, (SAMPLES, 8))
    return ids.chunk(n_ranks)[rank]


def main():
    folder, dtype = sys.argv[1], {"f32": F32, "bf16": BF16}[sys.argv[2]]
    _client.MEASURE = 0  # PyTorch itself takes more than these budgets
    torch.manual_seed(int(os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", 0))))  # rank 0's values count
    model, optimizer = initialize_engine(Own, 0, config(
        dtype, memory__device="256KB", memory__host="128KB", comm__staging=65536))
    rank, n_ranks = model.ranks.rank, model.ranks.size
    model.eval()  # without dropout
    losses = []
    for step in range(N_STEPS):
        optimizer.zero_grad()
        loss = model(batch(step, rank, n_ranks))
        model.backward(loss)
        if step == 0 and n_ranks > 1:
            try:
                gradients = [param.grad for param in model.parameters()]
                raise AssertionError("gradients of several ranks were read: %s" % gradients)
            except Refused as refused:
                assert "gradient_clipping" in str(refused), refused
        optimizer.step()
        losses.append(loss.item())
    torch.save({"losses": losses, "values": masters(model), "whole": model.state_dict(),
                "optimizer": optimizer.state_dict(), "norm": optimizer.last_step.grad_norm},
               os.path.join(folder, "rank-%d.pt" % rank))
    torch.save(model.state_dict(whole=False), os.path.join(folder, "model-%d.pt" % rank))
    torch.save(optimizer.state_dict(whole=False), os.path.join(folder, "optimizer-%d.pt" % rank))
    part = next(module for module in model.module.children() if list(module.parameters()))
    kept = [part.state_dict()][:1 - min(rank, 1)]  # what one rank still has of it does not matter
    part.state_dict()
    del kept
    model.load_state_dict(model.state_dict())
    whole = optimizer.state_dict()
    optimizer.load_state_dict(whole)
    if n_ranks > 1:
        reload_parts(optimizer, whole, folder, rank, n_ranks)
    model.close()


def reload_parts(optimizer, whole, folder, rank, n_ranks):
    """Each rank its own part; another one's is refused."""
    optimizer.load_state_dict({**whole, "state": {number: dict(values, exp_avg=torch.zeros_like(values["exp_avg"]))
                                                  for number, values in whole["state"].items()}})
    optimizer.load_state_dict(torch.load(os.path.join(folder, "optimizer-%d.pt" % rank)))
    for number, values in optimizer.state_dict()["state"].items():
        assert torch.equal(values["exp_avg"], whole["state"][number]["exp_avg"]), number
    if not dist.is_initialized():
        return
    dist.barrier()  # files of all are there
    try:
        optimizer.load_state_dict(torch.load(os.path.join(folder, "optimizer-%d.pt" % ((rank + 1) % n_ranks))))
        raise AssertionError("another rank's part was loaded")
    except Refused as refused:
        assert "it is that of one rank" in str(refused), refused


if __name__ == "__main__":
    main()
