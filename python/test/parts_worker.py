"""One rank of test_parts.py, as torchrun does it: parts_worker.py CASE FOLDER [ARGUMENT]. Prints "rank N: done"."""
import copy
import os
import sys

import torch

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from support import F32, LR, WIDTH, config, load_of, once, path_of, same_states, square  # noqa: E402
from patrickstar import Refused  # noqa: E402
from patrickstar.core import torch_scope  # noqa: E402
from patrickstar.runtime import initialize_engine  # noqa: E402

N_STEPS, CHUNK = 3, 2048


class Net(torch.nn.Module):
    """A tied parameter, some apart, one frozen, some unused, and a buffer."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.wide = torch.nn.Linear(WIDTH, 5 * WIDTH)
        self.back = torch.nn.Linear(5 * WIDTH, WIDTH, bias=False)
        self.tied = torch.nn.Linear(WIDTH, WIDTH)
        self.tied.weight = self.first.weight
        self.frozen = torch.nn.Linear(WIDTH, WIDTH)
        self.frozen.weight.requires_grad_(False)
        self.unused = torch.nn.Linear(WIDTH, WIDTH)
        with torch_scope():
            self.apart = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x):
        self.seen += 1
        return self.apart(self.frozen(self.tied(self.back(self.wide(self.first(x))))))


def start(seed=0, **changed):
    torch.manual_seed(seed)
    return initialize_engine(Net, int(os.environ.get("LOCAL_RANK", 0)), config(F32, **changed))


def batch(step, rank):
    torch.manual_seed(1000 * step + rank)
    return torch.randn(4, WIDTH)


def train(model, optimizer, first, n=N_STEPS):
    losses = []
    for step in range(first, first + n):
        loss = square(model(batch(step, model.ranks.rank)))
        model.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


def refused(call, *texts):
    try:
        call()
    except Refused as failure:
        for text in texts:
            assert text in str(failure), (text, str(failure))
        return
    raise AssertionError("nothing was refused")


def case_save(folder):
    """Trains, saves parts and wholes, trains on, and continues from the parts."""
    model, optimizer = start(default_chunk_size=CHUNK)
    rank = model.ranks.rank
    train(model, optimizer, 0)
    optimizer.param_groups[0]["lr"] = LR / 2
    train(model, optimizer, N_STEPS, 1)
    parts = {"model": model.state_dict(whole=False), "optimizer": optimizer.state_dict(whole=False)}
    wholes = {"model": copy.deepcopy(model.state_dict()), "optimizer": optimizer.state_dict()}  # buffers change
    for kind, part in parts.items():
        torch.save(part, path_of(folder, kind, rank))
        torch.save(wholes[kind], path_of(folder, "whole-" + kind, rank))
    kept = [slot.name for slot in model.front.slots if model.client.keeps(slot.number)]
    names = set(kept) | ({"tied.weight"} if "first.weight" in kept else set()) | {"seen"}
    assert set(parts["model"]) == names, (set(parts["model"]), names)
    assert 0 < len(kept) < len(model.front.slots)
    losses = train(model, optimizer, 10)
    after = copy.deepcopy(model.state_dict()), optimizer.state_dict()
    model.close()
    again(folder, wholes, losses, after)


def again(folder, wholes, losses, after):
    model, optimizer = start(seed=7, default_chunk_size=CHUNK)
    rank = model.ranks.rank
    train(model, optimizer, 20, 1)
    model.load_state_dict(load_of(folder, "model", rank))
    optimizer.load_state_dict(load_of(folder, "optimizer", rank))
    same_states(model.state_dict(), wholes["model"])
    same_states(optimizer.state_dict(), wholes["optimizer"])
    assert optimizer.last_step.step == N_STEPS + 1
    assert train(model, optimizer, 10) == losses
    same_states(model.state_dict(), after[0])
    same_states(optimizer.state_dict(), after[1])
    model.close()


def case_load_elsewhere(folder, n_saved):
    """What was saved by n_saved ranks, by another rank or another number of them."""
    model, optimizer = start(default_chunk_size=CHUNK)
    rank, n_ranks, n_saved = model.ranks.rank, model.ranks.size, int(n_saved)
    before = copy.deepcopy(model.state_dict()), optimizer.state_dict()
    of = (rank + 1) % n_saved
    here = "but this is " + ("rank %d of %d. " % (rank, n_ranks) if n_ranks > 1 else "a single process. ")
    for kind, to in (("model", model), ("optimizer", optimizer)):
        refused(lambda: to.load_state_dict(load_of(folder, kind, of)),
                "%s state: it is that of one rank (whole=False), "
                "rank %d of %d, " % (kind, of, n_saved) + here, "python -m patrickstar.merge")
    if n_ranks == n_saved:
        one_of_them(folder, model, optimizer, rank)
    same_states(model.state_dict(), before[0])
    same_states(optimizer.state_dict(), before[1])
    once(model, optimizer, batch(0, rank))  # nothing is in the way of going on
    wholes(folder, model, optimizer, n_saved)
    model.close()
    if n_ranks == n_saved:
        other_chunks(folder, rank)


def one_of_them(folder, model, optimizer, rank):
    """Rank 1 has another one's, the others their own: no rank loads anything."""
    of = 0 if rank == 1 else rank
    for kind, to in (("model", model), ("optimizer", optimizer)):
        text = ("it is that of one rank (whole=False), rank 0 of" if rank == 1 else
                "nothing was loaded, as rank 1 has refused it: %s state: it is that of one rank" % kind)
        refused(lambda: to.load_state_dict(load_of(folder, kind, of)), text)
    given = load_of(folder, "model", of) if rank else load_of(folder, "whole-model", 0)
    refused(lambda: model.load_state_dict(given),
            "rank 0 of" if rank == 1 else "nothing was loaded, as rank 1 has refused it")


def wholes(folder, model, optimizer, n_saved):
    """What is joined of all loads anywhere: by dict.update, too, which keeps the mark of one rank."""
    whole_model, whole_optimizer = load_of(folder, "whole-model", 0), load_of(folder, "whole-optimizer", 0)
    joined = load_of(folder, "model", 0)
    for rank in range(1, n_saved):
        joined.update(load_of(folder, "model", rank))
    model.load_state_dict(joined)
    same_states(model.state_dict(), whole_model)
    for rank in range(n_saved):  # one after the other
        with torch.no_grad():
            model.module.first.weight.zero_()
        for part in range(n_saved):
            model.load_state_dict(load_of(folder, "model", part), strict=False)
        same_states(model.state_dict(), whole_model)
    optimizer.load_state_dict(load_of(folder, "optimizer", "merged"))
    same_states(optimizer.state_dict(), whole_optimizer)
    model.load_state_dict(load_of(folder, "model", "merged"))
    same_states(model.state_dict(), whole_model)


def other_chunks(folder, rank):
    model, optimizer = start(default_chunk_size=8192)
    n_refused = 0
    for kind, to in (("model", model), ("optimizer", optimizer)):
        try:
            to.load_state_dict(load_of(folder, kind, rank))
        except Refused as failure:
            assert "nothing was loaded" in str(failure) or (
                "chunks were of %d elements, and here they are of 8192: begin with default_chunk_size = %d"
                % (CHUNK, CHUNK)) in str(failure), failure
            n_refused += 1
    assert n_refused == 2
    model.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()["case_" + sys.argv[1]](*sys.argv[2:])
    sys.stdout.write("rank %s: done\n" % os.environ.get("RANK", "0"))
