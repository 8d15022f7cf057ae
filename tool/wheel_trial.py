"""Trains a small Transformer by the installed package, within budgets and without, and compares the weights.

usage: python3 wheel_trial.py
"""
import torch

from patrickstar.runtime import initialize_engine


def model_func():
    torch.manual_seed(1)
    return torch.nn.Sequential(*[torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0) for _ in range(8)])


def train(memory):
    config = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "memory": memory}
    model, optimizer = initialize_engine(model_func=model_func, local_rank=0, config=config)
    torch.manual_seed(2)
    x = torch.randn(4, 16, 256)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), x)
        model.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.clone() for name, value in model.state_dict().items()}


losses, weights = train({"device": "60MB", "host": "8MB", "disk": "1GB", "disk_path": "/var/tmp"})
_, expected = train({"device": "400MB", "host": "400MB"})
assert losses[-1] < 0.9 * losses[0], losses
different = [name for name in expected if not torch.equal(weights[name], expected[name])]
assert not different, different
print("loss %.4f -> %.4f; within 68 MB of memory the weights are those of 800 MB, to the bit" % (losses[0], losses[-1]))
