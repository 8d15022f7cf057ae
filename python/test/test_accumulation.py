"""gradient_accumulation_steps: what counts a micro-batch, what drops gradients between them, what weighs them."""
import importlib.util
import logging
import unittest

import torch
import torch.nn as nn
import torch.nn.functional as F

from support import BF16, F32, WIDTH, Case, Two, engine, masters, once, square, values, without_dropout
from patrickstar import Refused

SGD = {"type": "SGD", "params": {"lr": 1.0}}
CLASSES = 20


def zero_grad_of(model, optimizer):
    return {"optimizer": optimizer.zero_grad, "model": model.zero_grad, "module": model.module.zero_grad}


class Counting(Case):
    def test_zero_grad_of_all_keeps_micro_batches(self):
        xs = [values() for _ in range(8)]
        expected = None
        for who in (None, "optimizer", "model", "module"):
            model, optimizer = engine(Two, gradient_accumulation_steps=4)
            steps = []
            for x in xs:
                if who is not None:
                    zero_grad_of(model, optimizer)[who]()
                once(model, optimizer, x)
                steps.append(optimizer.last_step.step)
            with self.subTest(zero_grad=who):
                self.assertEqual(steps, [0, 0, 0, 1, 1, 1, 1, 2])
                expected = expected or masters(model)
                for name, value in masters(model).items():
                    self.assertTrue(torch.equal(value, expected[name]), name)

    def test_zero_grad_drops_where_all_micro_batches_are_there(self):
        for who in ("optimizer", "model", "module"):
            for steps in (1, 2):
                model, optimizer = engine(Two, gradient_accumulation_steps=steps)
                for _ in range(steps):
                    model.backward(square(model(values())))
                zero_grad_of(model, optimizer)[who](set_to_none=False)
                with self.subTest(zero_grad=who, steps=steps):
                    self.assertIsNone(model.module.a.weight.grad)
                    once(model, optimizer, values())
                    self.assertEqual(optimizer.last_step.step, int(steps == 1))

    def test_gradients_that_a_program_drops_itself(self):
        model, optimizer = engine(Two, gradient_accumulation_steps=2)
        once(model, optimizer, values())
        with self.assertLogs("patrickstar", "WARNING") as logged:
            for param in model.parameters():
                param.grad = None
        self.assertIn("1 of 2 micro-batches", logged.output[0])
        self.assertEqual(len(logged.output), 1)
        once(model, optimizer, values())
        self.assertEqual(optimizer.last_step.step, 0)
        once(model, optimizer, values())
        self.assertEqual(optimizer.last_step.step, 1)

    def test_warnings_come_once(self):
        def to_none(param):
            param.grad = None

        def to_zero(param):
            if param.grad is not None:
                param.grad.zero_()
        for drop, said in ((to_none, "p.grad = None has dropped the gradients of 1 of 4 micro-batches"),
                           (to_zero, ".grad was set to zero in place, and has lost the gradients of 1 of 4")):
            model, optimizer = engine(Two, gradient_accumulation_steps=4)
            with self.assertLogs("patrickstar", "WARNING") as logged:
                for _ in range(8):
                    for param in model.parameters():
                        drop(param)
                    once(model, optimizer, values())
            self.assertEqual(len(logged.output), 1)
            self.assertIn(said, logged.output[0])

    def test_gradients_that_are_read_between_micro_batches(self):
        model, optimizer = engine(Two, gradient_accumulation_steps=4)
        other, theirs = engine(Two, gradient_accumulation_steps=4)
        with self.assertLogs("patrickstar", "WARNING") as logged:
            logging.getLogger("patrickstar").warning("no other")
            for _ in range(8):
                x = values()
                once(model, optimizer, x)
                once(other, theirs, x)
                [param.grad.norm() for param in model.parameters() if param.grad is not None]
        self.assertEqual(len(logged.output), 1)
        for name, value in masters(model).items():
            self.assertTrue(torch.equal(value, masters(other)[name]), name)

    def test_zero_grad_of_a_part_keeps_micro_batches(self):
        xs = [values() for _ in range(8)]
        trained = []
        for options in (None, {}, {"set_to_none": False}):
            model, optimizer = engine(Two, gradient_accumulation_steps=4)
            for x in xs:
                if options is not None:
                    model.module.a.zero_grad(**options)
                once(model, optimizer, x)
            self.assertEqual(optimizer.last_step.step, 2)
            trained.append(masters(model))
        for name, value in trained[0].items():
            self.assertTrue(all(torch.equal(value, other[name]) for other in trained[1:]), name)
        model, optimizer = engine(Two)
        model.backward(square(model(xs[0])))
        model.module.a.zero_grad(set_to_none=False)
        self.assertIsNone(model.module.a.weight.grad)
        self.assertGreater(model.module.b.weight.grad.abs().max(), 0)

    def test_loss_backward_does_not_count_and_is_refused(self):
        model, optimizer = engine(Two, gradient_accumulation_steps=2)
        x = values()
        before = masters(model)
        self.refused(lambda: square(model(x)).backward(), "gradient_accumulation_steps = 2: call model.backward(loss)",
                     Refused)
        for _ in range(2):
            once(model, optimizer, x)
        self.assertEqual(optimizer.last_step.step, 1)
        self.assertFalse(torch.equal(masters(model)["a.weight"], before["a.weight"]))
        model, optimizer = engine(Two)  # without the key both do the same
        square(model(x)).backward()
        optimizer.step()
        other, theirs = engine(Two)
        once(other, theirs, x)
        for name, value in masters(model).items():
            self.assertTrue(torch.equal(value, masters(other)[name]), name)


class Tagger(nn.Module):
    """A class for each word, which depends on no other one of its batch."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, ids):
        return self.head(torch.tanh(self.embed(ids)))


def rows(n, length, classes):
    """Words and their classes; row i has i + 1 of them to learn from."""
    torch.manual_seed(1)
    ids, labels = torch.randint(0, classes, (n, length)), torch.randint(0, classes, (n, length))
    labels[torch.arange(length)[None] > torch.arange(n)[:, None]] = -100
    return ids, labels


class TargetWeighting(Case):
    """1 x 8 and 8 x 1 micro-batches are the same step, however many targets each has."""

    def same_gradients(self, make, loss_of, batch, n_targets, dtype=F32, **near):
        gradients = []
        for n in (1, 8):
            model, optimizer = engine(make, dtype, optimizer=SGD, gradient_accumulation_steps=n,
                                      default_chunk_size=1 << 13)
            before = masters(model)
            for part in zip(*(tensor.chunk(n) for tensor in batch)):
                optimizer.zero_grad()
                model.backward(loss_of(model, part, n_targets), scale_wrt_gas=False)
                optimizer.step()
            self.assertEqual(optimizer.last_step.step, 1)
            after = masters(model)
            gradients.append({name: before[name] - after[name] for name in before})
        for name, gradient in gradients[0].items():
            self.assertGreater(gradient.abs().max(), 1e-4, name)
            self.assertTrue(torch.allclose(gradient, gradients[1][name], **near), name)

    def test_a_sum_over_the_targets_of_all(self):
        def loss_of(model, part, n_targets):
            ids, labels = part
            logits = model(ids).float()
            return F.cross_entropy(logits.view(-1, CLASSES), labels.view(-1), reduction="sum") / n_targets
        batch = rows(8, 8, CLASSES)
        n_targets = int((batch[1] != -100).sum())
        self.assertEqual(n_targets, 36)
        self.same_gradients(Tagger, loss_of, batch, n_targets, atol=1e-6)
        self.same_gradients(Tagger, loss_of, batch, n_targets, BF16, atol=2e-3)

    def test_the_loss_is_divided_unless_asked_not_to(self):
        x = values(dtype=F32)
        norms = []
        for options in ({}, {"scale_wrt_gas": True}, {"scale_wrt_gas": False}):
            model, optimizer = engine(Two, F32, gradient_accumulation_steps=2)
            for _ in range(2):
                model.backward(square(model(x)), **options)
            optimizer.step()
            norms.append(optimizer.last_step.grad_norm)
        self.assertEqual(norms[0], norms[1])
        self.assertEqual(norms[2], 2 * norms[0])

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
    def test_num_items_in_batch_of_transformers(self):
        from test_transformers import VOCABULARY, llama, transformers
        if tuple(int(part) for part in transformers.__version__.split(".")[:2]) < (4, 46):
            self.skipTest("transformers %s has no num_items_in_batch" % transformers.__version__)

        def loss_of(model, part, n_targets):
            ids, labels = part
            return model(input_ids=ids, labels=labels, num_items_in_batch=n_targets).loss
        batch = rows(8, 9, VOCABULARY)
        n_targets = (batch[1][:, 1:] != -100).sum()
        self.assertEqual(int(n_targets), 28)  # a row of i + 1 labels foretells i of them
        self.same_gradients(without_dropout(llama), loss_of, batch, n_targets, atol=1e-6)


if __name__ == "__main__":
    unittest.main()
