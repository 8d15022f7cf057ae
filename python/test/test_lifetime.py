"""An engine's life: several threads, schedules that continue after loading, what is left when it is closed."""
import threading
import unittest

import torch
import torch.nn as nn

from patrickstar import PatrickStarError
from support import F32, LR, VERSION, WIDTH, Case, Two, engine, once, pinned, run_worker, square, values

SCHEDULE = {"type": "WarmupDecayLR", "params": {"total_num_steps": 20, "warmup_num_steps": 2, "warmup_max_lr": LR}}


class Life(Case):
    def test_threads_that_evaluate_at_once_see_the_same(self):
        model, _ = engine(Two, F32)
        model.eval()
        x, seen, failures = values(dtype=F32), [], []

        def evaluate():
            try:
                with torch.no_grad():
                    for _ in range(10):
                        seen.append(square(model(x)).item())
            except Exception as failure:  # of a thread: reported below
                failures.append(failure)
        threads = [threading.Thread(target=evaluate) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual((len(seen), len(set(seen))), (40, 1))

    def test_an_interrupt_is_not_lost(self):
        """Python loses exceptions of destructors: none of ours may run within a backward pass."""
        seen = run_worker("interrupt_worker.py")
        self.assertEqual(seen["caught"] + seen["lost"], 30)
        self.assertLess(seen["lost"], 2, seen)

    def test_a_schedule_goes_on_where_a_saved_state_was(self):
        model, optimizer = engine(Two, F32, scheduler=SCHEDULE)
        rates = []

        def train(n):
            for _ in range(n):
                once(model, optimizer, values(dtype=F32))
                rates.append(optimizer.param_groups[0]["lr"])
        train(4)
        saved = optimizer.state_dict()
        train(3)
        optimizer.load_state_dict(saved)
        train(3)
        self.assertEqual(rates[4:7], rates[7:10])
        self.assertEqual(len(set(rates[4:7])), 3)

    def test_a_schedule_of_torch_that_looks_at_defaults(self):
        model, optimizer = engine(Two, F32)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR, total_steps=8)
        before = optimizer.param_groups[0]["betas"]
        once(model, optimizer, values(dtype=F32))
        schedule.step()
        self.assertNotEqual(optimizer.param_groups[0]["betas"], before)
        once(model, optimizer, values(dtype=F32))

    def test_a_write_by_kept_data_counts_while_it_is_kept(self):
        model, optimizer = engine(Two, F32)
        kept = model.module.a.weight.data
        kept.fill_(1)
        self.assertEqual(model.state_dict()["a.weight"].mean().item(), 1)
        del kept

    def test_what_a_module_does_not_change_in_place_keeps_its_fp32_bits(self):
        """An embedding with max_norm counts as written to in each forward."""
        model, optimizer = engine(lambda: nn.Embedding(8, 4, max_norm=100))
        before = model.state_dict()["weight"]
        with torch.no_grad():
            model(torch.arange(4))
        self.assertTrue(torch.equal(model.state_dict()["weight"], before))
        self.assertFalse(torch.equal(before, before.to(torch.bfloat16).float()))
        model.module.max_norm = 0.5
        with torch.no_grad():
            model(torch.tensor([3]))
        after = model.state_dict()["weight"]
        self.assertLess(after[3].norm(), 0.51)
        self.assertTrue(torch.equal(after[:3], before[:3]))

    def test_attributes_are_those_of_the_module(self):
        class Scales(Two):
            scale = 1.

            def forward(self, x):
                return super().forward(x) * self.scale
        model, optimizer = engine(Scales, F32)
        x = values(dtype=F32)
        with torch.no_grad():
            one = model(x)
            model.scale = 2.
            self.assertTrue(torch.equal(model(x), 2 * one))
        self.assertEqual(model.module.scale, 2)
        self.assertNotIn("front", model.module.__dict__)
        for add in (lambda p: setattr(model, "c", p), lambda p: model.register_parameter("c", p)):
            self.refused(lambda: add(nn.Parameter(torch.ones(2))), "after initialize_engine")
        model.register_buffer("kept", torch.ones(1))
        self.assertIn("kept", model.state_dict())
        once(model, optimizer, x)

    def test_what_fails_leaves_no_parameter_in_use(self):
        class Replaces(nn.Linear):
            def forward(self, x):
                self.weight.data = torch.zeros(WIDTH, WIDTH, dtype=x.dtype)
                return super().forward(x)
        model, _ = engine(lambda: nn.Sequential(Replaces(WIDTH, WIDTH)), F32)
        self.refused(lambda: model(values(dtype=F32)), "0.weight.data.copy_")
        self.assertEqual([slot.n_uses for slot in model.front.slots], [0, 0])
        model, _ = engine(Two, F32)
        with self.subTest("hooks that PyTorch does not allow"), torch.autograd.graph.disable_saved_tensors_hooks("no"):
            self.assertRaises(RuntimeError, lambda: model(values(dtype=F32)))
            self.assertRaises(RuntimeError, lambda: torch.autograd.graph.save_on_cpu().__enter__())
        self.assertEqual([slot.n_uses for slot in model.front.slots], [0] * 4)
        loss = square(model(values(dtype=F32)))
        self.assertEqual(pinned(model), [])
        model.backward(loss)

    def test_a_gradient_that_was_not_taken_is_dropped(self):
        model, optimizer = engine(Two, F32)
        x = values(dtype=F32)

        def gradient():
            model.backward(square(model(x)))
            return model.module.a.weight.grad.clone()
        want = gradient()
        optimizer.zero_grad()
        take, model.front._take_gradient = model.front._take_gradient, None  # as an exception in a hook before ours
        for drop in (optimizer.zero_grad, lambda: [setattr(p, "grad", None) for p in model.parameters()]):
            with self.assertRaises(TypeError):
                model.backward(square(model(x)))
            drop()
            model.front._take_gradient = take
            self.assertTrue(torch.equal(gradient(), want))
            optimizer.zero_grad()
            model.front._take_gradient = None
        del model.front._take_gradient

    @unittest.skipIf(VERSION < (2, 1), "this PyTorch has no such hooks")
    def test_hooks_of_the_user_see_the_gradient_that_arrives(self):
        seen = []

        def make():
            model = Two()
            model.a.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
            return model
        model, _ = engine(make, F32)
        model.module.b.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        model.backward(square(model(values(dtype=F32))))
        self.assertTrue(torch.equal(seen[0], model.module.b.weight.grad))
        self.assertTrue(torch.equal(seen[1], model.module.a.weight.grad))

    def test_hooks_of_another_thread_are_its_own(self):
        model, _ = engine(Two, F32)
        began, ends = threading.Event(), threading.Event()

        def other():
            with torch.autograd.graph.save_on_cpu():
                began.set()
                ends.wait()
        thread = threading.Thread(target=other)
        thread.start()
        began.wait()
        loss = square(model(values(dtype=F32)))
        self.assertEqual(pinned(model), [])
        ends.set()
        thread.join()
        model.backward(loss)

    def test_a_closed_engine_says_so(self):
        model, optimizer = engine(Two, F32)
        model.close()
        for call in (lambda: model(values(dtype=F32)), model.state_dict, optimizer.step):
            with self.assertRaisesRegex(PatrickStarError, "the engine is closed"):
                call()


if __name__ == "__main__":
    unittest.main()
