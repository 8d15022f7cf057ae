"""patrickstar.init: a module that is built without model_func has the bits of one that is built by it."""
import copy
import gc
import json
import os
import tempfile
import unittest
import weakref

import torch
import torch.nn as nn

from patrickstar import BudgetError, Refused, init, initialize_engine
from patrickstar._build import StagedParameter
from patrickstar._torch import ParametersDict
from support import (BF16, F32, VERSION, WIDTH, Case, Two, config, engine, master, masters, once, run_worker, square,
                     start_ranks, values)
from test_construction import Busy, Scoped

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "init_worker.py")


def build(make, given=None, **options):
    torch.manual_seed(0)
    with init(given or config(), **options):
        return make()


class Modules(Case):
    def same_as_by_function(self, make, dtype, train=True):
        by_function = engine(make, dtype)
        in_block = initialize_engine(model=build(make, config(dtype)))
        for step in range(2 if train else 0):
            for model, optimizer in (by_function, in_block):
                torch.manual_seed(step)
                once(model, optimizer, values(dtype=dtype))
        expected, found = by_function[0].state_dict(), in_block[0].state_dict()
        self.assertEqual(list(expected), list(found))
        for name, value in expected.items():
            self.assertTrue(torch.equal(value, found[name]), name)
        return in_block

    def test_the_bits_of_a_function(self):
        for dtype in (F32, BF16):
            with self.subTest(dtype=dtype):
                self.same_as_by_function(Two, dtype)
                self.same_as_by_function(Busy, dtype, train=False)
                model, _ = self.same_as_by_function(Scoped, dtype)
                self.assertEqual([slot.name for slot in model.front.slots if slot.is_unmanaged], ["b.weight", "b.bias"])

    def test_the_module_is_the_engines(self):
        module = build(Two)
        self.assertIs(type(module.a.weight), StagedParameter)
        model, optimizer = initialize_engine(module, config=config())  # as the first argument, and the same again
        self.assertIs(model.module, module)
        once(model, optimizer, values())

    def test_a_decorator(self):
        @init(config())
        def make():
            return Two()
        model, optimizer = initialize_engine(model=make())
        once(model, optimizer, values())

    def test_until_the_engine_it_is_an_ordinary_module(self):
        """What programs do between building a model and training it has the effect that it has on any module."""
        class Grows(Two):
            def forward(self, x):
                return self.head(super().forward(x))

        def change(model):
            model.head = nn.Linear(WIDTH, 3)
            model.a.weight = nn.Parameter(torch.ones(WIDTH, WIDTH))
            model.b.weight = nn.Parameter(model.b.weight * 2)
            model.a.bias.data = torch.full((WIDTH,), 2.)
            nn.utils.parametrize.register_parametrization(model.head, "weight", nn.Identity())
            model.load_state_dict({key: value + 1 for key, value in model.state_dict().items()})
            model.b.requires_grad_(False)
            with torch.no_grad():
                model.b.bias.mul_(model(torch.ones(1, WIDTH)).sum())
            return model.half().float()
        import torch.nn.utils.parametrize  # noqa: F401
        torch.manual_seed(0)
        plain = change(Grows())
        module = change(build(Grows, config(F32)))
        other = copy.deepcopy(module)
        self.assertIs(type(other.a.weight), nn.Parameter)
        self.assertIs(type(other._parameters), ParametersDict)
        square(other(values(dtype=F32))).backward()
        model, optimizer = initialize_engine(model=module)
        for name, value in plain.state_dict().items():
            self.assertTrue(torch.equal(model.state_dict()[name], value), name)
        before = masters(model)
        once(model, optimizer, values(dtype=F32))
        self.assertEqual({name for name, value in masters(model).items() if torch.equal(value, before[name])},
                         {"b.weight", "b.bias"})

    def test_two_models_each_in_a_block(self):
        one, two = build(Two), build(Two)
        for module in (two, one):
            model, optimizer = initialize_engine(model=module)
            once(model, optimizer, values())
        self.assertNotIn("_ps_staged", one.a.weight.__dict__)

    def test_parts_from_outside(self):
        """Modules that were built before the block, or after it, are adopted."""
        before = nn.Linear(WIDTH, WIDTH)
        inner = build(Two)
        first = before.weight.detach().clone()
        module = nn.Sequential(before, inner, nn.Linear(WIDTH, WIDTH))
        model, optimizer = initialize_engine(model=module)
        self.assertEqual(len(model.front.slots), 8)
        self.assertTrue(torch.equal(master(model, "0.weight"), first))
        once(model, optimizer, values())

    @unittest.skipIf(VERSION < (2, 0), "PyTorch 1.13 has no torch.device context")
    def test_on_meta(self):
        with init(config(F32)), torch.device("meta"):
            module = Two()
        self.assertEqual(module.a.weight.device.type, "meta")
        model, optimizer = initialize_engine(model=module)
        once(model, optimizer, values(dtype=F32))

    def test_nothing_is_left_of_the_patches(self):
        new, start = nn.Parameter.__new__, nn.Module.__init__
        module = build(Two)
        self.assertIs(nn.Module.__init__, start)
        self.assertIs(type(nn.Linear(2, 2).weight), nn.Parameter)
        initialize_engine(model=module)
        self.assertIs(nn.Parameter.__new__, new)


class Memory(Case):
    def test_a_third_of_the_model_data(self):
        from test_memory import DEVICE, HOST, MARGIN
        took = run_worker("memory_worker.py", DEVICE, HOST, 64, 10**9, "init")
        self.assertGreater(took["model_data_bytes"], 2.8 * (DEVICE + HOST))
        self.assertLess(took["built_bytes"], DEVICE + HOST + MARGIN)
        self.assertLess(took["trained_bytes"], DEVICE + HOST + MARGIN)

    def test_the_budget_of_the_process(self):
        from test_memory_limit import SLACK, least_total
        total = least_total() + (10 << 20)
        took = run_worker("limit_worker.py", json.dumps(total), 16, "init", 8, 8)
        self.assertLess(took["peak_bytes"], total * SLACK, took)


class Failures(Case):
    def lost(self, module):
        self.refused(lambda: module.a.weight + 1, "has no values any more", Refused)
        self.refused(lambda: engine(lambda: module), "has no values any more", Refused)
        self.assertIs(type(module._parameters), ParametersDict)

    def test_an_exception_in_the_block_frees_everything(self):
        clients, kept = [], []

        def fails():
            kept.append(Two())
            clients.append(weakref.ref(kept[0]._parameters.builder.client))
            self.assertTrue(clients[0]().is_open())
            1 / 0
        new = nn.Parameter.__new__
        self.refused(lambda: build(fails), "division", ZeroDivisionError)
        gc.collect()
        self.assertTrue(clients[0]() is None or not clients[0]().is_open())
        self.assertIs(nn.Parameter.__new__, new)
        self.lost(kept[0])
        once(*initialize_engine(model=build(Two)), values())

    def test_a_budget_that_is_too_small(self):
        small = config(F32, memory={"device": "20kB", "host": "0", "disk": "0"})
        module = build(lambda: nn.ModuleDict({"a": nn.Linear(256, 256)}), small)
        self.refused(lambda: initialize_engine(model=module), "raise it to at least memory.disk=1.06MB", BudgetError)
        self.refused(lambda: module["a"].weight.sum(), "a.weight has no values any more", Refused)

    def test_a_model_that_is_never_given(self):
        new = nn.Parameter.__new__
        with tempfile.TemporaryDirectory() as folder:
            given = config(train={"output_dir": folder, "save_interval": 1})
            module = build(Two, given)
            self.refused(lambda: build(Two, given), "another engine of this process", RuntimeError)
            client = weakref.ref(module._parameters.builder.client)
            del module
            gc.collect()
            self.assertIsNone(client())
            self.assertIs(nn.Parameter.__new__, new)
            model, optimizer = initialize_engine(model=build(Two, given))
            once(model, optimizer, values())
            model.close()

    def test_training_before_initialize_engine(self):
        module = build(Two, config(F32))
        other = torch.optim.SGD(module.parameters(), lr=1.)
        before = module.a.weight.detach().clone()
        self.refused(lambda: square(module(values(dtype=F32))).backward(), "initialize_engine(model=model)", Refused)
        other.step()
        model, optimizer = initialize_engine(model=module)
        self.assertTrue(torch.equal(master(model, "a.weight"), before))
        once(model, optimizer, values(dtype=F32))

    def test_two_models_in_a_block(self):
        with init(config()):
            one, two = Two(), nn.Linear(WIDTH, WIDTH)
        self.refused(lambda: initialize_engine(model=one),
                     "a Linear that was built in the block of patrickstar.init is not part of the model, Two", Refused)
        del two
        once(*initialize_engine(model=one), values())

    def test_nesting(self):
        def twice():
            with init(config()):
                return Two()
        self.refused(lambda: build(twice), "within the block of another one", Refused)
        self.refused(lambda: engine(twice), "within the block of another one", Refused)
        self.refused(lambda: build(lambda: initialize_engine(model=Two())), "after the end of the block", Refused)

    def test_parts_of_two_blocks(self):
        module = nn.Sequential(build(Two), build(Two))
        self.refused(lambda: initialize_engine(model=module), "in one block", Refused)
        self.refused(lambda: engine(lambda: module), "(model=), not a function", Refused)

    def test_an_empty_block(self):
        self.refused(lambda: build(lambda: None), "no module was built", Refused)

    def test_another_configuration(self):
        module = build(Two, config(F32))
        self.refused(lambda: initialize_engine(model=module, config=config(F32, gradient_clipping=1)),
                     "gradient_clipping is 1", RuntimeError)
        self.refused(lambda: initialize_engine(model=module, local_rank=1), "patrickstar.init was given", RuntimeError)
        self.refused(lambda: initialize_engine(model=module, process_group=object()), "process_group", RuntimeError)
        self.refused(lambda: build(Two, {"memory": {"devize": 1}}), "devize", RuntimeError)
        once(*initialize_engine(model=module, config=config(F32)), values(dtype=F32))

    def test_arguments(self):
        self.refused(lambda: initialize_engine(), "found neither", RuntimeError)
        self.refused(lambda: initialize_engine(Two, model=Two()), "found both", RuntimeError)
        self.refused(lambda: initialize_engine(model=Two), "model_func", RuntimeError)


@unittest.skipUnless(torch.distributed.is_available() and torch.distributed.is_gloo_available(),
                     "torch.distributed with gloo")
class Ranks(Case):
    def test_first_values_are_those_of_rank_0(self):
        for status, text in start_ranks(WORKER, "train"):
            self.assertEqual(status, 0, text)
            self.assertIn("done", text)

    def test_a_rank_that_fails_in_the_block(self):
        done = start_ranks(WORKER, "fail_on_one")
        self.assertNotEqual(done[0][0], 0, done[0][1])
        self.assertIn("failed: ValueError: no file", done[0][1])

    def test_never_given(self):
        for status, text in start_ranks(WORKER, "never_given"):
            self.assertEqual(status, 0, text)


if __name__ == "__main__":
    unittest.main()
