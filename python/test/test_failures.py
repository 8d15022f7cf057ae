"""After a failure everything is as it was: modules, memory and ranks after one of initialize_engine, and a program that
went on after one of a backward pass ends well."""
import copy
import os
import pickle
import subprocess
import sys
import unittest

import torch
import torch.distributed as dist
import torch.nn as nn

from support import F32, VERSION, WIDTH, Case, Two, config, once, torchrun, values
from patrickstar import BudgetError, PatrickStarError, Refused, _client, _library
from patrickstar.runtime import initialize_engine

FOLDER = os.path.dirname(os.path.abspath(__file__))
TOO_LITTLE = {"memory__device": "1KB", "memory__host": 0, "memory__disk": 0}


class Tied(nn.Module):
    """With what there is to keep: a tied weight, a frozen one, one that is not contiguous, a buffer."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.b.weight = self.a.weight
        self.c.bias.requires_grad_(False)
        self.c.weight.data = torch.randn(WIDTH, WIDTH).t()
        self.register_buffer("seen", torch.ones(()))

    def forward(self, x):
        return self.c(self.b(self.a(x)))


def start(given, **changed):
    return initialize_engine(given, 0, config(F32, **changed))


class Given(Case):
    """A module that is given is the one that it was before, and can be given again."""

    def fails(self, model, kind, call):
        before = copy.deepcopy(model.state_dict())
        params = list(model.named_parameters(remove_duplicate=False)) if VERSION >= (2, 0) else (
            list(model.named_parameters()))
        with self.assertRaises(kind):
            call()
        for module in model.modules():
            self.assertIs(type(module._parameters), type(nn.Module()._parameters))
        for name, param in params:
            module, _, key = name.rpartition(".")
            self.assertIs(model.get_submodule(module)._parameters[key], param)
            self.assertIs(type(param), nn.Parameter)
            self.assertEqual([key for key in vars(param) if key.startswith("_ps")], [])
            self.assertTrue(torch.equal(param, before[name]), name)
        self.assertEqual(list(model.state_dict()), list(before))
        copy.deepcopy(model)
        pickle.dumps(nn.ModuleList(model.children()))
        model.extra = nn.Parameter(torch.ones(2))
        del model.extra

    def goes_well(self, model):
        before = copy.deepcopy(model.state_dict())
        engine, optimizer = start(model)
        for name, value in before.items():
            self.assertTrue(torch.equal(engine.state_dict()[name], value), name)
        once(engine, optimizer, values(dtype=F32))

    def test_budgets(self):
        model = Tied()
        self.fails(model, BudgetError, lambda: start(model, **TOO_LITTLE))
        self.assertIs(model.a.weight, model.b.weight)
        self.assertFalse(model.c.bias.requires_grad)
        self.assertTrue(model.c.weight.requires_grad)
        square = model(values(dtype=F32)).pow(2).mean()
        square.backward()
        self.assertIsNotNone(model.a.weight.grad)
        self.goes_well(model)

    def test_refused_before_chunks(self):
        model = nn.Sequential(nn.Embedding(4, WIDTH, sparse=True), nn.Linear(WIDTH, WIDTH))
        self.fails(model, Refused, lambda: start(model))
        model[0].sparse = False
        start(model)
        wide = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH).double())
        self.fails(wide, Refused, lambda: start(wide))
        wide.float()
        self.goes_well(wide)

    def test_of_a_function(self):
        model = Two()
        self.fails(model, BudgetError, lambda: start(lambda: model, **TOO_LITTLE))
        self.goes_well(model)

    def test_options(self):
        model = Two()
        self.fails(model, PatrickStarError, lambda: start(model, train__freeze=["nothing of this name"]))
        self.goes_well(model)

    @unittest.skipIf(VERSION < (2, 0), "PyTorch 1.13 has no torch.device context")
    def test_on_meta(self):
        with torch.device("meta"):
            model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
        with self.assertRaises(BudgetError):
            start(model, **TOO_LITTLE)
        self.assertEqual({t.device.type for t in model.state_dict().values()}, {"meta"})
        engine, _ = start(model)
        self.assertEqual(engine.state_dict()["1.weight"].sum(), WIDTH)
        self.assertEqual(engine.state_dict()["1.running_var"].sum(), WIDTH)

    def test_memory_of_the_attempt_is_given_back_while_the_failure_is_handled(self):
        model = nn.Linear(1024, 1024)
        try:
            start(model, **TOO_LITTLE)
        except BudgetError:
            with open("/proc/self/maps") as maps:
                self.assertNotIn("memfd:patrickstar", maps.read())

    def test_values_that_went_are_refused_by_name(self):
        """A failure after they have moved."""
        model, real = Two(), _client.Client.get_info

        def fail(client):
            if client._has_begun:
                raise OSError("of the test")
            return real(client)
        _client.Client.get_info = fail
        try:
            with self.assertRaises(OSError):
                start(model)
        finally:
            _client.Client.get_info = real
        self.assertEqual(model.a.weight.shape, (WIDTH, WIDTH))
        for use in (lambda: start(model), lambda: model(values(dtype=F32)), lambda: model.a.weight.data,
                    lambda: copy.deepcopy(model), lambda: model.a.weight + 1):
            self.refused(use, "parameter a.weight has no values any more", Refused)
        model.a, model.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.goes_well(model)


class Built(Case):
    """What a function kept of a model that it built."""

    def test_is_ordinary(self):
        kept = []

        def make():
            model = Two()
            kept.extend([model, copy.deepcopy(model), model.a.weight.detach().clone()])
            return model
        with self.assertRaises(BudgetError):
            start(make, **TOO_LITTLE)
        self.assertTrue(torch.equal(kept[0].a.weight, kept[2]))
        self.assertTrue(torch.equal(kept[1].a.weight, kept[2]))
        for model in kept[:2]:
            start(model)

    def test_of_a_function_that_raises(self):
        kept = []

        def make():
            kept.append(Two())
            raise ValueError("of the test")
        with self.assertRaises(ValueError):
            start(make)
        model = kept[0]
        self.assertIs(type(model.a.weight), nn.Parameter)
        model.a.weight = nn.Parameter(torch.ones(WIDTH, WIDTH))
        pickle.dumps(copy.deepcopy(model.a))
        start(model)

    def test_views_stay(self):
        kept = []

        def make():
            model = Two()
            kept.extend([model.a.weight.data, model.a.weight.detach().clone()])
            return model
        self.refused(lambda: start(make), "a.weight", Refused)
        self.assertTrue(torch.equal(kept[0], kept[1]))


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "torch.distributed with gloo")
class Ranks(Case):
    def test_fail_and_go_on(self):
        status, text = torchrun(os.path.join(FOLDER, "failing_worker.py"))
        self.assertEqual(status, 0, text)
        for rank in range(2):
            self.assertIn("rank %d: done" % rank, text)


EXIT = """
import torch
from support import F32, Two, engine, values

class Boom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("of the test")

model, _ = engine(Two, F32)

def fail():
    x = values(dtype=F32)
    model.backward((model.module.b(x) + Boom.apply(model.module.a(x))).sum())

try:
    fail()
except ValueError:
    print("went on")
"""


class Backward(Case):
    def test_that_raised_lets_the_program_end_well(self):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", EXIT], cwd=FOLDER, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout), (0, "went on\n"))


class Stall(unittest.TestCase):
    def test_process_ends(self):
        """As the library calls it, from a thread of its own."""
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", "import threading\n"
             "from patrickstar import _library\n"
             "threading.Thread(target=lambda: _library._end_stalled(None, b'queue disk waits')).start()\n"
             "threading.Event().wait()"], stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.returncode, _library.EXIT_STALLED, done.stderr)
        self.assertEqual(done.stderr, "patrickstar: queue disk waits\n")


if __name__ == "__main__":
    unittest.main()
