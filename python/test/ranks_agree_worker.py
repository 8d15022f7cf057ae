"""Trains a small network on this rank's part of each batch: what test_ranks_agree.py starts.

usage: ranks_agree_worker.py FOLDER [FORMAT]
Writes FOLDER/losses.json (rank 0: the mean over all ranks, step by step), model-RANK.pt (what this rank keeps),
whole.pt and optimizer.pt (rank 0).
"""
import ctypes
import json
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

N_STEPS, BATCH, VOCABULARY = 6, 12, 40


class Net(nn.Module):
    """Tied, used twice, unused, frozen: what ranks could disagree about."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 48)
        self.layers = nn.ModuleList([nn.Linear(48, 48) for _ in range(4)])
        self.norm = nn.LayerNorm(48)
        self.unused = nn.Linear(48, 8)
        self.frozen = nn.Linear(48, 48).requires_grad_(False)
        self.head = nn.Linear(48, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.frozen(self.embedding(tokens))
        for layer in self.layers:
            x = x + F.gelu(layer(self.norm(x)))
        return self.head(self.norm(x))


def make():
    torch.manual_seed(0)
    net = Net()
    nn.init.normal_(net.embedding.weight, std=0.1)
    return net


def loss_of(model, tokens):
    return F.cross_entropy(model(tokens).float().view(-1, VOCABULARY), (tokens.view(-1) + 1) % VOCABULARY)


def batch_of(step):
    return torch.randint(0, VOCABULARY, (BATCH, 5), generator=torch.Generator().manual_seed(step))


def main():
    from patrickstar._library import check, library
    from patrickstar.runtime import initialize_engine
    folder, number_format = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "fp32"
    torch.set_num_threads(1)
    config = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}}, "default_chunk_size": 4096,
              "memory": {"device": "100MB", "host": 0, "disk": 0}, "train": {"threads": 1}}
    if number_format == "bf16":
        config["bf16"] = {"enabled": True}
    model, optimizer = initialize_engine(model_func=make, local_rank=0, config=config)
    rank, size = model.ranks.rank, model.ranks.size
    losses = []
    for step in range(N_STEPS):
        loss = loss_of(model, batch_of(step)[rank * BATCH // size:(rank + 1) * BATCH // size])
        model.backward(loss)
        optimizer.step()
        mean = (ctypes.c_double * 1)(loss.item() / size)
        if size > 1:
            check(library.ps_comm_all_reduce(model.ranks.comm, mean, ctypes.c_int64(1), 0))
        losses.append(mean[0])
    torch.save(model.state_dict(whole=False), os.path.join(folder, "model-%d.pt" % rank))
    whole, states = model.state_dict(), optimizer.state_dict()
    if rank == 0:
        torch.save(whole, os.path.join(folder, "whole.pt"))
        torch.save(states, os.path.join(folder, "optimizer.pt"))
        with open(os.path.join(folder, "losses.json"), "w") as file:
            json.dump(losses, file)
    model.close()


if __name__ == "__main__":
    main()
