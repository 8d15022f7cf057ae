"""memory.update_in_backward = always: the bits of updates in the step, and what is refused between backward and step."""
import os
import tempfile
import unittest

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

from patrickstar._library import PatrickStarError
from support import BF16, F32, LR, Case, engine, masters, once, square
from support import values as drawn

LAYERS, WIDTH = 6, 64  # more than a chunk each
SMALL = {"memory__device": "300KB", "memory__host": "100KB"}


def values(dtype=BF16):
    return drawn(4, WIDTH, dtype=dtype)


class Deep(nn.Module):
    """Segments that are computed again, and a weight that is used twice."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WIDTH)
        self.head.weight = self.layers[0].weight

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = checkpoint(layer, x, use_reentrant=False) if i % 2 else torch.tanh(layer(x))
        return self.head(x)


def early(dtype=BF16, way="always", **more):
    return engine(Deep, dtype, memory__update_in_backward=way, gradient_clipping=0, train__max_nonfinite_steps=1, **more)


def count_no_activations(model):
    """They are more than all chunks here."""
    moment = model.client.moment
    model.client.moment = lambda phase, label: moment(phase, label, 0)


class SameBits(Case):
    def test_in_any_budget_and_with_accumulation(self):
        for dtype in (BF16, F32):
            for micro in (1, 2):
                seen = {}
                for name, way, budget in (("late", "auto", {}), ("early", "always", {}), ("small", "always", SMALL),
                                          ("at once", "always", {**SMALL, "memory__defer_updates": False})):
                    model, optimizer = early(dtype, way, gradient_accumulation_steps=micro, **budget)
                    count_no_activations(model)
                    torch.manual_seed(1)
                    losses, norms, n_early = [], [], 0
                    for t in range(5):
                        optimizer.param_groups[0]["lr"] = LR / (t + 1)
                        for _ in range(micro):
                            optimizer.zero_grad()
                            loss = square(model(values(dtype)))
                            model.backward(loss)
                            optimizer.step()
                            losses.append(loss.item())
                        norms.append(optimizer.last_step.grad_norm)
                        n_early += optimizer.last_step.n_early
                        self.assertEqual(optimizer.last_step.step, t + 1)
                    with self.subTest(dtype=dtype, micro=micro, way=name):
                        self.assertEqual(n_early > 0, way == "always")
                        seen[name] = losses, norms, masters(model)
                        self.assertEqual(seen[name][:2], seen["late"][:2])
                        for key, value in seen[name][2].items():
                            self.assertTrue(torch.equal(value, seen["late"][2][key]), key)
                    model.close()


class Between(Case):
    """After the last backward pass, and before the step."""

    def setUp(self):
        self.model, self.optimizer = early()
        for _ in range(2):
            once(self.model, self.optimizer, values())
        self.assertGreater(self.optimizer.last_step.n_early, 0)
        self.before = masters(self.model)
        self.model.backward(square(self.model(values())))

    def tearDown(self):
        self.model.close()

    def refused(self, call, text):
        with self.assertRaisesRegex(PatrickStarError, text) as caught:
            call()
        self.assertIn("memory.update_in_backward = auto", str(caught.exception))

    def test_gradients(self):
        last = self.model.module.layers[LAYERS - 1]
        self.refused(lambda: last.weight.grad, "p.grad")
        self.refused(lambda: setattr(last.weight, "grad", None), "zero_grad")
        self.refused(lambda: nn.utils.clip_grad_norm_(self.model.parameters(), 1.), "p.grad")
        self.refused(self.model.zero_grad, "zero_grad")
        self.refused(self.optimizer.zero_grad, "zero_grad")
        self.optimizer.step()
        self.assertEqual(self.optimizer.last_step.step, 3)
        self.assertIsNone(last.weight.grad)

    def test_parameters(self):
        last = self.model.module.layers[LAYERS - 1]
        self.refused(lambda: last.weight.sum(), "layers.5.weight: its value is asked for")
        self.refused(self.model.state_dict, "its value or a state is read")
        self.refused(lambda: self.model(values()), "its value is asked for")
        self.optimizer.step()
        self.assertFalse(torch.equal(self.before["layers.5.weight"], masters(self.model)["layers.5.weight"]))

    def test_another_backward_pass(self):
        self.optimizer.step()
        loss = square(self.model(values()))
        self.model.backward(loss, retain_graph=True)
        self.refused(lambda: self.model.backward(loss), "gradient_accumulation_steps")
        self.optimizer.step()
        self.assertEqual(self.optimizer.last_step.step, 4)

    def test_throughput(self):
        self.optimizer.param_groups[0]["lr"] = LR / 7
        self.refused(self.optimizer.step, "numbers of group 0")
        self.optimizer.param_groups[0]["lr"] = LR
        self.optimizer.step()
        self.assertEqual(self.optimizer.last_step.step, 3)


class Ends(Case):
    def test_gradients_that_are_not_finite(self):
        with tempfile.TemporaryDirectory() as folder:
            model, optimizer = early()
            x = values()
            for _ in range(2):
                once(model, optimizer, x)
            before = masters(model)
            model.save_checkpoint(os.path.join(folder, "saved"))
            model.backward(square(model(x)) * float("inf"))
            with self.assertRaisesRegex(PatrickStarError, "some weights have changed already"):
                optimizer.step()
            self.assertFalse(optimizer.last_step.is_skipped)
            model.load_checkpoint(os.path.join(folder, "saved"))
            for name, value in masters(model).items():
                self.assertTrue(torch.equal(value, before[name]), name)
            once(model, optimizer, x)
            self.assertEqual(optimizer.last_step.step, 3)
            model.close()

    def test_passes_of_loss_itself_are_updated_in_the_step(self):
        model, optimizer = early()
        for t in range(4):
            square(model(values())).backward()
            self.assertIsNotNone(model.module.head.bias.grad)
            optimizer.step()
            self.assertEqual((optimizer.last_step.n_early, optimizer.last_step.step), (0, t + 1))
        model.close()

    def test_what_forbids_it(self):
        for more in ({"gradient_clipping": 1.}, {"train__max_nonfinite_steps": 3}):
            with self.assertRaisesRegex(PatrickStarError, "memory.update_in_backward = always"):
                engine(Deep, memory__update_in_backward="always", **{"train__max_nonfinite_steps": 1, **more})


if __name__ == "__main__":
    unittest.main()
