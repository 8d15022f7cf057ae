"""What a rank of test_groups.py does: argument 1 is the case. Prints "rank N: done" when all went well."""
import os
import sys
import time

import torch
import torch.distributed as dist

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from support import F32, config, masters  # noqa: E402
from test_modules import Own  # noqa: E402
from train_worker import N_STEPS, batch  # noqa: E402
from patrickstar import PatrickStarError, Refused, _client  # noqa: E402
from patrickstar.runtime import initialize_engine  # noqa: E402

SEEDS = (5, 17)  # of the halves: each has another model, and other samples


def start(half, group=None):
    torch.manual_seed(SEEDS[half])
    return initialize_engine(Own, int(os.environ["LOCAL_RANK"]), config(
        F32, memory__device="256KB", memory__host="128KB", comm__staging=65536), process_group=group)


def train(model, optimizer, half, n_steps=N_STEPS):
    model.eval()  # without dropout
    losses = []
    for step in range(n_steps):
        loss = model(batch(100 * half + step, model.ranks.rank % 2, min(model.ranks.size, 2)))
        model.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


def save(folder, half, model, optimizer, losses):
    assert model.ranks.size == 2
    torch.save({"losses": losses, "values": masters(model), "optimizer": optimizer.state_dict()},
               os.path.join(folder, "half-%d-rank-%d.pt" % (half, model.ranks.rank)))


def halves():
    """The group of this rank's half, and which one it is. All call."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    half = dist.get_rank() // 2
    return groups[half], half, groups


def heard(kind, call):
    try:
        call()
    except kind as failure:
        return str(failure)
    raise AssertionError("nothing was refused")


def case_alone(folder, half):
    """Two ranks, of the default group."""
    model, optimizer = start(int(half))
    save(folder, int(half), model, optimizer, train(model, optimizer, int(half)))
    model.close()


def case_halves(folder):
    dist.init_process_group("gloo")
    group, half, groups = halves()
    text = heard(Refused, lambda: start(half, groups[1 - half]))
    assert "this process, rank %d of 4, is not a member of it" % dist.get_rank() in text, text
    model, optimizer = start(half, group)
    assert (model.ranks.rank, model.ranks.size) == (dist.get_rank(group), 2), model.ranks.rank
    losses = train(model, optimizer, half)
    save(folder, half, model, optimizer, losses)
    if half == 0:  # the other half continues
        model.close()
        time.sleep(model.ranks.rank)  # the first to come finds nothing of the last meeting
        again, optimizer_again = start(half, group)  # a second one of the same processes
        assert train(again, optimizer_again, half) == losses
        again.close()
    else:
        train(model, optimizer, half)
    dist.barrier()  # the program's own groups are as they were
    if half == 1:
        model.close()


def case_several_in_one_process():
    """A rank is one of several groups' at once: its half, the ranks with its number there, itself, and all."""
    dist.init_process_group("gloo")
    group, half, _ = halves()
    number = dist.get_rank() % 2
    across = [dist.new_group([0, 2]), dist.new_group([1, 3])][number]
    mine = [dist.new_group([rank]) for rank in range(4)][dist.get_rank()]
    engines = [start(half, group), start(number, across), start(0, mine), start(0), start(1, dist.group.WORLD)]
    assert [model.ranks.size for model, _ in engines] == [2, 2, 1, 4, 4]
    losses = [[train(model, optimizer, 0, 2) for model, optimizer in engines] for _ in range(2)]
    assert losses[0] != losses[1]
    for i in (3, 0, 2, 4, 1) if half == 0 else (3, 2, 0, 4, 1):
        engines[i][0].close()
    dist.barrier()


def case_end_without_close():
    dist.init_process_group("gloo")
    group, half, _ = halves()
    model, optimizer = start(half, group)
    train(model, optimizer, half, 2)
    if half == 1:
        dist.destroy_process_group(group)
        train(model, optimizer, half, 2)
    heard(Refused, lambda: start(half, group)) if half == 1 else None
    dist.barrier()
    dist.destroy_process_group()
    if half == 0:
        train(model, optimizer, half, 2)
        model.close()
    text = heard(Refused, lambda: start(half, group))
    assert "torch.distributed has no process groups here" in text, text


def case_one_raises():
    """In a process that is in two groups; one that has none in common with it ends by that, too."""
    dist.init_process_group("gloo")
    group, half, _ = halves()
    engines = [start(half, group), start(0)]
    if dist.get_rank() == 3:
        raise ValueError("a thing that only rank 3 knows")
    text = heard(PatrickStarError, lambda: [train(*engines[i], 0, 1) for i in (half, 1)])
    assert "ValueError: a thing that only rank 3 knows" in text, text
    for model, _ in engines:
        model.close()


def case_one_half_fails():
    dist.init_process_group("gloo")
    group, half, _ = halves()
    model, optimizer = start(half, group)
    train(model, optimizer, half, 1)
    if dist.get_rank() == 3:
        raise ValueError("a thing that only rank 3 knows")
    if dist.get_rank() == 2:
        text = heard(PatrickStarError, lambda: train(model, optimizer, half, 1))
        assert "rank 1 (" in text, text  # of its group
    else:
        train(model, optimizer, half)
    model.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    _client.MEASURE = 0  # PyTorch itself takes more than these budgets
    globals()["case_" + sys.argv[1]](*sys.argv[2:])
    sys.stdout.write("rank %s: done\n" % os.environ["RANK"])
