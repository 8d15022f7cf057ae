"""Modules of all kinds train in chunks with the bits of plain PyTorch; situations.py has most kinds."""
import unittest

import torch
import torch.nn as nn
import torch.nn.functional as F

from support import BF16, F32, IS_LONG, WIDTH, Case, Two, engine, master, masters, once, square, values


def two(run):
    return lambda: Two(run)


class Returns(nn.Module):
    def __init__(self):
        super().__init__()
        self.p, self.q = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.randn(4, WIDTH))

    def forward(self):
        return self.p, self.q[:2]


class UsesReturned(nn.Module):
    def __init__(self):
        super().__init__()
        self.r, self.a = Returns(), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        p, q = self.r()
        return self.a(x) * p + q.repeat(2, 1)


class Own(nn.Module):
    """Tied, used twice, used by another module, unused."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(50, 32)
        self.layers = nn.ModuleList([nn.Linear(32, 32) for _ in range(3)])
        self.norm, self.unused = nn.LayerNorm(32), nn.Linear(32, 4)
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        x = F.dropout(self.emb(ids), .1, self.training)
        for layer in self.layers:
            x = x + F.gelu(layer(self.norm(x)))
        x = self.head(x + F.linear(self.layers[0](x), self.layers[1].weight))
        return F.cross_entropy(x.float().view(-1, 50), ids.view(-1))


class Calls(Case):
    """What modules are called with, and what they give."""

    def test_a_tuple(self):
        self.same(two(lambda s, x: (s.b(s.a(x)), None)), lambda m, t: square(m(values())[0]))

    def test_keywords(self):
        self.same(two(lambda s, x=None: s.b(s.a(input=x))), lambda m, t: square(m(x=values())))

class Uses(Case):
    """Which parameters are used when, and by whom."""

    def test_a_module_called_three_times(self):
        self.same(two(lambda s, x: s.a(s.b(s.a(s.a(x))))), lambda m, t: square(m(values())))

    def test_a_module_that_returns_its_parameters(self):
        self.same(UsesReturned, lambda m, t: square(m(values())))

    def test_the_sum_of_all_parameters(self):
        self.same(Two, lambda m, t: square(m(values())) + sum(p.float().pow(2).sum() for p in m.parameters()))
        self.same(Two, lambda m, t: square(m(values())) + sum(p.sum() for p in m.parameters()))

    def test_a_module_that_writes_to_its_weight(self):
        """A limit on the norm, as embeddings and some convolutions have it."""
        class Limited(nn.Linear):
            def forward(self, x):
                with torch.no_grad():
                    self.weight.mul_(0.5)
                return super().forward(x)
        model, optimizer = engine(lambda: nn.Sequential(Limited(WIDTH, WIDTH), Limited(WIDTH, WIDTH)), torch.float32)
        plain = nn.Sequential(Limited(WIDTH, WIDTH), Limited(WIDTH, WIDTH))
        plain.load_state_dict(model.state_dict())
        for _ in range(2):
            x = values(dtype=torch.float32).requires_grad_()
            other = x.detach().clone().requires_grad_()
            model.backward(square(model(x)))
            square(plain(other)).backward()
            self.assertTrue(torch.equal(x.grad, other.grad))
            for name, param in plain.named_parameters():
                self.assertTrue(torch.equal(param.grad, dict(model.named_parameters())[name].grad), name)
                param.grad = None
            optimizer.zero_grad()
        loss = square(model(x))
        model(x.detach())  # writes again
        self.assertRaisesRegex(RuntimeError, "0.weight|1.weight", lambda: model.backward(loss))

    def test_tied_shared_and_unused(self):
        for dtype, chunk in ((BF16, 512), (F32, 2048), (BF16, 1 << 15)):
            with self.subTest(dtype=dtype, chunk=chunk):
                self.same(Own, lambda m, t: m(torch.randint(0, 50, (4, 8))), n=10 if IS_LONG else 4, dtype=dtype,
                          default_chunk_size=chunk, memory__device="4MB", beside=0)


class Kinds(Case):
    """Modules of torch.nn that treat their parameters in ways of their own."""

    def test_pruned_in_the_end(self):
        from torch.nn.utils import prune
        model, optimizer = engine(Two, F32)
        once(model, optimizer, values(dtype=F32))
        prune.l1_unstructured(model.module.a, "weight", 5)
        before = masters(model)
        once(model, optimizer, values(dtype=F32))
        self.assertEqual(int((model.module.a.weight == 0).sum()), 5)
        self.assertFalse(torch.equal(master(model, "a.weight"), before["a.weight"]))

    def test_fp32_inputs_of_16_bit_modules_are_cast(self):
        self.same(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(288, 4)),
                  lambda m, t: square(m(values(2, 3, 8, 8) if not hasattr(m, "front") else
                                        values(2, 3, 8, 8).float())))


if __name__ == "__main__":
    unittest.main()
