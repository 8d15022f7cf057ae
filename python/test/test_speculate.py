"""memory.update_in_backward = speculate: the bits of updates in the step, whether steps are clipped, skipped or neither;
and what is refused between backward and step."""
import os
import tempfile
import unittest

import torch
import torch.nn as nn

from patrickstar._library import PatrickStarError
from support import BF16, F32, LR, Case, can_multiply_halves, engine, masters, square, start_ranks
from support import values as drawn
from test_early_updates import LAYERS, WIDTH, Deep, count_no_activations

DISK = {"memory__host": 0, "memory__disk": "8MB"}
SMALL = {"memory__device": "320KB", "memory__host": "100KB", "memory__disk": "8MB"}
SOME = {"memory__device": "320KB", "memory__host": "100KB", "memory__disk": "820KB"}  # not all chunks are kept
N_STEPS = 7


class Grouped(Deep):
    """With a frozen weight."""

    def __init__(self):
        super().__init__()
        self.layers[2].weight.requires_grad_(False)


class Seen:
    """What a run shows: all of it is compared between ways."""

    def __init__(self):
        self.losses, self.infos, self.reads, self.states, self.masters = [], [], [], {}, {}
        self.n_speculated = self.n_taken_back = 0


def clip_none(optimizer, t):
    pass


def clip_each(optimizer, t):
    optimizer.clip_grad_norm_(1e-3)


def clip_in_turn(optimizer, t):
    if t % 2:
        optimizer.clip_grad_norm_(1e-3)


def run(make, dtype, way, clip=clip_none, bad_steps=(), micro=1, **more):
    more = {"gradient_clipping": 0, **more}
    model, optimizer = engine(make, dtype, memory__update_in_backward=way, gradient_accumulation_steps=micro, **more)
    count_no_activations(model)
    torch.manual_seed(1)
    seen = Seen()
    for t in range(N_STEPS):
        optimizer.param_groups[0]["lr"] = LR / (t + 1)
        for _ in range(micro):
            optimizer.zero_grad()
            loss = square(model(drawn(4, WIDTH, dtype=dtype)))
            model.backward(loss * float("nan") if t in bad_steps else loss)
            clip(optimizer, t)  # after the last backward pass, as programs do
            optimizer.step()
            seen.losses.append(loss.item())
        info = optimizer.last_step
        seen.infos.append((info.step, info.is_skipped, info.grad_norm, info.loss_scale))
        seen.n_speculated += info.n_speculated
        seen.n_taken_back += info.n_taken_back
        if t == N_STEPS - 2:  # right after a step, of what may have been taken back in it
            with torch.no_grad():
                seen.reads = [p.detach().float().clone() for p in model.parameters()]
    seen.masters = masters(model)
    seen.states = optimizer.state_dict()["state"]
    model.close()
    return seen


class SameBits(Case):
    def same(self, one, other):
        self.assertEqual(one.losses, other.losses)
        self.assertEqual(one.infos, other.infos)
        for a, b in zip(one.reads, other.reads):
            self.assertTrue(torch.equal(a, b))
        for name, value in other.masters.items():
            self.assertTrue(torch.equal(one.masters[name], value), name)
        for number, state in other.states.items():
            for name, value in state.items():
                if isinstance(value, torch.Tensor):
                    self.assertTrue(torch.equal(one.states[number][name], value), name)

    def compare(self, make, dtype, budgets=(SMALL,), **more):
        """The runs with speculate, each compared with the one of never, in memory for anything."""
        late = run(make, dtype, "never", **more)
        self.assertEqual(late.n_speculated, 0)
        runs = []
        for budget in budgets:
            with self.subTest(dtype=dtype, budget=budget, **{k: str(v) for k, v in more.items()}):
                runs.append(run(make, dtype, "speculate", **{**more, **budget}))
                self.same(runs[-1], late)
                self.assertGreater(runs[-1].n_speculated, 0)
        return runs

    def test_clipping(self):
        for clip in (clip_none, clip_each, clip_in_turn):
            dtype = F32 if clip is clip_each else BF16
            for seen in self.compare(Deep, dtype, (DISK, SMALL, SOME), clip=clip):
                self.assertEqual(seen.n_taken_back > 0, clip is not clip_none)
                self.assertEqual(seen.n_taken_back < seen.n_speculated, clip is not clip_each)

    def test_clipping_by_the_configuration(self):
        for seen in self.compare(Deep, BF16, gradient_clipping=1e-3):
            self.assertEqual(seen.n_taken_back, seen.n_speculated)
        for seen in self.compare(Deep, BF16, gradient_clipping=1e6):
            self.assertEqual(seen.n_taken_back, 0)

    def test_accumulation(self):
        for seen in self.compare(Deep, BF16, (SMALL,), clip=clip_in_turn, micro=2):
            self.assertTrue(0 < seen.n_taken_back < seen.n_speculated)

    def test_gradients_that_are_not_finite(self):
        for bad in ((0,), (2, 3, 5)):
            for seen in self.compare(Deep, BF16, (SMALL,), bad_steps=bad, train__max_nonfinite_steps=3):
                self.assertEqual(seen.n_taken_back > 0, bad != (0,))
                self.assertLess(seen.n_taken_back, seen.n_speculated)

    def test_fp16(self):
        if not can_multiply_halves():
            self.skipTest("this PyTorch does not multiply fp16 on the processor")
        for seen in self.compare(Deep, torch.float16, clip=clip_in_turn, fp16__initial_scale_power=24,
                                 fp16__hysteresis=1):
            self.assertTrue(seen.infos[0][1])

    def test_optimizers(self):
        for kind, params in (("SGD", {"lr": LR}), ("SGD", {"lr": LR, "momentum": 0.9}), ("Lion", {"lr": LR}),
                             ("AdamW", {"lr": LR, "state_format": "compact"}),
                             ("AdamW", {"lr": LR, "state_format": "compact_split"}),
                             ("AdamW", {"lr": LR, "state_format": "bf16_stochastic"})):
            self.compare(Deep, BF16, clip=clip_in_turn, optimizer={"type": kind, "params": params})

    def test_groups_frozen_parameters_and_chunk_sizes(self):
        groups = [{"params": "*bias", "lr": LR / 3, "weight_decay": 0.1}]
        for size in (512, 20000):
            self.compare(Grouped, BF16, ({"memory__device": "900KB", "memory__host": 0, "memory__disk": "8MB"},),
                         clip=clip_in_turn, default_chunk_size=size, optimizer__param_groups=groups)


class Between(Case):
    def setUp(self):
        self.model, self.optimizer = engine(Deep, memory__update_in_backward="speculate", gradient_clipping=1e-3)
        for _ in range(3):
            self.model.backward(square(self.model(drawn(4, WIDTH))))
            self.optimizer.step()
        self.assertGreater(self.optimizer.last_step.n_taken_back, 0)

    def tearDown(self):
        self.model.close()

    def refused(self, call, text):
        with self.assertRaisesRegex(PatrickStarError, text) as caught:
            call()
        self.assertIn("memory.update_in_backward = speculate", str(caught.exception))

    def test_refusals(self):
        self.model.backward(square(self.model(drawn(4, WIDTH))))
        last = self.model.module.layers[LAYERS - 1]
        self.refused(lambda: last.weight.grad, "p.grad")
        self.refused(self.optimizer.zero_grad, "zero_grad")
        self.refused(lambda: last.weight.sum(), "layers.5.weight: its value is asked for")
        self.refused(self.model.state_dict, "its value or a state is read")
        self.optimizer.param_groups[0]["lr"] = LR / 7
        self.refused(self.optimizer.step, "numbers of group 0")
        self.optimizer.param_groups[0]["lr"] = LR
        self.optimizer.step()
        self.assertEqual(self.optimizer.last_step.step, 4)

    def test_a_step_that_ends_the_run_leaves_the_weights(self):
        before = masters(self.model)
        for _ in range(5):
            self.model.backward(square(self.model(drawn(4, WIDTH))) * float("nan"))
            try:
                self.optimizer.step()
            except PatrickStarError as error:
                self.assertIn("5 steps in a row have gradients that are not finite", str(error))
            self.assertTrue(self.optimizer.last_step.is_skipped)
        for name, value in masters(self.model).items():
            self.assertTrue(torch.equal(value, before[name]), name)
        self.model.backward(square(self.model(drawn(4, WIDTH))))
        self.optimizer.step()
        self.assertEqual(self.optimizer.last_step.step, 4)

    def test_checkpoint_and_evaluation(self):
        with tempfile.TemporaryDirectory() as folder:
            x = drawn(4, WIDTH)
            saved = masters(self.model)
            self.model.save_checkpoint(os.path.join(folder, "saved"))
            self.model.backward(square(self.model(x)))
            self.optimizer.step()
            self.assertGreater(self.optimizer.last_step.n_taken_back, 0)
            with torch.no_grad():
                shown, after = self.model(x), masters(self.model)
            self.model.load_checkpoint(os.path.join(folder, "saved"))
            for name, value in masters(self.model).items():
                self.assertTrue(torch.equal(value, saved[name]), name)
            self.model.backward(square(self.model(x)))
            self.optimizer.step()
            with torch.no_grad():
                self.assertTrue(torch.equal(self.model(x), shown))
            for name, value in masters(self.model).items():
                self.assertTrue(torch.equal(value, after[name]), name)


if __name__ == "__main__":
    unittest.main()
