"""Gradients: accumulated, scaled, clipped, read, dropped; parameters without them."""
import unittest

import torch
import torch.nn as nn

from support import (BF16, F32, WIDTH, Case, Two, can_multiply_halves, engine, master, masters, module_of, once, square,
                     train, values)


def frozen():
    model = Two()
    model.a.weight.requires_grad_(False)
    return model


class Accumulation(Case):
    def test_three_micro_batches(self):
        for dtype in (F32, BF16):
            with self.subTest(dtype=dtype):
                # The gradients of the first micro-batch of all lie over their four parameters, which the second reads.
                self.same(Two, lambda m, t: square(m(values(dtype=dtype))), dtype=dtype, micro=3, restored=4)

    def test_gradient_accumulation_steps_divides_and_steps_when_all_are_there(self):
        xs = [values() for _ in range(4)]
        model, optimizer = engine(Two, gradient_accumulation_steps=2)
        for x in xs:
            optimizer.zero_grad()  # may stand before each backward pass
            once(model, optimizer, x)
        self.assertEqual(optimizer.last_step.step, 2)
        other, by_hand = engine(Two)
        for one, two in (xs[:2], xs[2:]):
            other.backward(square(other(one)) / 2)
            other.backward(square(other(two)) / 2)
            by_hand.step()
        for name, value in masters(model).items():
            self.assertTrue(torch.equal(value, masters(other)[name]), name)

    def test_zero_grad_drops_what_came_since_the_step(self):
        model, optimizer = engine(Two)
        before = masters(model)
        optimizer.zero_grad()
        model.backward(square(model(values())))
        self.assertIsNotNone(model.module.a.weight.grad)
        optimizer.zero_grad()
        self.assertIsNone(model.module.a.weight.grad)
        optimizer.step()
        for name, value in masters(model).items():
            self.assertTrue(torch.equal(value, before[name]), name)


class Frozen(Case):
    def test_frozen(self):
        self.same(frozen, lambda m, t: square(m(values())))
        model, optimizer = engine(frozen)
        before = master(model, "a.weight")
        once(model, optimizer, values())
        self.assertTrue(torch.equal(master(model, "a.weight"), before))

    def test_requires_grad_changes_between_steps(self):
        def step(m, t):
            module_of(m).a.weight.requires_grad_(t % 2 == 0)
            return square(m(values()))
        for make in (frozen, Two):
            with self.subTest(make=make.__name__):
                self.same(make, step, n=6)

    def test_train_freeze_of_the_configuration(self):
        model, optimizer = engine(Two, train__freeze="a.*")
        self.assertFalse(model.module.a.weight.requires_grad)
        self.assertTrue(model.module.b.weight.requires_grad)


class Reading(Case):
    def test_grad_between_backward_and_step(self):
        plain = Two()
        model, optimizer = engine(Two, F32)
        plain.load_state_dict(model.state_dict())
        x = values(dtype=F32)
        square(plain(x)).backward()
        model.backward(square(model(x)))
        for name, param in plain.named_parameters():
            ours = dict(model.module.named_parameters())[name].grad
            self.assertTrue(torch.equal(ours.float(), param.grad), name)
        optimizer.step()
        self.assertIsNone(model.module.a.weight.grad)
        self.assertTrue(torch.equal(ours, plain.b.bias.grad))  # what a program still has is a copy now

    def test_grad_may_be_changed(self):
        model, optimizer = engine(Two)
        model.backward(square(model(values())))
        model.module.a.weight.grad.zero_()
        model.module.b.weight.grad = torch.full((WIDTH, WIDTH), 2.)
        kept = model.module.b.bias.grad
        model.module.b.bias.grad = None
        self.assertEqual(kept.shape, (WIDTH,))
        self.assertEqual(model.module.a.weight.grad.abs().sum(), 0)
        self.assertTrue((model.module.b.weight.grad == 2).all())
        before = masters(model)
        optimizer.step()
        self.assertTrue(torch.equal(master(model, "b.bias"), before["b.bias"]))
        self.assertTrue(torch.equal(master(model, "a.weight"), before["a.weight"]))
        self.assertFalse(torch.equal(master(model, "b.weight"), before["b.weight"]))

    def test_clip_grad_norm_of_pytorch(self):
        model, optimizer = engine(Two)
        model.backward(square(model(values())))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        norm = sum(p.grad.float().pow(2).sum() for p in model.parameters()).sqrt()
        self.assertLessEqual(norm, 1.01e-3)
        optimizer.step()
        self.assertLessEqual(optimizer.last_step.grad_norm, 1.01e-3)

    def test_gradient_clipping_of_the_configuration(self):
        sgd = {"type": "SGD", "params": {"lr": 1.0}}
        model, optimizer = engine(Two, F32, optimizer=sgd, gradient_clipping=1e-3)
        before = masters(model)
        once(model, optimizer, values(dtype=F32))
        after = masters(model)
        norm = sum((after[name] - before[name]).pow(2).sum() for name in after).sqrt()
        self.assertGreater(optimizer.last_step.grad_norm, 1e-2)
        self.assertAlmostEqual(float(norm), 1e-3, delta=1e-6)


class LossScale(Case):
    @unittest.skipUnless(can_multiply_halves(), "this PyTorch does not multiply fp16 on the processor")
    def test_fp16(self):
        fp16 = {"enabled": True, "initial_scale_power": 4}
        half = torch.float16
        model, optimizer = engine(Two, half, fp16=fp16)
        plain = Two().half()
        plain.load_state_dict(model.state_dict())
        x = values(dtype=half)
        (square(plain(x)) * 16).backward()
        model.backward(square(model(x)))
        self.refused(lambda: model.module.b.weight.grad, "gradient_clipping")
        optimizer.step()
        norm = torch.cat([p.grad.float().flatten() for p in plain.parameters()]).norm().item() / 16
        self.assertAlmostEqual(optimizer.last_step.grad_norm / norm, 1, delta=1e-5)
        self.assertEqual(optimizer.last_step.loss_scale, 16)
        self.assertFalse(optimizer.last_step.is_skipped)

    @unittest.skipUnless(can_multiply_halves(), "this PyTorch does not multiply fp16 on the processor")
    def test_overflow_skips_the_step_and_halves_the_scale(self):
        half = torch.float16
        model, optimizer = engine(Two, half, fp16={"enabled": True, "initial_scale_power": 16, "hysteresis": 1})
        before = masters(model)
        model.backward(square(model(values(dtype=half))) * 1e6)
        optimizer.step()
        self.assertTrue(optimizer.last_step.is_skipped)
        for name, value in masters(model).items():
            self.assertTrue(torch.equal(value, before[name]), name)
        self.assertEqual(model.client.get_loss_scale(), 2 ** 15)
        self.refused(lambda: square(model(values(dtype=half))).backward(), "model.backward(loss)")

    @unittest.skipIf(can_multiply_halves(), "this PyTorch multiplies fp16 on the processor")
    def test_fp16_is_refused_where_pytorch_cannot_multiply_it(self):
        self.refused(lambda: engine(Two, torch.float16), "bf16.enabled")


class Budgets(Case):
    def test_two_budgets_have_the_same_bits(self):
        def step(m, t):
            return square(m(values()))

        def deep():
            return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(12)])
        roomy, tight = train(deep, step, is_tight=False), train(deep, step)
        self.assertGreater(tight.moved_bytes, 10 * roomy.moved_bytes)
        self.assertEqual(roomy.losses, tight.losses)
        for name, value in roomy.values.items():
            self.assertTrue(torch.equal(value, tight.values[name]), name)

    def test_what_does_not_fit_says_what_would(self):
        from patrickstar import BudgetError
        self.refused(lambda: engine(Two, memory__device="4KB", memory__host=0), "raise it to at least memory.device=", BudgetError)

    def test_what_a_hook_raises_in_backward_comes_out_as_it_is(self):
        from patrickstar import BudgetError
        from patrickstar._library import check, library
        status = next(i for i in range(-64, 64) if library.ps_status_name(i) == b"EBUDGET")
        model, _ = engine(Two, BF16)
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: check(status)):
            loss = model(values()).float().pow(2).mean()
        with self.assertRaises(BudgetError):
            model.backward(loss)


if __name__ == "__main__":
    unittest.main()
