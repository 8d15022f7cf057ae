"""One rank of test_checkpoint_ranks.py, as torchrun starts it: checkpoint_worker.py FOLDER save|load|tags."""
import os
import sys

import torch
import torch.nn as nn

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from support import BF16, WIDTH, config, masters, square  # noqa: E402
from patrickstar import PatrickStarError, _client  # noqa: E402
from patrickstar.runtime import initialize_engine  # noqa: E402

STEPS = 3


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(WIDTH, 200)  # in several chunks
        self.norm, self.drop, self.out = nn.BatchNorm1d(200), nn.Dropout(0.2), nn.Linear(200, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.out(self.drop(self.norm(self.wide(self.frozen(x)))))


def build(folder):
    _client.MEASURE = 0  # PyTorch itself takes more than these budgets
    return initialize_engine(Model, 0, config(
        BF16, memory__device="256KB", memory__host="128KB", comm__staging=65536,
        train={"threads": 1, "save_interval": 2, "output_dir": os.path.join(folder, "run")}))


def train(model, optimizer, first, n):
    losses = []
    for step in range(first, first + n):
        optimizer.zero_grad()
        x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(100 * step + model.ranks.rank)).to(BF16)
        loss = square(model(x))
        model.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


def state_of(model):
    client = model.client
    return {"values": masters(model), "steps": [client.get_steps(slot.number) for slot in model.front.slots],
            "states": [{name: client.read(slot.number, name, slot.shape) for name in client.get_state_names()}
                       for slot in model.front.slots]}


def save(model, optimizer, folder, rank):
    torch.manual_seed(50 + rank)  # dropout of its own
    train(model, optimizer, 0, STEPS)
    for state in ({"bad": Model} if rank == 1 else {}, {"bad": Model}):
        try:
            model.save_checkpoint(os.path.join(folder, "saved"), client_state=state)
            raise AssertionError("what one rank could not give was saved")
        except PatrickStarError as error:
            assert "client_state" in str(error) or rank == 0, error
    model.save_checkpoint(os.path.join(folder, "saved"), client_state={"rank": rank})
    kept = state_of(model)
    kept["buffers"] = {name: buffer.clone() for name, buffer in model.module.named_buffers()}
    model.save_weights(os.path.join(folder, "weights.safetensors"))
    kept["losses"] = train(model, optimizer, STEPS, STEPS)
    torch.save(kept, os.path.join(folder, "rank-%d.pt" % rank))
    model.close()


def load(model, optimizer, folder, rank):
    n_ranks = model.ranks.size
    if n_ranks > 1:
        try:
            model.load_checkpoint(os.path.join(folder, "saved" if rank == 0 else "nowhere"))
            raise AssertionError("ranks have loaded different checkpoints")
        except PatrickStarError as error:
            assert "step-000003, none" in str(error), error
    path, state = model.load_checkpoint(os.path.join(folder, "saved"))
    assert path.endswith("step-%06d" % STEPS), path
    assert state == {"rank": rank % 2}, state
    then = torch.load(os.path.join(folder, "rank-%d.pt" % (rank % 2)))
    now = state_of(model)
    for name, value in then["values"].items():
        assert torch.equal(value, now["values"][name]), name
    assert then["steps"] == now["steps"], now["steps"]
    for one, other in zip(then["states"], now["states"]):
        assert all(torch.equal(one[name], other[name]) for name in one)
    for name, buffer in model.module.named_buffers():
        assert torch.equal(buffer, then["buffers"][name]), name
    losses = train(model, optimizer, STEPS, STEPS)
    assert n_ranks != 2 or losses == then["losses"], (losses, then["losses"])
    model.close()


def tags(model, optimizer, folder, rank):
    """Ranks that give different tags are refused, where one is within the other, too; and nothing is mixed."""
    for mine in (("ab", "a"), ("a", "ab"), (None, "a"), ("a", None)):
        try:
            model.save_checkpoint(folder, tag=mine[rank])
            raise AssertionError("%s were saved as one" % (mine,))
        except PatrickStarError as error:
            assert "rank 1 saves checkpoint %s, and rank 0 %s: all ranks must give the same tag" % tuple(
                tag or "step-000000" for tag in reversed(mine)) in str(error), error
    assert rank > 0 or os.listdir(folder) == ["run"], os.listdir(folder)
    model.save_checkpoint(folder, tag="one")
    model.module.out.weight.data.add_(1)
    model.save_checkpoint(folder, tag="two")
    before = masters(model)
    try:
        model.load_checkpoint(folder, tag=("one", "two")[rank])
        raise AssertionError("ranks have loaded different checkpoints")
    except PatrickStarError as error:
        assert "the ranks have found different checkpoints of the same step" in str(error), error
    for name, value in masters(model).items():
        assert torch.equal(value, before[name]), name
    assert model.load_checkpoint(folder, tag="one")[0] == os.path.join(folder, "one")
    assert not torch.equal(masters(model)["out.weight"], before["out.weight"])
    model.close()


def main():
    folder, what = sys.argv[1:]
    torch.manual_seed(0)
    model, optimizer = build(folder)
    {"save": save, "load": load, "tags": tags}[what](model, optimizer, folder, model.ranks.rank)


if __name__ == "__main__":
    main()
