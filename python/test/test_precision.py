"""Number formats: buffers of fp32 among 16-bit parameters, and inputs of another type."""
import copy
import unittest

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm

from support import BF16, F32, LR, VERSION, WIDTH, Case, Two, can_multiply_halves, engine, master, masters, once, square
from support import values
from patrickstar import torch_scope
from patrickstar.runtime import initialize_engine

HALVES = [BF16] + ([torch.float16] if can_multiply_halves() else [])
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def plain_of(model, make, dtype):
    """The same module in plain PyTorch: as the engine's, with fp32 where there are fp32 buffers."""
    plain = make()
    plain.load_state_dict(model.state_dict())
    for module in plain.modules():
        if not any(buffer is not None and buffer.is_floating_point() for buffer in module._buffers.values()):
            for param in module._parameters.values():
                if param is not None:
                    param.data = param.data.to(dtype)
    return plain


def conv_and_norm():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3))


def line_and_norm():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))


class Block(nn.Module):
    """Of a ResNet."""

    def __init__(self, n=8):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n)
        self.conv2, self.bn2 = nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(x + y)


def resnet():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), Block(), Block(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


IMAGES, ROWS = (4, 3, 8, 8), (6, WIDTH)
NETS = ((conv_and_norm, IMAGES), (line_and_norm, ROWS), (resnet, IMAGES))


class RunningStatistics(Case):
    def test_a_step_has_the_bits_of_plain_pytorch(self):
        """Output, running statistics, gradients; then an evaluation by these statistics."""
        for dtype in HALVES:
            for make, shape in NETS:
                model, _ = engine(make, dtype, fp16={"enabled": dtype == torch.float16, "loss_scale": 1})
                plain = plain_of(model, make, dtype)
                x = values(*shape, dtype=dtype)
                with self.subTest(net=make.__name__, dtype=dtype):
                    y, z = model(x), plain(x)
                    self.assertEqual(y.dtype, dtype)
                    self.assertTrue(torch.equal(y, z))
                    model.backward(square(y))
                    square(z).backward()
                    for (name, buffer), other in zip(model.named_buffers(), plain.buffers()):
                        self.assertTrue(torch.equal(buffer, other), name)
                        self.assertIn(buffer.dtype, (F32, torch.int64))
                    self.assertGreater(sum(b.abs().sum() for b in model.buffers() if b.dtype == F32), 0)
                    for (name, param), other in zip(model.named_parameters(), plain.parameters()):
                        self.assertEqual(param.dtype, other.dtype, name)
                        self.assertTrue(torch.equal(param.grad.float(), other.grad.float()), name)
                    with torch.no_grad():
                        self.assertTrue(torch.equal(model.eval()(x), plain.eval()(x)))

    def test_training_is_near_autocast(self):
        for make, shape in NETS:
            model, optimizer = engine(make, BF16)
            plain = make()
            plain.load_state_dict(model.state_dict())
            theirs = torch.optim.AdamW(plain.parameters(), lr=LR, weight_decay=0)
            losses = []
            for t in range(8):
                x = values(*shape, dtype=F32)  # is cast by what needs it
                y = model(x)
                loss = square(y - 1)
                model.backward(loss)
                optimizer.step()
                with torch.autocast("cpu", dtype=BF16):
                    z = plain(x)
                theirs.zero_grad()
                other = square(z - 1)
                other.backward()
                theirs.step()
                self.assertEqual(y.dtype, z.dtype)
                losses.append((loss.item(), other.item()))
            with self.subTest(net=make.__name__):
                for ours, other in losses:
                    self.assertAlmostEqual(ours, other, delta=.05 * other + .02)
                self.assertLess(losses[-1][0], losses[0][0])
                for (name, buffer), other in zip(model.named_buffers(), plain.buffers()):
                    self.assertTrue(torch.allclose(buffer.float(), other.float(), rtol=.1, atol=.05), name)

    def test_all_kinds(self):
        class Derived(nn.BatchNorm1d):
            def forward(self, x):
                return F.relu(super().forward(x))
        kinds = [(kind, {}, (4, 3) + (5,) * (d + 1)) for d, kind in enumerate(NORMS)]
        kinds += [(Derived, {}, (4, 3)), (nn.BatchNorm2d, {"affine": False}, (4, 3, 5, 5)),
                  (nn.BatchNorm2d, {"momentum": None}, (4, 3, 5, 5)),
                  (nn.BatchNorm2d, {"track_running_stats": False}, (4, 3, 5, 5)),
                  (nn.InstanceNorm2d, {"affine": True, "track_running_stats": True}, (4, 3, 5, 5)),
                  (nn.InstanceNorm1d, {}, (4, 3, 5))]
        for kind, options, shape in kinds:
            def make():
                return nn.ModuleDict({"norm": kind(3, **options), "line": nn.Linear(2, 2)})
            model, optimizer = engine(make)
            plain = plain_of(model, make, BF16)
            x = values(*shape)
            with self.subTest(kind=kind.__name__, **options):
                y, z = model.norm(x), plain["norm"](x)
                self.assertEqual(y.dtype, BF16)
                self.assertTrue(torch.equal(y, z))
                model.backward(square(y) + square(model.line(values(2, 2))))
                optimizer.step()
                for (name, buffer), other in zip(model.named_buffers(), plain.buffers()):
                    self.assertTrue(torch.equal(buffer, other), name)

    def test_updates_reach_weights_that_bf16_would_round_away(self):
        model, optimizer = engine(line_and_norm, optimizer={"type": "SGD", "params": {"lr": 1e-3}})
        before = master(model, "1.weight")
        once(model, optimizer, values(*ROWS))
        after = master(model, "1.weight")
        self.assertTrue(torch.equal(model.module[1].weight.detach(), after))
        self.assertTrue((before == 1).all())
        self.assertTrue(0 < (after - before).abs().max() < 2 ** -9)

    def test_frozen_norms(self):
        """Before the engine, by the configuration, and between steps."""
        def make():
            model = line_and_norm()
            model[1].requires_grad_(False)
            return model
        for by, given, changed in (("model", make, {}), ("configuration", line_and_norm, {"train__freeze": "1.*"}),
                                   ("step", line_and_norm, {})):
            model, optimizer = engine(given, **changed)
            if by == "step":
                model.module[1].requires_grad_(False)
            plain = plain_of(model, line_and_norm, BF16)
            before = masters(model)
            x = values(*ROWS)
            with self.subTest(frozen_by=by):
                self.assertFalse(model.module[1].weight.requires_grad)
                self.assertTrue(torch.equal(model(x), plain(x)))
                once(model, optimizer, x)
                for name, value in masters(model).items():
                    self.assertEqual(torch.equal(value, before[name]), name.startswith("1."), name)

    def test_saving_and_loading(self):
        model, optimizer = engine(conv_and_norm)
        for _ in range(3):
            once(model, optimizer, values(*IMAGES))
        state, states = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
        other, theirs = engine(conv_and_norm)
        other.load_state_dict(state)
        theirs.load_state_dict(states)
        for _ in range(2):
            x = values(*IMAGES)
            once(model, optimizer, x)
            once(other, theirs, x)
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, other.state_dict()[name]), name)
        plain = conv_and_norm()
        plain.load_state_dict(model.state_dict())

    def test_a_model_that_is_16_bit_throughout_stays_so(self):
        def make():
            return line_and_norm().to(BF16)
        model, optimizer = engine(make)
        self.assertEqual(model.module[1].running_mean.dtype, BF16)
        self.assertFalse(any(slot.is_unmanaged for slot in model.front.slots))
        once(model, optimizer, values(*ROWS))

    def test_in_a_scope_inputs_are_cast(self):
        def make():
            model = line_and_norm()
            with torch_scope():
                model[1] = nn.BatchNorm1d(WIDTH)
            return model
        model, optimizer = engine(make)
        self.assertEqual(model.module[1](values(*ROWS)).dtype, F32)
        once(model, optimizer, values(*ROWS))


class Scope(Case):
    def test_frozen_parameters_are_fp32_too(self):
        def make():
            model = Two()
            with torch_scope():
                model.a = nn.Linear(WIDTH, WIDTH)
            model.a.bias.requires_grad_(False)
            return model
        model, optimizer = engine(make, train__freeze="a.weight")
        self.assertEqual((model.module.a.weight.dtype, model.module.a.bias.dtype), (F32, F32))
        before = masters(model)
        once(model, optimizer, values())
        for name, value in masters(model).items():
            self.assertEqual(torch.equal(value, before[name]), name.startswith("a."), name)


class Buffers(Case):
    def test_spectral_norm(self):
        def make():
            model = Two()
            spectral_norm(model.a)
            return model
        for dtype in HALVES:
            model, optimizer = engine(make, dtype)
            plain = make()
            plain.load_state_dict(model.state_dict())
            x = values(dtype=dtype)
            with self.subTest(dtype=dtype):
                for _ in range(3):
                    weight = model.module.a.weight
                    self.assertEqual(weight.dtype, dtype)
                    # The same from the rounded weight, in fp32; its power iteration is a step further then.
                    plain.a.parametrizations.weight.original.data = master(
                        model, "a.parametrizations.weight.original").to(dtype).float()
                    self.assertTrue(torch.equal(weight, plain.a.weight.to(dtype)))
                    for name, buffer in plain.named_buffers():
                        self.assertTrue(torch.equal(buffer, dict(model.named_buffers())[name]), name)
                    once(model, optimizer, x)
                    plain.a.weight  # as the forward had it
        model, _ = engine(make, BF16)
        with torch.no_grad():
            for _ in range(20):
                model(values())
            self.assertAlmostEqual(torch.linalg.matrix_norm(model.module.a.weight.float(), 2).item(), 1, delta=.02)

    def test_losses_with_weights(self):
        class Classifier(nn.Module):
            def __init__(self, loss):
                super().__init__()
                self.line, self.loss = nn.Linear(WIDTH, 3), loss

            def forward(self, x, y):
                return self.loss(self.line(x), y)
        weights = torch.tensor([.2, 1., 3.])
        for loss, y in ((nn.CrossEntropyLoss(weight=weights), torch.tensor([0, 1, 2, 2])),
                        (nn.BCEWithLogitsLoss(pos_weight=weights), torch.rand(4, 3))):
            model, optimizer = engine(lambda: Classifier(copy.deepcopy(loss)))
            x = values()
            with self.subTest(loss=type(loss).__name__):
                ours = model(x, y)
                self.assertEqual(ours.dtype, F32)
                self.assertTrue(torch.equal(ours, loss(model.module.line(x).float(), y)))
                model.backward(ours)
                optimizer.step()

    def test_buffers_of_others_stay_what_they_are(self):
        class Own(Two):
            def __init__(self):
                super().__init__()
                self.register_buffer("scale", torch.full((WIDTH,), 1 / 3))

            def forward(self, x):
                self.seen = x.dtype
                return self.b(self.a(x) * self.scale)
        model, optimizer = engine(Own)
        once(model, optimizer, values(dtype=F32))
        self.assertEqual((model.module.scale.dtype, model.module.seen), (F32, F32))
        self.assertTrue(torch.equal(model.module.scale, torch.full((WIDTH,), 1 / 3)))


class Inputs(Case):
    def test_those_of_derived_classes_are_cast(self):
        class Line(nn.Linear):
            pass

        class Noisy(Line):
            def forward(self, x, noise=None):
                return super().forward(x if noise is None else x + noise)

        class Chain(nn.Sequential):
            """No operator of PyTorch's: it sees what comes."""

            def __init__(self):
                super().__init__(Line(WIDTH, WIDTH), Noisy(WIDTH, WIDTH))
                self.scale = nn.Parameter(torch.ones(WIDTH))

            def forward(self, x):
                self.seen = x.dtype
                return self[1](self[0](x * self.scale), noise=x)
        model, optimizer = engine(Chain)
        once(model, optimizer, values(dtype=F32))
        self.assertEqual(model.module.seen, F32)
        y = model(values(dtype=F32))
        self.assertEqual(y.dtype, BF16)

    def test_nothing_is_cast_in_fp32(self):
        model, _ = engine(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)), F32)
        self.assertFalse(any(slot.is_unmanaged for slot in model.front.slots))
        self.assertRaises(RuntimeError, lambda: model(values(dtype=torch.float64)))


if __name__ == "__main__":
    unittest.main()
