"""The PyTorch part of record_runs.sh: one rank of a run, record_torch.py DTYPE THREADS DEVICE HOST DISK."""
import hashlib
import os
import sys

import torch

from support import BF16, F32, config, masters
from test_modules import Own
from train_worker import batch
from patrickstar import _client
from patrickstar.runtime import initialize_engine


def hash_of(state):
    """Of tensors in dictionaries, by name."""
    found = hashlib.sha256()
    for key, value in sorted(state.items(), key=lambda item: str(item[0])):
        found.update(str(key).encode())
        if isinstance(value, dict):
            found.update(hash_of(value).encode())
        elif isinstance(value, torch.Tensor):
            found.update(value.contiguous().view(-1).float().numpy().tobytes())
        else:
            found.update(repr(value).encode())
    return found.hexdigest()[:16]


def main():
    dtype, threads, device, host, disk = sys.argv[1:]
    _client.MEASURE = 0  # PyTorch itself takes more than these budgets
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, optimizer = initialize_engine(Own, 0, config(
        {"f32": F32, "bf16": BF16}[dtype], train__threads=int(threads), memory__device=device, memory__host=host,
        memory__disk=disk, comm__staging=65536, gradient_clipping=1.0))
    rank, n_ranks = model.ranks.rank, model.ranks.size
    model.eval()  # without dropout
    losses = []
    for step in range(5):
        for micro in range(2):
            loss = model(batch(2 * step + micro, rank, n_ranks))
            model.backward(loss / 2)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    values, state = hash_of(masters(model)), hash_of({"optimizer": optimizer.state_dict()})
    info = model.client.get_info()
    sys.stdout.write("rank %d of %d: loss %s, norm %s, values %s, optimizer %s, peaks %s\n" % (
        rank, n_ranks, losses[-1], optimizer.last_step.grad_norm, values, state, list(info.peak_bytes[:3])))
    sys.stdout.flush()
    model.close()


if __name__ == "__main__":
    main()
