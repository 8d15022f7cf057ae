#!/usr/bin/env python3
"""Writes gpt2_optimizer_*: a smaller GPT-2 of make_gpt2_tiny.py after three steps, with its optimizer's state_dict as torch.save
writes it, and what five more steps give.

usage: python3 make_gpt2_optimizer.py [FOLDER]       (default: the folder of this script)

gpt2_optimizer_<kind>.safetensors has the weights after three steps ("init."), those after eight ("final."), tokens, targets,
losses, rates and gradient norms of the five. gpt2_optimizer_<kind>.pt has the optimizer after three. Kinds:

    adamw        two groups, of those that decay and those that do not, as trainers of transformers make them
    adam         one group, model.parameters()
    named        AdamW in a dictionary of a trainer's, under "optimizer"; its parameters in another order, with "param_names" as
                 PyTorch 2.6 keeps them (put in here: this PyTorch does not)
    sgd          momentum and dampening; its states are momentum_buffer, without a step

gpt2_optimizer_odd_<kind>.pt are of the same model, all states views of one storage: element i of each is (i % 64) / 64.

    three        three groups without names
    steps        the fifth parameter has made a step more
    missing      the fifth parameter has no state
    amsgrad      max_exp_avg_sq beside the others
    fresh        before the first step: no state
    types        exp_avg bfloat16, exp_avg_sq float64, step the integer 7
"""
import os
import sys

import torch

import make_gpt2_tiny as tiny

tiny.V, tiny.T, tiny.C, tiny.L, tiny.H = 131, 8, 16, 2, 2
N_BEFORE, N_AFTER = 3, 5


def one_group(p, weight_decay):
    return list(p.values())


def make(kind, number, groups, make_optimizer, max_norm, lr_at):
    generator = torch.Generator().manual_seed(20261100 + number)
    p = tiny.make_parameters(True, generator, torch.float32)
    tokens, targets = tiny.make_batches(N_BEFORE + N_AFTER, 1, generator)
    kept = []

    def keep(p):
        if not kept:
            kept.append(make_optimizer(groups(p)))
        return kept[0]

    tiny.train(p, tokens[:N_BEFORE], targets[:N_BEFORE], tiny.gelu_new, keep, max_norm, lr_at)
    state = kept[0].state_dict()
    if kind == "named":
        names = {id(x): n for n, x in p.items()}
        for group, saved in zip(kept[0].param_groups, state["param_groups"]):
            saved["param_names"] = ["transformer." + names[id(x)] for x in group["params"]]
        state = {"epoch": 1, "optimizer": state}
    path = os.path.join(FOLDER, f"gpt2_optimizer_{kind}.pt")
    torch.save(state, path)
    print(os.path.basename(path), os.path.getsize(path))
    after = tiny.train(p, tokens[N_BEFORE:], targets[N_BEFORE:], tiny.gelu_new, keep, max_norm,
                       lambda s: lr_at(s + N_BEFORE))
    after = {n: x for n, x in after.items() if not n.startswith("grad.")}
    tiny.save_safetensors(os.path.join(FOLDER, f"gpt2_optimizer_{kind}.safetensors"), after, {"optimizer": kind})


def reversed_groups(p, weight_decay):
    return [{**g, "params": g["params"][::-1]} for g in tiny.decay_groups(p, weight_decay)[::-1]]


def odd(kind):
    p = tiny.make_parameters(True, torch.Generator().manual_seed(1), torch.float32)
    values = torch.arange(131 * 16) % 64 / 64
    halves, doubles = values.bfloat16(), values.double()
    state, n = {}, len(p)
    for i, x in enumerate(p.values()):
        def view(storage):
            return storage[:x.numel()].view(x.shape)

        state[i] = {"step": torch.tensor(3.0), "exp_avg": view(values), "exp_avg_sq": view(values)}
        if kind == "amsgrad":
            state[i]["max_exp_avg_sq"] = view(values)
        if kind == "types":
            state[i] = {"step": 7, "exp_avg": view(halves), "exp_avg_sq": view(doubles)}
    if kind == "steps":
        state[4]["step"] += 1
    if kind == "missing":
        del state[4]
    if kind == "trained":  # of all but number 4, as of filter(lambda p: p.requires_grad, model.parameters())
        n -= 1
        state = {i: state[i + (i >= 4)] for i in range(n)}
    cuts = [0, 2, 5, n] if kind == "three" else [0, n]
    groups = [{"lr": 1e-3, "params": list(range(a, b))} for a, b in zip(cuts, cuts[1:])]
    path = os.path.join(FOLDER, f"gpt2_optimizer_odd_{kind}.pt")
    torch.save({"state": {} if kind == "fresh" else state, "param_groups": groups}, path)
    print(os.path.basename(path), os.path.getsize(path))


def cosine(step):
    return tiny.warmup_cosine(1e-3, 2, 10, step)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    def adamw(g):
        return torch.optim.AdamW(g, lr=0.0, betas=(0.9, 0.95), eps=1e-8)

    def adam(g):
        return torch.optim.Adam(g, lr=0.0, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)

    def sgd(g):
        return torch.optim.SGD(g, lr=0.1, momentum=0.9, dampening=0.25)

    make("adamw", 1, lambda p: tiny.decay_groups(p, 0.1), adamw, 0.5, cosine)
    make("adam", 2, lambda p: one_group(p, 0.0), adam, 0.5, cosine)
    make("named", 3, lambda p: reversed_groups(p, 0.1), adamw, 0.5, cosine)
    for kind in ("three", "steps", "missing", "amsgrad", "fresh", "types", "trained"):
        odd(kind)
    make("sgd", 4, lambda p: tiny.decay_groups(p, 0.01), sgd, 0.0, lambda s: 0.1)


FOLDER = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
if __name__ == "__main__":
    main()
