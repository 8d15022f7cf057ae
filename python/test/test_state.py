"""Parameters from outside of modules: read, written, saved, loaded, evaluated with."""
import gc
import io
import os
import unittest
import weakref

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

from support import BF16, F32, VERSION, WIDTH, Case, Two, engine, master, masters, once, pinned, square, values
from patrickstar import Refused


class Evaluation(Case):
    def test_without_gradients(self):
        model, optimizer = engine(Two)
        plain = Two()
        plain.load_state_dict(model.state_dict())
        plain.to(BF16)
        x = values()
        with torch.no_grad():
            self.assertTrue(torch.equal(model(x), plain(x)))
        with torch.inference_mode():
            self.assertTrue(torch.equal(model(x), plain(x)))
            weight = model.module.a.weight
            self.assertFalse(weight.is_inference())
            self.assertTrue((weight + 1).is_inference())
        once(model, optimizer, x)

    def test_parameters_are_none_of_inference_mode(self):
        seen = []

        class Sees(nn.Linear):
            def forward(self, x):
                seen.append((self.weight.is_inference(), self.weight._version))
                return super().forward(x)
        model, optimizer = engine(lambda: nn.Sequential(Sees(WIDTH, WIDTH)))
        with torch.inference_mode():
            model(values())
        self.assertFalse(seen[0][0])

    def test_between_steps_it_changes_nothing_of_the_schedule(self):
        model, optimizer = engine(Two)
        for t in range(4):
            once(model, optimizer, values())
            self.assertEqual(optimizer.last_step.is_recorded, t == 0)
            model.eval()
            self.assertFalse(model.module.a.training)
            model(values())
            with torch.no_grad():
                model.module.a(values())
            model.train()

    def test_between_forward_and_backward(self):
        model, optimizer = engine(Two)
        loss = square(model(values()))
        with torch.no_grad():
            model.module.b(values())
        model.backward(loss)
        optimizer.step()


class Values(Case):
    def test_what_a_parked_parameter_says_of_itself(self):
        model, _ = engine(Two)
        p = model.module.a.weight
        self.assertIsInstance(p, nn.Parameter)
        self.assertEqual((p.shape, p.dtype, p.dim(), p.numel(), p.stride(), p.is_contiguous(), p.is_leaf),
                         ((WIDTH, WIDTH), BF16, 2, WIDTH * WIDTH, (WIDTH, 1), True, True))
        self.assertEqual(p.device.type, "cpu")
        self.assertEqual(pinned(model), [])
        self.assertTrue(torch.equal(p.detach().float(), master(model, "a.weight").to(BF16).float()))

    def test_writing_acts_on_the_fp32_value(self):
        model, optimizer = engine(Two)
        p, before = model.module.a.weight, master(model, "a.weight")
        with torch.no_grad():
            p.mul_(2.)
        self.assertTrue(torch.equal(master(model, "a.weight"), before * 2))
        self.assertTrue(torch.equal(p.detach(), (before * 2).to(BF16)))
        nn.init.zeros_(model.module.b.bias)
        self.assertEqual(master(model, "b.bias").abs().sum(), 0)
        p.data = torch.full((WIDTH, WIDTH), .1)
        self.assertTrue((master(model, "a.weight") == torch.tensor(.1)).all())
        with torch.no_grad():
            p[0, 0] = 5.1  # which bf16 has not
            torch.add(p, 1, out=model.module.b.weight)
        self.assertEqual(master(model, "a.weight")[0, 0], torch.tensor(5.1))
        self.assertEqual(master(model, "b.weight")[0, 0], p[0, 0].float() + 1)
        self.assertEqual(pinned(model), [])

    def test_writing_through_data(self):
        model, optimizer = engine(Two)
        p = model.module.a.weight
        before = master(model, "a.weight")
        p.data  # only read
        self.assertTrue(torch.equal(master(model, "a.weight"), before))
        p.data.clamp_(-.01, .01)
        after = master(model, "a.weight")
        self.assertLessEqual(after.abs().max(), .0101)
        inside = before.to(BF16).abs() <= .01
        self.assertTrue(torch.equal(after[inside], before[inside]))  # no bit is lost where nothing was written
        once(model, optimizer, values())

    def test_a_view_that_the_user_keeps_stays_right(self):
        model, optimizer = engine(Two)
        p = model.module.a.weight
        kept = p.data
        model(values())
        self.assertTrue(torch.equal(kept, p.data))
        self.assertEqual(pinned(model), ["a.weight"])
        del kept
        gc.collect()
        self.assertEqual(pinned(model), [])

    def test_writing_within_forward(self):
        class Half(nn.Linear):
            def forward(self, x):
                with torch.no_grad():
                    self.weight.mul_(.5)
                return super().forward(x)
        model, optimizer = engine(lambda: nn.Sequential(Half(WIDTH, WIDTH)))
        before = master(model, "0.weight")
        with torch.no_grad():
            model(values())
        self.assertTrue(torch.equal(master(model, "0.weight"), before.to(BF16).float() * .5))


class StateDict(Case):
    def test_is_fp32_and_whole(self):
        model, optimizer = engine(Two)
        once(model, optimizer, values())
        state = model.state_dict()
        for name, value in masters(model).items():
            self.assertEqual(state[name].dtype, F32)
            self.assertTrue(torch.equal(state[name], value), name)
        self.assertEqual(list(state), list(Two().state_dict()))
        self.assertTrue(all(torch.equal(value, state["a." + name])
                            for name, value in model.module.a.state_dict().items()))
        of_part = model.module.a.state_dict()
        with torch.no_grad():
            model.module.a.weight.add_(1)
        self.assertFalse(torch.equal(model.module.a.state_dict()["weight"], of_part["weight"]))
        self.assertFalse(torch.equal(model.state_dict()["a.weight"], state["a.weight"]))

    def test_tied_parameters_are_one_tensor(self):
        def make():
            model = Two()
            model.b.weight = model.a.weight
            return model
        state = engine(make)[0].state_dict()
        self.assertEqual(state["a.weight"].data_ptr(), state["b.weight"].data_ptr())

    def test_saving_and_loading(self):
        model, optimizer = engine(Two)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        saved = torch.load(file)
        with torch.no_grad():
            for param in model.parameters():
                param.zero_()
        self.assertTrue(all(value.abs().sum() == 0 for value in masters(model).values()))
        model.load_state_dict(saved)
        for name, value in masters(model).items():
            self.assertTrue(torch.equal(value, saved[name]), name)
        self.assertTrue(torch.equal(model.module.a.weight.detach(), saved["a.weight"].to(BF16)))
        plain = Two()
        plain.load_state_dict(saved)
        self.assertTrue(torch.equal(plain.a.weight, saved["a.weight"]))

    def test_what_does_not_fit_is_refused(self):
        model, _ = engine(Two)
        state = model.state_dict()
        self.refused(lambda: model.load_state_dict({k: v for k, v in state.items() if k != "a.bias"}), "Missing")
        self.refused(lambda: model.load_state_dict({**state, "c": torch.ones(1)}), "Unexpected")
        self.refused(lambda: model.load_state_dict(state, assign=True), "assign", Refused)
        if VERSION >= (2, 1):  # within an error of PyTorch's own
            self.refused(lambda: model.module.load_state_dict(state, assign=True), "replaces parameters by tensors")
        self.refused(lambda: model.load_state_dict({**state, "a.bias": torch.ones(3)}), "mismatch")
        missing = model.load_state_dict({k: v for k, v in state.items() if k != "a.bias"}, strict=False).missing_keys
        self.assertEqual(missing, ["a.bias"])


class Samples(Dataset):
    def __init__(self, model=None):
        self.model = model

    def __len__(self):
        return 8

    def __getitem__(self, i):
        x = torch.full((WIDTH,), float(i))
        if self.model is not None and i == 3:
            try:
                x += self.model.module.a.weight[0].float().detach()
            except RuntimeError as error:
                return torch.full((WIDTH,), -1. if "process" in str(error) else -2.)
        return x


class Forks(Case):
    def test_workers_and_a_live_graph(self):
        model, optimizer = engine(Two)
        loss = square(model(values()))
        first = [batch[0, 0].item() for batch in DataLoader(Samples(), batch_size=4, num_workers=2)]
        model.backward(loss)
        optimizer.step()
        self.assertEqual(first, [0., 4.])

    def test_a_worker_that_uses_the_model_is_refused(self):
        model, optimizer = engine(Two)
        batches = [batch[:, 0].tolist() for batch in DataLoader(Samples(model), batch_size=4, num_workers=1)]
        self.assertEqual(batches[0], [0, 1, 2, -1])
        once(model, optimizer, values())


class Ends(Case):
    def test_exported_tensors_outlive_the_engine(self):
        model, optimizer = engine(Two)
        kept, value = model.module.a.weight.data, master(model, "a.weight")
        model.close()
        self.assertTrue(torch.equal(kept, value.to(BF16)))
        self.refused(lambda: model(values()), "the engine is closed")

    def test_close_gives_files_back(self):
        gc.collect()  # engines of other tests
        before = len(os.listdir("/proc/self/fd"))
        model, optimizer = engine(Two)
        self.assertGreater(len(os.listdir("/proc/self/fd")), before)
        model.close()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    def test_engines_without_references_are_closed(self):
        model, optimizer = engine(Two)
        client = weakref.ref(model.client)
        once(model, optimizer, values())
        del model, optimizer
        gc.collect()
        self.assertIsNone(client())


if __name__ == "__main__":
    unittest.main()
