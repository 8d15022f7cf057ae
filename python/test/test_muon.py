"""optimizer.type = Muon: the numbers of torch.optim.Muon (2.9) and AdamW, here in float64; the same bits in any memory;
state_dict and checkpoints. test/external/test_client_muon.c has programs without PyTorch."""
import math
import os
import tempfile
import unittest

import torch
import torch.nn as nn

from patrickstar.runtime.optimizer import kind_of
from support import BF16, F32, LR, Case, engine, master, masters, square, values
from test_early_updates import count_no_activations

WIDTH, MIDDLE = 48, 64  # matrices of two chunks
SMALL = {"memory__device": "600KB", "memory__host": 0, "memory__disk": "8MB"}
N_STEPS = 5


class Net(nn.Module):
    """Matrices that are tall, wide and square; an embedding and a head, which AdamW updates by their names."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.norm, self.down = nn.Linear(WIDTH, MIDDLE), nn.LayerNorm(MIDDLE), nn.Linear(MIDDLE, WIDTH)
        self.same, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8)

    def forward(self, x):
        x = self.embed(x)
        return self.head(self.same(self.down(torch.tanh(self.norm(self.up(x))))))


NAMES = ["embed.*", "head.weight"]


def muon(**params):
    return {"type": "Muon", "params": {"lr": LR, "adamw_names": NAMES, **params}}


def is_whole(name, param):
    return param.dim() == 2 and not name.startswith("embed") and name != "head.weight"


def orthogonalized(u, n_steps=5, eps=1e-7):
    """Jordan et al. 2024: Newton-Schulz of fifth order."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = u / max(u.norm().item(), eps)
    for _ in range(n_steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class Reference:
    """In float64, by parameter: options as those of optimizer.params."""

    def __init__(self, plain, momentum=0.95, nesterov=True, weight_decay=0.1, betas=(0.9, 0.999), matches_rms=False,
                 of=lambda name: {}):
        self.plain, self.t, self.of = plain, 0, of
        self.options = dict(momentum=momentum, nesterov=nesterov, weight_decay=weight_decay, betas=betas,
                            matches_rms=matches_rms, lr=LR, n_steps=5)
        self.values = {name: param.detach().double() for name, param in plain.named_parameters()}
        self.states = {name: torch.zeros(2, *value.shape, dtype=torch.float64) for name, value in self.values.items()}

    @torch.no_grad()
    def step(self):
        self.t += 1
        for name, param in self.plain.named_parameters():
            o = {**self.options, **self.of(name)}
            w, g, state = self.values[name], param.grad.double(), self.states[name]
            w.mul_(1 - o["lr"] * o["weight_decay"])
            if is_whole(name, param):
                state[0].lerp_(g, 1 - o["momentum"])
                u = g.lerp(state[0], o["momentum"]) if o["nesterov"] else state[0]
                rows, cols = w.shape
                ratio = 0.2 * math.sqrt(max(rows, cols)) if o["matches_rms"] else math.sqrt(max(1, rows / cols))
                w.sub_(o["lr"] * ratio * orthogonalized(u, o["n_steps"]))
            else:
                first, second = o["betas"]
                state[0].lerp_(g, 1 - first)
                state[1].mul_(second).add_((1 - second) * g * g)
                v = state[1] / (1 - second ** self.t)
                w.sub_(o["lr"] / (1 - first ** self.t) * state[0] / (v.sqrt() + 1e-8))
            param.copy_(w.float())


def compare(case, params, groups=(), **numbers):
    model, optimizer = engine(Net, F32, optimizer={**muon(ns_gemms="fp32", **params), "param_groups": list(groups)})
    plain = Net()
    plain.load_state_dict(model.state_dict())
    reference = Reference(plain, **numbers)
    for _ in range(N_STEPS):
        x = values(4, WIDTH, dtype=F32)
        optimizer.zero_grad()
        loss = square(model(x))
        model.backward(loss)
        optimizer.step()
        plain.zero_grad()
        expected = square(plain(x))
        expected.backward()
        reference.step()
        case.assertAlmostEqual(loss.item(), expected.item(), delta=2e-5)
    for name, value in reference.values.items():
        case.assertLess((master(model, name).double() - value).abs().max().item(), 5e-5, name)
    return model, optimizer, reference


def trained(n_steps=N_STEPS, dtype=BF16, first=0, run=None, make=Net, **more):
    model, optimizer = run or engine(make, dtype, **{"optimizer": muon(), **more})
    if not hasattr(model.client.moment, "is_counted"):
        count_no_activations(model)
        model.client.moment.is_counted = True
    losses = []
    for t in range(first, first + n_steps):
        torch.manual_seed(t)
        optimizer.zero_grad()
        loss = square(model(values(4, WIDTH, dtype=dtype)))
        model.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return model, optimizer, losses


class Muon(Case):
    def test_numbers(self):
        compare(self, {})
        compare(self, {"momentum": 0.8, "nesterov": False, "weight_decay": 0.01, "betas": [0.8, 0.9],
                       "adjust_lr_fn": "match_rms_adamw"},
                momentum=0.8, nesterov=False, weight_decay=0.01, betas=(0.8, 0.9), matches_rms=True)

    def test_groups(self):
        own = {"lr": LR / 4, "momentum": 0.7, "ns_steps": 3}
        model, optimizer, _ = compare(self, {}, [{"params": ["up.*"], **own}], of=lambda name: {
            "lr": LR / 4, "momentum": 0.7, "n_steps": 3} if name.startswith("up.") else {})
        first, second = optimizer.param_groups
        self.assertEqual((second["lr"], second["momentum"], second["ns_steps"]), (LR / 4, 0.7, 3))
        self.assertEqual((first["momentum"], first["nesterov"], first["ns_steps"], first["betas"]),
                         (0.95, True, 5, (0.9, 0.999)))
        second["momentum"] = 0.9
        self.refused(optimizer.step, "param_groups[1]['momentum'] = 0.9: it is fixed, 0.7")
        second.update(momentum=0.7, lr=0.)
        before = masters(model)
        trained(1, F32, run=(model, optimizer))
        for name, value in masters(model).items():
            self.assertEqual(torch.equal(before[name], value), name.startswith("up."), name)

    def test_same_bits(self):
        for dtype in (BF16, F32):
            base, _, losses = trained(dtype=dtype)
            for more in (SMALL, {**SMALL, "memory__host": "600KB"}, {**SMALL, "default_chunk_size": 4096},
                         {**SMALL, "memory__defer_updates": False},
                         {**SMALL, "memory__update_in_backward": "speculate", "gradient_clipping": 100.}):
                other, _, theirs = trained(dtype=dtype, **more)
                self.assertEqual(theirs, losses, more)
                self.same_masters(base, other)

    def test_early_updates(self):
        at_once = {"gradient_clipping": 0, "train__max_nonfinite_steps": 1}
        base, _, losses = trained(**at_once)
        for more in ({"default_chunk_size": 4096}, {}):
            model, optimizer, theirs = trained(**at_once, **SMALL, memory__update_in_backward="always", **more)
            self.assertEqual(theirs, losses)
            self.same_masters(base, model)
            self.assertEqual(optimizer.last_step.n_early > 0, bool(more))  # not those of matrices in several chunks

    def test_accumulation_and_clipping(self):
        def run(**more):
            model, optimizer = engine(Net, BF16, optimizer=muon(), gradient_clipping=0.05,
                                      gradient_accumulation_steps=2, **more)
            return trained(2 * N_STEPS, run=(model, optimizer))
        base, _, losses = run()
        other, _, theirs = run(**SMALL)
        self.assertEqual(losses, theirs)
        self.same_masters(base, other)

    def test_state_dict(self):
        model, optimizer, reference = compare(self, {})
        saved = optimizer.state_dict()
        self.assertEqual(set(saved["param_groups"][0]), {
            "params", "lr", "weight_decay", "betas", "eps", "momentum", "nesterov", "ns_coefficients", "ns_eps",
            "ns_steps", "adjust_lr_fn"})
        for number, (name, param) in enumerate(reference.plain.named_parameters()):
            state = saved["state"][number]
            whole = is_whole(name, param)
            self.assertEqual(sorted(state), ["momentum_buffer"] if whole else ["exp_avg", "exp_avg_sq", "step"])
            for key, want in zip(["momentum_buffer"] if whole else ["exp_avg", "exp_avg_sq"], reference.states[name]):
                self.assertEqual((state[key].dtype, state[key].shape), (F32, param.shape))
                self.assertLess((state[key].double() - want).abs().max().item(), 2e-6)
            if not whole:
                self.assertEqual(state["step"].item(), N_STEPS)
        other, resumed = engine(Net, F32, optimizer=muon(ns_gemms="fp32"), **SMALL)
        other.load_state_dict(model.state_dict())
        resumed.load_state_dict(saved)
        trained(2, F32, N_STEPS, (model, optimizer))
        trained(2, F32, N_STEPS, (other, resumed))
        self.same_masters(model, other)

    def test_states_of_torch(self):
        """As torch.optim.Muon and AdamW would have them: without this library's own part."""
        model, optimizer, _ = trained(3, F32)
        saved = optimizer.state_dict()
        del saved["patrickstar"]
        other, resumed = engine(Net, F32, optimizer=muon())
        other.load_state_dict(model.state_dict())
        resumed.load_state_dict(saved)
        trained(2, F32, 3, (model, optimizer))
        trained(2, F32, 3, (other, resumed))
        self.same_masters(model, other)
        numbers = {slot.name: number for number, slot in enumerate(other.front.slots)}
        state = saved["state"]
        state[numbers["same.weight"]]["exp_avg"] = torch.zeros(WIDTH, WIDTH)
        self.refused(lambda: resumed.load_state_dict(saved), "exp_avg of same.weight; Muon keeps ['momentum_buffer'] of "
                     "it: optimizer.params.adamw_names", ValueError)
        del state[numbers["same.weight"]]["exp_avg"], state[numbers["up.bias"]]["exp_avg_sq"]
        self.refused(lambda: resumed.load_state_dict(saved), "exp_avg_sq of up.bias is missing", ValueError)

    def test_checkpoints(self):
        model, optimizer, _ = trained(3, **SMALL)
        with tempfile.TemporaryDirectory() as folder:
            model.save_checkpoint(os.path.join(folder, "saved"))
            other, resumed = engine(Net, BF16, optimizer=muon())
            other.load_checkpoint(os.path.join(folder, "saved"))
            self.assertEqual(trained(2, BF16, 3, (model, optimizer))[2], trained(2, BF16, 3, (other, resumed))[2])
            self.same_masters(model, other)
            fewer, _ = engine(Net, BF16, optimizer=muon(adamw_names=""))
            self.refused(lambda: fewer.load_checkpoint(os.path.join(folder, "saved")), "embed.weight")

    def test_memory(self):
        """8 bytes of states an element for AdamW, 4 for Muon."""
        def bytes_of(**more):
            return sum(use.device_bytes + use.host_bytes + use.disk_bytes
                       for use in trained(2, **more)[0].client.get_memory_use()
                       if use.name in (b"MOMENTUM", b"MEAN", b"VARIANCE"))
        self.assertLess(bytes_of(), 0.8 * bytes_of(optimizer={"type": "AdamW", "params": {"lr": LR}}))

    def test_muon_of_torch_is_refused(self):
        class Muon(torch.optim.SGD):
            pass
        self.refused(lambda: kind_of(Muon([nn.Parameter(torch.zeros(2, 2))], lr=LR)),
                     'set optimizer.type = "Muon" of the configuration')


if __name__ == "__main__":
    unittest.main()
