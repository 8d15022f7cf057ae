"""accelerate: an Accelerator with PatrickStarPlugin trains as the plain one."""
import contextlib
import json
import logging
import os
import tempfile
import unittest
import unittest.mock
import warnings

import torch
import torch.nn as nn
import torch.optim.lr_scheduler as schedules

from hugging_face import HAS_CPU_RANKS, MEMORY, forget_accelerate, is_installed
from support import BF16, WIDTH, Case, config, engine, start_ranks

if not is_installed("accelerate"):
    raise unittest.SkipTest("accelerate is not installed")

import accelerate  # noqa: E402
from accelerate.utils import ProjectConfiguration  # noqa: E402
from accelerate.utils.deepspeed import DummyOptim  # noqa: E402

import patrickstar  # noqa: E402
from patrickstar import PatrickStarError, Refused  # noqa: E402
from patrickstar.integrations import Accelerator, PatrickStarPlugin  # noqa: E402
from patrickstar.runtime import Engine  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = {"memory": MEMORY, "default_chunk_size": 512}
N, BATCH, ACCUMULATION = 28, 2, 4  # 14 batches: the last group of an epoch is incomplete


def model_func():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, 1))


def data():
    torch.manual_seed(4)
    x = torch.randn(N, WIDTH)
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))


def optimizer_of(model):
    weights = [param for param in model.parameters() if param.dim() > 1]
    biases = [param for param in model.parameters() if param.dim() < 2]
    return torch.optim.AdamW([{"params": weights, "weight_decay": .1}, {"params": biases, "lr": 5e-3}], lr=1e-2,
                             weight_decay=0)


class Loop:
    """A training loop of accelerate, as its documentation has it."""

    def __init__(self, accelerator, max_norm=.5):
        self.accelerator, self.max_norm = accelerator, max_norm
        model = model_func()
        optimizer = optimizer_of(model)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1., .1, total_iters=12)
        generator = torch.Generator().manual_seed(6)
        loader = torch.utils.data.DataLoader(data(), batch_size=BATCH, shuffle=True, generator=generator)
        self.model, self.optimizer, self.loader, self.scheduler = accelerator.prepare(
            model, optimizer, loader, scheduler)
        self.losses, self.norms, self.rates, self.steps = [], [], [], 0

    def run(self, epochs=2):
        accelerator, model, optimizer = self.accelerator, self.model, self.optimizer
        model.train()
        for _ in range(epochs):
            for x, y in self.loader:
                with accelerator.accumulate(model):
                    loss = nn.functional.mse_loss(model(x), y)
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        norm = accelerator.clip_grad_norm_(model.parameters(), self.max_norm)
                    optimizer.step()
                    self.scheduler.step()
                    optimizer.zero_grad()
                    if accelerator.sync_gradients:
                        self.norms.append(norm.item())
                        self.rates.append([group["lr"] for group in optimizer.param_groups])
                        self.steps += 1
                self.losses.append(accelerator.gather(loss.detach().reshape(1)).mean().item())
        return self


class OfAccelerate(Case):
    def setUp(self):
        self.addCleanup(forget_accelerate)
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def ours(self, given=CONFIG, **options):
        return Accelerator(cpu=True, patrickstar_plugin=PatrickStarPlugin(given), **options)

    def are_near(self, one, other, within=1e-5):
        self.assertEqual(len(one), len(other))
        self.assertGreater(len(one), 0)
        for a, b in zip(one, other):
            for c, d in zip(*([a], [b]) if isinstance(a, float) else (a, b)):
                self.assertLessEqual(abs(c - d), within * max(1, abs(d)))


class AsPlain(OfAccelerate):
    def test_losses_norms_and_learning_rate(self):
        ours = Loop(self.ours(gradient_accumulation_steps=ACCUMULATION)).run()
        plain = Loop(accelerate.Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATION)).run()
        self.assertEqual(ours.steps, 8)  # 4 an epoch
        self.are_near(ours.losses, plain.losses)
        self.are_near(ours.norms, plain.norms)
        self.assertGreater(max(plain.norms), .5)
        self.are_near(ours.rates, plain.rates, 1e-12)
        self.assertLess(ours.rates[-1][0], 1e-2)
        module = ours.accelerator.unwrap_model(ours.model)
        self.assertIsInstance(ours.model, Engine)
        self.assertIs(module, ours.model.module)
        for name, value in plain.accelerator.unwrap_model(plain.model).state_dict().items():
            self.assertTrue(torch.allclose(module.state_dict()[name], value, atol=1e-5), name)
        state = ours.accelerator.get_state_dict(ours.model)
        self.assertEqual(sorted(state), sorted(module.state_dict()))

    def test_resumes_by_save_state_and_load_state(self):
        """Weights, states, rates and generators, with the same bits; saving again replaces what was saved."""
        folder = os.path.join(self.folder, "state")
        ours = Loop(self.ours(gradient_accumulation_steps=2))
        ours.accelerator.save_state(folder)
        ours.run(1)
        torch.manual_seed(9)
        self.assertEqual(str(ours.accelerator.save_state(folder)), folder)
        self.assertNotIn("model.safetensors", os.listdir(folder))
        drawn = torch.rand(1)
        weights = {name: value.clone() for name, value in ours.model.state_dict().items()}
        again = Loop(self.ours(gradient_accumulation_steps=2))
        again.accelerator.load_state(folder)
        self.assertEqual(torch.rand(1), drawn)
        for name, value in again.model.state_dict().items():
            self.assertTrue(torch.equal(value, weights[name]), name)
        self.assertEqual([group["lr"] for group in again.optimizer.param_groups], ours.rates[-1])
        batch = torch.ones(2, WIDTH), torch.ones(2, 1)
        for loop in (ours, again):
            loop.loader = [batch] * 4
            loop.run(1)
        self.assertEqual(again.losses[-4:], ours.losses[-4:])
        self.assertEqual(again.rates[-2:], ours.rates[-2:])

    def test_automatic_names(self):
        project = ProjectConfiguration(project_dir=self.folder, automatic_checkpoint_naming=True, total_limit=2)
        ours = Loop(self.ours(project_config=project)).run(1)
        for _ in range(3):
            ours.accelerator.save_state()
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "checkpoints"))), ["checkpoint_1", "checkpoint_2"])
        before = ours.model.state_dict()["0.weight"]
        ours.run(1)
        ours.accelerator.load_state()
        self.assertTrue(torch.equal(ours.model.state_dict()["0.weight"], before))

    def test_save_model(self):
        from safetensors.torch import load_file
        ours = Loop(self.ours()).run(1)
        ours.accelerator.save_model(ours.model, os.path.join(self.folder, "model"))
        found = load_file(os.path.join(self.folder, "model", "model.safetensors"))
        for name, value in ours.model.state_dict().items():
            self.assertTrue(torch.equal(found[name], value), name)

    @unittest.skipUnless(HAS_CPU_RANKS, "accelerate starts several processes on the processor with PyTorch 2")
    def test_two_ranks(self):
        for status, text in start_ranks(os.path.join(HERE, "accelerate_worker.py"), self.folder):
            self.assertEqual(status, 0, text)
        with open(os.path.join(self.folder, "found.json")) as file:
            found = json.load(file)
        for key in ("losses", "norms", "rates"):
            self.are_near(found["ours"][key], found["plain"][key])
        self.assertEqual(found["resumed"]["weight"], found["ours"]["weight"])


class Schedules(OfAccelerate):
    """Over the optimizer of torch.optim that prepare replaces."""
    STEPS = 8

    def train(self, accelerator, schedule, is_prepared=True, is_late=False):
        """The groups' numbers, and the losses, of each step."""
        model = model_func()
        given = optimizer_of(model)
        scheduler = None if is_late else schedule(given)
        if is_prepared:
            model, optimizer, stepped = accelerator.prepare(model, given, scheduler)
        else:
            model, optimizer = accelerator.prepare(model, given)
            stepped = schedule(given) if is_late else scheduler
        x, y = next(iter(torch.utils.data.DataLoader(data(), batch_size=N)))
        numbers, losses = [], []
        for _ in range(self.STEPS):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            stepped.step()
            optimizer.zero_grad()
            numbers.append([value for group in optimizer.param_groups for value in (group["lr"], *group["betas"])])
            losses.append(loss.item())
        return numbers, losses, optimizer

    def both(self, schedule, **options):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Detected call of|Seems like")  # they have seen the optimizer's steps
            ours = self.train(self.ours(), schedule, **options)
        plain = self.train(accelerate.Accelerator(cpu=True), schedule, **options)
        self.are_near(ours[0], plain[0], 1e-12)
        self.are_near(ours[1], plain[1])
        self.assertGreater(len({tuple(numbers) for numbers in plain[0]}), 3)
        self.assertNotEqual(plain[0][0], plain[0][-1])
        return ours[2], plain[2]

    @staticmethod
    def sequential(optimizer):
        return schedules.SequentialLR(optimizer, [schedules.LinearLR(optimizer, .1, 1., 3),
                                                  schedules.CosineAnnealingLR(optimizer, 5)], milestones=[3])

    def test_schedulers_of_schedulers(self):
        self.both(self.sequential)
        self.both(lambda optimizer: schedules.ChainedScheduler([schedules.LinearLR(optimizer, .1, 1., 3),
                                                                schedules.ExponentialLR(optimizer, .9)]))

    def test_a_scheduler_that_is_not_prepared(self):
        for is_late in (False, True):
            self.both(lambda optimizer: schedules.ExponentialLR(optimizer, .5), is_prepared=False, is_late=is_late)
        self.both(self.sequential, is_prepared=False)

    def test_one_cycle(self):
        """It keeps its numbers in the groups, and cycles a beta."""
        def one_cycle(optimizer):
            return schedules.OneCycleLR(optimizer, [1e-2, 2e-2], total_steps=self.STEPS + 2)

        ours, plain = self.both(one_cycle)
        for mine, other in zip(ours.param_groups, plain.param_groups):
            self.assertEqual({key: value for key, value in mine.items() if key != "params"},
                             {key: value for key, value in other.items() if key != "params"})
            self.assertIn("max_lr", mine)
        again = torch.optim.AdamW(optimizer_of(model_func()).param_groups)
        again.load_state_dict(ours.optimizer.state_dict())
        self.assertEqual(again.param_groups[1]["max_lr"], 2e-2)

    def test_the_state_of_the_optimizer_has_them(self):
        model = model_func()
        given = optimizer_of(model)
        schedules.OneCycleLR(given, 1e-2, total_steps=9)
        model, optimizer = self.ours().prepare(model, given)
        state = optimizer.state_dict()
        state["param_groups"][0]["max_lr"] = .75
        optimizer.load_state_dict(state)
        self.assertEqual(given.param_groups[0]["max_lr"], .75)

    def test_a_momentum_that_is_cycled_is_refused(self):
        model = model_func()
        given = torch.optim.SGD(model.parameters(), lr=.1, momentum=.9)
        scheduler = schedules.OneCycleLR(given, .1, total_steps=9)
        accelerator = self.ours()
        model, optimizer = accelerator.prepare(model, given)
        scheduler.step()
        accelerator.backward(model(torch.ones(2, WIDTH)).sum())
        self.refused(optimizer.step, "cycle_momentum=False", Refused)


class Failures(OfAccelerate):
    def test_a_save_that_is_interrupted(self):
        """Over an earlier one: what it leaves is no checkpoint, and saving again makes it one."""
        folder = os.path.join(self.folder, "state")
        loop = Loop(self.ours()).run(1)
        loop.accelerator.save_state(folder)
        loop.accelerator.load_state(folder)
        loop.run(1)
        with unittest.mock.patch.object(Engine, "save_checkpoint", side_effect=KeyboardInterrupt):
            self.assertRaises(KeyboardInterrupt, loop.accelerator.save_state, folder)
        self.refused(lambda: loop.accelerator.load_state(folder), "the save was not complete", PatrickStarError)
        loop.accelerator.save_state(folder)
        weight = loop.model.state_dict()["0.weight"]
        loop.run(1)
        loop.accelerator.load_state(folder)
        self.assertTrue(torch.equal(loop.model.state_dict()["0.weight"], weight))

    def test_a_refused_optimizer_leaves_the_model(self):
        """It is refused before the model is in chunks."""
        accelerator, model = self.ours(), model_func()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        for bad, message in ((torch.optim.AdamW(model[0].parameters()), "is in no group"),
                             (torch.optim.AdamW(model.parameters(), amsgrad=True), "amsgrad"),
                             (torch.optim.AdamW(list(model.parameters()) + [nn.Parameter(torch.ones(3))]),
                              "not in the model")):
            self.refused(lambda: accelerator.prepare(model, bad), message, Refused)
            self.assertIsNone(accelerator.patrickstar_plugin.engine)
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        model(torch.ones(2, WIDTH))
        self.steps(accelerator, model)

    def steps(self, accelerator, model):
        model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
        accelerator.backward(model(torch.ones(2, WIDTH)).sum())
        optimizer.step()
        self.assertEqual(optimizer.last_step.step, 1)
        return model, optimizer

    def test_prepare_fails_after_the_model_is_in_chunks(self):
        accelerator, model = self.ours(), model_func()
        given = optimizer_of(model)
        given.param_groups[1]["lr"] = -1.
        with self.assertLogs("patrickstar", logging.WARNING) as caught:
            self.refused(lambda: accelerator.prepare(model, given), "must be at least 0", PatrickStarError)
        self.assertIn("build the model, and its optimizer, again", caught.output[0])
        self.assertIsNone(accelerator.patrickstar_plugin.engine)
        self.refused(lambda: accelerator.prepare(model), "whose engine was closed", Refused)
        self.steps(accelerator, model_func())

    def test_free_memory(self):
        accelerator = self.ours()
        for free in (accelerator.free_memory, accelerator.clear):
            kept = model_func()
            model, optimizer = self.steps(accelerator, kept)
            client = model.client
            self.assertEqual(list(free(model, optimizer)), [None, None])
            self.assertFalse(client.is_open())
            self.refused(lambda: accelerator.prepare(kept), "whose engine was closed", Refused)
        Loop(accelerator).run(1)

    def test_free_memory_forgets_an_engine_that_was_given(self):
        model, optimizer = engine(model_func, torch.float32)
        accelerator = self.ours(None)
        accelerator.prepare(model, optimizer)
        accelerator.free_memory()
        self.assertTrue(model.client.is_open())
        self.steps(accelerator, model_func())


class Ours(OfAccelerate):
    def test_the_norm_comes_with_the_step(self):
        loop = Loop(self.ours())
        x, y = next(iter(loop.loader))
        loop.accelerator.backward(nn.functional.mse_loss(loop.model(x), y))
        norm = loop.accelerator.clip_grad_norm_(loop.model.parameters(), 1e-3)
        self.assertTrue(torch.isnan(norm))
        loop.optimizer.step()
        self.assertEqual(norm.item(), torch.tensor(loop.optimizer.last_step.grad_norm).item())
        self.assertFalse(loop.accelerator.optimizer_step_was_skipped)
        loop.accelerator.backward(nn.functional.mse_loss(loop.model(x), y) * float("inf"))
        loop.optimizer.step()
        self.assertTrue(loop.accelerator.optimizer_step_was_skipped)

    def test_an_engine(self):
        for of_module in (False, True):
            model, optimizer = engine(model_func, torch.float32)
            accelerator = self.ours(None)
            prepared, stepper = accelerator.prepare(model.module if of_module else model, optimizer)
            self.assertIs(prepared, model.module if of_module else model)
            accelerator.backward(prepared(torch.ones(2, WIDTH)).sum())
            stepper.step()
            self.assertEqual(optimizer.last_step.step, 1)

    def test_a_module_of_init(self):
        """As one that is built before prepare."""
        losses = []
        for is_of_init in (False, True):
            given = dict(CONFIG, optimizer={"type": "AdamW"})
            accelerator = Accelerator(cpu=True, patrickstar_plugin=None if is_of_init else PatrickStarPlugin(CONFIG))
            with patrickstar.init(given) if is_of_init else contextlib.nullcontext():
                model = model_func()
            model, optimizer = accelerator.prepare(model, optimizer_of(model))
            self.assertIsInstance(model, Engine)
            self.assertEqual([group["lr"] for group in optimizer.param_groups], [1e-2, 5e-3])
            x, y = data().tensors
            for _ in range(3):
                loss = nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
            accelerator.free_memory()
            forget_accelerate()
        self.assertEqual(losses[:3], losses[3:])

    def test_a_module_of_init_and_a_configuration(self):
        with patrickstar.init(dict(CONFIG, optimizer={"type": "AdamW"})):
            model = model_func()
        with self.assertRaisesRegex(PatrickStarError, "a configuration beside a model of patrickstar.init"):
            Accelerator(cpu=True, patrickstar_plugin=PatrickStarPlugin(CONFIG)).prepare(model)
        forget_accelerate()
        with self.assertRaisesRegex(PatrickStarError, "bf16.enabled is False, and mixed_precision is True"):
            Accelerator(cpu=True, mixed_precision="bf16").prepare(model)

    def test_the_optimizer_of_the_configuration(self):
        given = dict(CONFIG, optimizer={"type": "SGD", "params": {"lr": .5, "momentum": .9}})
        model = model_func()
        accelerator = self.ours(given)
        model, optimizer = accelerator.prepare(model, DummyOptim(model.parameters()))
        self.assertEqual(optimizer.param_groups[0]["lr"], .5)
        self.assertEqual(optimizer.param_groups[0]["momentum"], .9)

    def test_mixed_precision(self):
        accelerator = self.ours(mixed_precision="bf16")
        model = model_func()
        model, _ = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=.1))
        self.assertEqual(model.client.dtype, BF16)
        with accelerator.autocast():  # none: parameters are 16-bit already
            self.assertEqual((torch.ones(2, 2) @ torch.ones(2, 2)).dtype, torch.float32)

    def test_an_optimizer_that_has_made_steps(self):
        model, optimizers = model_func(), []
        reference = model_func()
        for one in (model, reference):
            optimizer = optimizer_of(one)
            nn.functional.mse_loss(one(torch.ones(2, WIDTH)), torch.ones(2, 1)).backward()
            optimizer.step()
            optimizer.zero_grad()
            optimizers.append(optimizer)
        accelerator = self.ours()
        model, ours = accelerator.prepare(model, optimizers[0])
        for _ in range(3):
            accelerator.backward(nn.functional.mse_loss(model(torch.ones(2, WIDTH)), torch.ones(2, 1)))
            ours.step()
            ours.zero_grad()
            nn.functional.mse_loss(reference(torch.ones(2, WIDTH)), torch.ones(2, 1)).backward()
            optimizers[1].step()
            optimizers[1].zero_grad()
        for name, value in reference.state_dict().items():
            self.assertTrue(torch.allclose(model.state_dict()[name], value, atol=1e-6), name)

    def test_a_frozen_model(self):
        accelerator = self.ours()
        teacher = model_func().requires_grad_(False)
        loop = Loop(accelerator)
        self.assertIs(accelerator.prepare(teacher), teacher)
        self.refused(lambda: accelerator.prepare(model_func()), "a second model that is trained", Refused)
        self.assertEqual(loop.run(1).steps, 14)

    def test_what_is_refused(self):
        def prepared(optimizer, given=CONFIG, **options):
            model = model_func()
            return self.ours(given, **options).prepare(model, optimizer(model))

        for optimizer, message in (
                (lambda model: torch.optim.Adagrad(model.parameters()), "torch.optim's Adam, AdamW, SGD, or Lion"),
                (lambda model: torch.optim.AdamW(model.parameters(), amsgrad=True), "amsgrad"),
                (lambda model: torch.optim.AdamW(list(model.parameters())[:2]), "is in no group"),
                (lambda model: torch.optim.AdamW(list(model.parameters()) + [nn.Parameter(torch.ones(3))]),
                 "of shape (3,) that is not in the model")):
            self.refused(lambda: prepared(optimizer), message, Refused)
        self.refused(lambda: prepared(optimizer_of, dict(CONFIG, gradient_accumulation_steps=3)),
                     "gradient_accumulation_steps of the Accelerator is 1", PatrickStarError)
        self.refused(lambda: prepared(optimizer_of, dict(CONFIG, optimizer={"params": {"lr": 1}})),
                     "lr of AdamW is 0.01", PatrickStarError)
        self.refused(lambda: prepared(optimizer_of, dict(CONFIG, optimizer={"type": "auto"}, gradient_clipping="auto")),
                     'gradient_clipping is "auto"', PatrickStarError)
        loop = Loop(self.ours())
        self.refused(lambda: loop.accelerator.clip_grad_norm_(list(loop.model.parameters())[:1], 1.), "a part", Refused)
        self.refused(lambda: loop.accelerator.clip_grad_norm_(loop.model.parameters(), 1., 1), "2-norm", Refused)
        self.refused(lambda: loop.accelerator.clip_grad_value_(loop.model.parameters(), 1.), "clip_grad_norm_", Refused)
        self.refused(lambda: loop.accelerator.load_state(self.folder), "has no checkpoint of a model in chunks",
                     PatrickStarError)
        accumulating, optimizer = engine(model_func, torch.float32, gradient_accumulation_steps=2)
        self.refused(lambda: self.ours().prepare(accumulating, optimizer), "give it to the Accelerator", Refused)
        self.refused(lambda: Accelerator(cpu=True, patrickstar_plugin=config()), "must be a PatrickStarPlugin",
                     PatrickStarError)


if __name__ == "__main__":
    unittest.main()
