"""Checkpoints: a run that resumes from one has the bits of a run that was never stopped; with dropout, buffers,
schedulers, frozen and shared parameters; in other budgets and chunks. Weights as files."""
import json
import logging
import os
import shutil
import tempfile
import unittest
import unittest.mock
from unittest import mock

import torch
import torch.nn as nn

import patrickstar
from support import BF16, F32, WIDTH, Case, engine, masters, square
from patrickstar import PatrickStarError, Refused, _client, _state, torch_scope
from patrickstar._torch import load_plain

STEPS = 4


class Varied(nn.Module):
    """Dropout, running means, a shared parameter, one without gradient, one outside of chunks, one that is unused."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH)
        self.norm, self.drop = nn.BatchNorm1d(40), nn.Dropout(0.3)
        self.frozen = nn.Linear(WIDTH, WIDTH)
        self.frozen.requires_grad_(False)
        self.unused = nn.Linear(3, 3)
        with torch_scope():
            self.apart = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("not_saved_by_torch", torch.zeros(2), persistent=False)

    def forward(self, x):
        self.not_saved_by_torch += 1
        hidden = self.drop(self.norm(self.a(self.frozen(x))))
        out = nn.functional.linear(hidden, self.b.weight, self.b.bias)
        return self.apart(out.float()) + nn.functional.linear(hidden, self.a.weight.t()).float()


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, 300), nn.Linear(300, WIDTH)

    def forward(self, x):
        return self.b(self.a(x))


class Larger(Plain):
    def __init__(self):
        super().__init__()
        self.more = nn.Linear(WIDTH, WIDTH)


def one_step(model, optimizer, scheduler, step):
    x = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(step)).to(model.client.dtype)
    optimizer.zero_grad()
    loss = square(model(x))
    model.backward(loss)
    optimizer.step()
    if scheduler is not None:
        scheduler.step()
    return loss.item()


def prepared(dtype, make=Varied, **changed):
    model, optimizer = engine(make, dtype, **changed)
    model.train()
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


class Checkpoint(Case):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def goes_on(self, dtype, before, after, **saved):
        """Trains, saves, trains; another engine resumes from there."""
        model, optimizer, scheduler = prepared(dtype, **before)
        for step in range(STEPS):
            one_step(model, optimizer, scheduler, step)
        optimizer.param_groups[0]["weight_decay"] = 0.07
        path = model.save_checkpoint(
            self.folder, client_state={"scheduler": scheduler.state_dict(), "at": STEPS}, **saved)
        losses = [one_step(model, optimizer, scheduler, step) for step in range(STEPS, 2 * STEPS)]
        values, buffers = masters(model), dict(model.module.named_buffers())
        model.close()

        torch.manual_seed(99)
        model, optimizer, scheduler = prepared(dtype, **after)
        found, state = model.load_checkpoint(self.folder)
        self.assertEqual(os.path.realpath(found), os.path.realpath(path))
        scheduler.load_state_dict(state["scheduler"])
        self.assertEqual(optimizer.param_groups[0]["weight_decay"], 0.07)
        self.assertEqual(optimizer.last_step.step, STEPS)
        self.assertEqual(losses, [one_step(model, optimizer, scheduler, step)
                                  for step in range(state["at"], 2 * STEPS)])
        for name, value in masters(model).items():
            self.assertTrue(torch.equal(value, values[name]), name)
        for name, value in model.module.named_buffers():
            self.assertTrue(torch.equal(value, buffers[name]), name)
        model.close()

    def test_goes_on_in_f32(self):
        with mock.patch.object(_client, "MEASURE", 0):  # PyTorch itself takes more than these budgets
            self.goes_on(F32, {}, {"memory__device": "100KB", "memory__host": 0})

    def test_goes_on_in_bf16_and_other_chunks(self):
        with mock.patch.object(_client, "MEASURE", 0):
            self.goes_on(BF16, {"memory__device": "100KB", "memory__host": 0}, {"default_chunk_size": 2048})

    def test_goes_on_from_a_tag(self):
        self.goes_on(BF16, {}, {}, tag="epoch-1")

    def test_fp16_has_its_scale(self):
        model, optimizer, _ = prepared(torch.float16, Plain, fp16__initial_scale_power=40) if _can_multiply() else (
            None, None, None)
        if model is None:
            self.skipTest("half precision on this processor")
        for step in range(STEPS):
            one_step(model, optimizer, None, step)
        scale = model.client.get_scaler()
        model.save_checkpoint(self.folder)
        other, _, _ = prepared(torch.float16, Plain, fp16__initial_scale_power=40)
        other.load_checkpoint(self.folder)
        self.assertEqual(other.client.get_scaler(), scale)
        self.assertLess(scale["loss_scale"], 2.0 ** 40)

    # ---- when and where

    def test_a_path_that_is_meant_for_something_else(self):
        model, _, _ = prepared(F32, Plain)
        model.save_weights(self.folder + "/w.safetensors")
        self.refused(lambda: model.load_checkpoint(self.folder), "files of weights")
        self.refused(lambda: model.load_checkpoint(self.folder + "/w.safetensors"), "is a file")

    def test_another_checkpoint_after_a_damaged_one(self):
        model, optimizer, _ = prepared(F32, Plain)
        want = masters(model)
        model.save_checkpoint(self.folder, tag="good")
        one_step(model, optimizer, None, 0)
        path = os.path.join(model.save_checkpoint(self.folder, tag="bad"), "optimizer-0-of-1.safetensors")
        data = bytearray(open(path, "rb").read())
        data[-5] ^= 1
        open(path, "wb").write(data)
        self.refused(lambda: model.load_checkpoint(self.folder), "damaged")
        self.refused(lambda: model(torch.randn(2, WIDTH)), "after a failure")
        model.load_checkpoint(self.folder, tag="good")
        for name, value in masters(model).items():
            self.assertTrue(torch.equal(value, want[name]), name)
        one_step(model, optimizer, None, 0)

    def test_no_checkpoint_yet(self):
        model, _, _ = prepared(F32, Plain)
        with self.assertLogs("patrickstar", logging.WARNING):
            self.assertEqual(model.load_checkpoint(os.path.join(self.folder, "none")), (None, {}))

    def test_gradients_would_be_lost(self):
        model, optimizer, _ = prepared(F32, Plain)
        model.backward(square(model(torch.randn(2, WIDTH))))
        self.refused(lambda: model.save_checkpoint(self.folder), "has a gradient")
        self.refused(lambda: model.load_checkpoint(self.folder + "/nothing", tag="x"), "has a gradient")
        optimizer.step()
        model.save_checkpoint(self.folder)

    def test_client_state_that_could_not_be_read(self):
        model, _, _ = prepared(F32, Plain)
        self.refused(lambda: model.save_checkpoint(self.folder, client_state={"f": [1, Plain]}),
                     "client_state['f'][1] is")
        self.refused(lambda: model.save_checkpoint(self.folder, client_state=[1]), "it must be a dictionary")
        self.assertEqual(os.listdir(self.folder), [])
        state = {"floats": [1.5, float("inf")], "text": "x", "none": None, "pair": (1, 2), "tensor": torch.ones(3)}
        model.save_checkpoint(self.folder, client_state=state)
        again = model.load_checkpoint(self.folder)[1]
        self.assertTrue(torch.equal(again.pop("tensor"), state.pop("tensor")))
        self.assertEqual(again, state)

    def test_another_model(self):
        model, _, _ = prepared(F32, Plain)
        model.save_checkpoint(self.folder)
        other, _, _ = prepared(F32, lambda: nn.Linear(WIDTH, WIDTH))
        self.refused(lambda: other.load_checkpoint(self.folder), "group 0 was saved with 4 parameters")
        self.refused(lambda: other.load_checkpoint(self.folder), "which is not in this run's model")
        self.refused(lambda: other.load_checkpoint(self.folder), "; it has ")
        larger, _, _ = prepared(F32, Larger)
        self.refused(lambda: larger.load_checkpoint(self.folder), "; it has no optimizer states of this run's more.weight")
        sgd, _, _ = prepared(F32, Plain, optimizer={"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}})
        self.refused(lambda: sgd.load_checkpoint(self.folder), "another optimizer")

    def test_damage_is_found(self):
        model, optimizer, _ = prepared(F32, Plain)
        path = model.save_checkpoint(self.folder)
        before = masters(model)
        for name in sorted(os.listdir(path)):
            kept = open(os.path.join(path, name), "rb").read()
            changed = bytearray(kept)
            changed[-5] ^= 1
            for damaged in (changed, kept[:-1], None):
                os.remove(os.path.join(path, name))
                if damaged is not None:
                    open(os.path.join(path, name), "wb").write(damaged)
                if not name.startswith(("model", "optimizer")) or damaged is not changed:
                    with self.assertRaises(PatrickStarError, msg=name):
                        model.load_checkpoint(path)
                open(os.path.join(path, name), "wb").write(kept)
        for name, value in masters(model).items():
            self.assertTrue(torch.equal(value, before[name]), name)
        one_step(model, optimizer, None, 0)

    def test_a_forward_pass_after_loading_sees_what_was_loaded(self):
        model, optimizer, _ = prepared(F32, Plain)
        x = torch.randn(3, WIDTH)
        want = model(x).detach()
        model.save_checkpoint(self.folder)
        one_step(model, optimizer, None, 0)
        self.assertFalse(torch.equal(model(x), want))
        loss = square(model(x))
        model.load_checkpoint(self.folder)
        self.assertTrue(torch.equal(model(x), want))
        with self.assertRaises(RuntimeError):  # of other values
            model.backward(loss)

    def test_tags(self):
        model, optimizer, _ = prepared(F32, Plain)
        one_step(model, optimizer, None, 0)
        for tag in ("best", "last"):
            model.save_checkpoint(self.folder, tag=tag)
        self.refused(lambda: model.load_checkpoint(self.folder, tag="bast"),
                     "has no checkpoint bast; it has best, last")
        for tag in ("", "..", "../" + os.path.basename(self.folder)):
            self.refused(lambda: model.load_checkpoint(self.folder, tag=tag), "expected the name of a folder")
        os.remove(os.path.join(self.folder, "latest"))
        self.refused(lambda: model.load_checkpoint(self.folder), "has no file latest")
        self.assertTrue(model.load_checkpoint(self.folder, tag="best")[0].endswith("best"))
        model.close()

    # ---- train.save_interval

    def interval(self, **changed):
        return prepared(F32, Plain, train={"threads": 2, "save_interval": 2, "keep_last": 2, "output_dir": self.folder},
                        **changed)

    def test_saves_while_it_trains(self):
        model, optimizer, scheduler = self.interval(memory__save_buffer="64KB")
        model.client_state_from(lambda: {"step": at, "scheduler": scheduler.state_dict()})
        for step in range(7):
            one_step(model, optimizer, scheduler, step)
            at = step + 1  # after the step, as the scheduler's, and saved all the same
        model.close()
        names = sorted(os.listdir(os.path.join(self.folder, "checkpoints")))
        self.assertEqual(names, ["latest", "step-000004", "step-000006"])
        model, optimizer, scheduler = self.interval()
        self.refused(lambda: one_step(model, optimizer, None, 0), "checkpoint of an earlier run")
        optimizer.zero_grad()
        self.refused(lambda: model.load_checkpoint(self.folder), "give that folder")
        state = model.load_checkpoint(os.path.join(self.folder, "checkpoints"))[1]
        self.assertEqual(state["step"], 6)
        scheduler.load_state_dict(state["scheduler"])
        again = [one_step(model, optimizer, scheduler, step) for step in range(6, 9)]
        model.close()
        plain, optimizer, scheduler = prepared(F32, Plain)
        losses = [one_step(plain, optimizer, scheduler, step) for step in range(9)]
        self.assertEqual(again, losses[6:])

    def test_buffers_are_those_before_the_pass(self):
        class Counting(Plain):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros(1))

            def forward(self, x):
                self.seen += 1  # before any parameter is used
                return super().forward(x)

        train = {"threads": 2, "save_interval": 2, "output_dir": self.folder}
        model, optimizer, _ = prepared(F32, Counting, train=train)
        for step in range(3):
            one_step(model, optimizer, None, step)
        model.close()
        model, _, _ = prepared(F32, Counting)
        model.load_checkpoint(os.path.join(self.folder, "checkpoints"))
        self.assertEqual(model.module.seen.item(), 2)
        model.close()

    def test_a_save_that_fails_does_not_end_the_run(self):
        model, optimizer, _ = self.interval()
        one_step(model, optimizer, None, 0)
        open(os.path.join(self.folder, "checkpoints"), "w").close()  # no folder
        one_step(model, optimizer, None, 1)
        with self.assertLogs("patrickstar", logging.WARNING) as told:
            one_step(model, optimizer, None, 2)
        self.assertIn("no checkpoint of step 2", told.output[0])

    # ---- weights

    def test_weights_are_those_of_state_dict(self):
        model, optimizer, scheduler = prepared(BF16)
        one_step(model, optimizer, scheduler, 0)
        want = model.state_dict()
        for size, n_files in ((10**9, 1), ("2KB", 5)):
            path = os.path.join(self.folder, "w.safetensors")
            model.save_weights(path, max_shard_size=size)
            names = sorted(os.listdir(self.folder))
            self.assertEqual(len(names), n_files + (n_files > 1), names)
            have = {}
            for name in names:
                if name.endswith(".safetensors"):
                    have.update(read_safetensors(os.path.join(self.folder, name)))
            self.assertEqual(sorted(have), sorted(want))
            for name, value in want.items():
                self.assertTrue(torch.equal(have[name], value), name)
            if n_files > 1:
                index = json.load(open(path + ".index.json"))
                self.assertEqual(sorted(index["weight_map"]), sorted(want))
        with unittest.mock.patch.object(torch.Tensor, "numpy", side_effect=RuntimeError("Numpy is not available")):
            model.save_weights(path, dtype=BF16)
        have = read_safetensors(path)
        self.assertEqual(have["a.weight"].dtype, BF16)
        self.assertTrue(torch.equal(have["a.weight"], want["a.weight"].to(BF16)))
        self.assertEqual(have["norm.num_batches_tracked"].dtype, torch.int64)

    def test_weights_refused(self):
        model, _, _ = prepared(F32, Plain)
        self.refused(lambda: model.save_weights(self.folder + "/w.pt"), ".safetensors")
        self.refused(lambda: model.save_weights(self.folder + "/w.safetensors", max_shard_size="5 parsecs"), "'5GB'")
        self.refused(lambda: model.save_weights(self.folder + "/no/w.safetensors"), "no/w.safetensors", OSError)
        self.refused(lambda: model.save_pretrained(self.folder), "save_weights(path)", Refused)
        self.assertEqual(os.listdir(self.folder), [])

    def test_state_dict_that_would_not_fit(self):
        model, optimizer, _ = prepared(F32, Plain)
        one_step(model, optimizer, None, 0)
        n_bytes = 4 * sum(param.numel() for param in model.parameters())
        with mock.patch.object(_state, "get_available_memory", return_value=n_bytes - 1):
            self.refused(model.state_dict, "model.save_weights(path)", patrickstar.BudgetError)
            self.refused(optimizer.state_dict, "model.save_checkpoint(folder)", patrickstar.BudgetError)
        with mock.patch.object(_state, "get_available_memory", return_value=n_bytes):
            model.state_dict()
            self.refused(optimizer.state_dict, "optimizer.state_dict() copies", patrickstar.BudgetError)

    def test_extra_file_is_plain(self):
        model, _, _ = prepared(F32)
        path = model.save_checkpoint(self.folder, client_state={"x": 1})
        extra = load_plain(os.path.join(path, "extra-0-of-1.pt"))
        self.assertEqual(extra["client_state"], {"x": 1})
        self.assertIn("norm.running_mean", extra["engine"]["buffers"])


def _can_multiply():
    from support import can_multiply_halves
    return can_multiply_halves()


def read_safetensors(path):
    kinds = {"F32": torch.float32, "BF16": BF16, "I64": torch.int64}
    with open(path, "rb") as file:
        data = file.read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + n + at for at in entry["data_offsets"])
        dtype = kinds[entry["dtype"]]
        flat = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.uint8) if end > begin else torch.empty(0)
        tensors[name] = flat.view(dtype).reshape(entry["shape"])
    return tensors


if __name__ == "__main__":
    unittest.main()
