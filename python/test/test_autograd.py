"""What autograd keeps of parameters, operator by operator; graphs that are more than one forward and one backward."""
import ctypes
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import unittest

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from support import BF16, F32, IS_LONG, VERSION, WIDTH, Case, Two, engine, once, pinned, square, train, values

B, T, D = 2, 3, 32


def two(run):
    return lambda: Two(run)


class Op(nn.Module):
    """A function of an input and parameters of these shapes."""

    def __init__(self, shapes, f):
        super().__init__()
        self.p = nn.ParameterList([nn.Parameter(torch.randn(*shape)) for shape in shapes])
        self.f = f

    def forward(self, x):
        return self.f(x, *self.p)


OPERATORS = {
    "linear": ([(D, WIDTH), (D,)], F.linear),
    "linear without bias": ([(D, WIDTH)], F.linear),
    "linear of a matrix": ([(D, WIDTH), (D,)], lambda x, w, b: F.linear(x[0], w, b)),
    "x @ w": ([(WIDTH, D)], lambda x, w: x @ w),
    "x @ w.t()": ([(D, WIDTH)], lambda x, w: x @ w.t()),
    "addmm": ([(D,), (WIDTH, D)], lambda x, b, w: torch.addmm(b, x.reshape(-1, WIDTH), w)),
    "einsum": ([(D, WIDTH)], lambda x, w: torch.einsum("btc,dc->btd", x, w)),
    "bmm": ([(B, WIDTH, D)], torch.bmm),
    "layer_norm": ([(WIDTH,), (WIDTH,)], lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b)),
    "group_norm": ([(T,), (T,)], lambda x, w, b: F.group_norm(x, 1, w, b)),
    "w * x": ([(WIDTH,)], lambda x, w: w * x),
    "w[:n] * x": ([(50, WIDTH)], lambda x, w: x * w[:T]),
    "expand": ([(1, 1, WIDTH)], lambda x, w: w.expand(B, T, WIDTH) * x),
    "softmax of w": ([(WIDTH,)], lambda x, w: x * torch.softmax(w.float(), -1).to(x.dtype)),
    "conv1d": ([(D, T, 1), (D,)], F.conv1d),
    "bilinear": ([(D, WIDTH, WIDTH), (D,)], lambda x, w, b: F.bilinear(x, x, w, b)),
    "prelu": ([(1,)], F.prelu),
    "cosine_similarity": ([(WIDTH,)], lambda x, w: F.cosine_similarity(x, w, dim=-1)),
    "normalized w": ([(D, WIDTH)], lambda x, w: F.linear(x, F.normalize(w))),
}
LOOKUPS = {
    "embedding": ([(50, WIDTH)], F.embedding),
    "w[i]": ([(50, WIDTH)], lambda x, w: w[x] * 2),
}
if VERSION >= (2, 0):
    OPERATORS["attention with its own keys and values"] = (
        [(1, 2, 8, 8)] * 2, lambda x, k, v: F.scaled_dot_product_attention(x[:1, :2].reshape(1, 2, 1, 16)
                                                                           .reshape(1, 2, 2, 8), k, v))
if VERSION >= (2, 4):
    OPERATORS["rms_norm"] = ([(WIDTH,)], lambda x, w: F.rms_norm(x, (WIDTH,), w))


class Operators(Case):
    def test_each_operator(self):
        for name, (shapes, f) in {**OPERATORS, **LOOKUPS}.items():
            for dtype in (F32, BF16) if IS_LONG else (BF16,):
                with self.subTest(operator=name, dtype=dtype):
                    if name in LOOKUPS:
                        step = lambda m, t: square(m(torch.randint(0, 50, (B, T))))
                    else:
                        step = lambda m, t: square(m(values(B, T, WIDTH, dtype=dtype).requires_grad_()))
                    self.same(lambda: Op(shapes, f), step, dtype=dtype, n=2, memory__device="4MB")


class Saves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w, g.t() @ x


class Keeps(torch.autograd.Function):
    """Keeps a parameter as an attribute of its context."""
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x)
        ctx.w = w
        return x @ w.t()

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g @ ctx.w, g.t() @ x


class OfFunction(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.w, self.function = nn.Parameter(torch.randn(WIDTH, WIDTH)), function

    def forward(self, x):
        return self.function.apply(x, self.w)


class Functions(Case):
    def test_within_its_module(self):
        for function in (Saves, Keeps):
            with self.subTest(function=function.__name__):
                self.same(lambda: nn.Sequential(OfFunction(function), OfFunction(function)),
                          lambda m, t: square(m(values())), restored=None)

    def test_on_weights_of_others(self):
        for function in (Saves, Keeps):
            with self.subTest(function=function.__name__):
                self.same(two(lambda s, x: function.apply(function.apply(x, s.a.weight), s.b.weight)),
                          lambda m, t: square(m(values())), restored=None)

    def test_hooks_of_others_see_no_parameter(self):
        model, optimizer = engine(two(lambda s, x: Saves.apply(s.a(x), s.b.weight)))
        seen = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(type(t)), t)[1], lambda t: t):
            loss = square(model(values().requires_grad_()))
        self.assertTrue(seen)
        self.assertEqual(set(seen), {torch.Tensor})
        model.backward(loss)

    def test_gradient_penalty(self):
        class Penalty(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(WIDTH, WIDTH)

            def forward(self, x):
                x = x.requires_grad_()
                y = self.a(x).tanh()
                g, = torch.autograd.grad(y.float().sum(), x, create_graph=True)
                return square(y) + g.float().pow(2).sum()
        self.same(Penalty, lambda m, t: m(values()))

    def test_detached_weights(self):
        self.same(two(lambda s, x: F.linear(s.a(x), s.a.weight.detach()) * s.b(x)), lambda m, t: square(m(values())),
                  restored=None)
        self.same(two(lambda s, x: s.a(s.b(x) * s.a.weight.detach()[0])), lambda m, t: square(m(values())),
                  restored=None)

    def test_autocast(self):
        def step(m, t):
            with torch.autocast("cpu", dtype=BF16):
                return square(m(values(dtype=F32)))
        self.same(Two, step)
        self.same(Two, step, dtype=F32)


class HooksOfOthers(Case):
    def test_hooks_that_copy(self):
        class Copies(Two):
            def forward(self, x):
                with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
                    return self.b(self.a(x))
        self.same(Copies, lambda m, t: square(m(values())))

    def test_save_on_cpu(self):
        class OnCpu(Two):
            def forward(self, x):
                with torch.autograd.graph.save_on_cpu():
                    return self.b(self.a(x))
        self.same(OnCpu, lambda m, t: square(m(values())))

    def test_hooks_that_keep_what_they_get(self):
        class Keep(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([Op([(WIDTH,), (WIDTH, WIDTH)], lambda x, b, w: torch.addmm(b, x, w))
                                             for _ in range(2)])

            def forward(self, x):
                with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                    for layer in self.layers:
                        x = layer(x)
                    return x
        self.same(Keep, lambda m, t: square(m(values())))


class Segments(nn.Module):
    """Checkpointed segments, of three layers or of one, with a weight that all use."""

    def __init__(self, is_reentrant, is_shared):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.w = nn.Parameter(torch.randn(WIDTH, WIDTH) * .1)
        self.is_reentrant, self.is_shared = is_reentrant, is_shared

    def segment(self, layer, x):
        return torch.addmm(x, F.gelu(layer(x)), self.w)

    def forward(self, x):
        x = x.requires_grad_()
        for layer in self.layers:
            x = checkpoint(self.segment, self.layers[0] if self.is_shared else layer, x,
                           use_reentrant=self.is_reentrant)
        return x


class Checkpointing(Case):
    def test_segments(self):
        for is_reentrant in (False, True):
            for is_shared in (False, True):
                for dtype in (F32, BF16):
                    # Re-entrant, a weight of several segments has gradients one after the other: PyTorch adds them in
                    # the parameter's type, the library in fp32.
                    within = 2e-3 if is_reentrant and dtype == BF16 else None
                    with self.subTest(is_reentrant=is_reentrant, is_shared=is_shared, dtype=dtype):
                        self.same(lambda: Segments(is_reentrant, is_shared),
                                  lambda m, t: square(m(values(dtype=dtype))), n=2, dtype=dtype, restored=None,
                                  within=within)


class Graphs(Case):
    def test_backward_twice_over_one_graph(self):
        def step(m, t):
            loss = square(m(values()))
            loss.backward(retain_graph=True)
            return loss
        self.same(Two, step, n=2, restored=None)

    def test_backward_in_another_thread(self):
        model, optimizer = engine(Two)
        loss = square(model(values()))
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
        self.assertTrue(all(model.client.has_gradient(slot.number) for slot in model.front.slots))

    def test_a_graph_that_lives_over_a_step_is_refused_as_pytorch_does(self):
        model, optimizer = engine(Two)
        old = square(model(values()))
        once(model, optimizer, values())
        self.refused(lambda: model.backward(old), "modified by an inplace operation")
        model, optimizer = engine(two(lambda s, x: Saves.apply(s.a(x), s.b.weight)))  # saves a parked parameter
        old = square(model(values()))
        once(model, optimizer, values())
        self.refused(lambda: model.backward(old), "modified by an inplace operation")

    def test_a_parameter_written_to_between_forward_and_backward_is_found(self):
        model, optimizer = engine(Two)
        loss = square(model(values()))
        with torch.no_grad():
            model.module.b.weight.mul_(2)
        self.refused(lambda: model.backward(loss), "b.weight was updated or written to")

    def test_a_graph_that_is_kept_over_steps_does_no_harm(self):
        model, optimizer = engine(Two)
        kept = model(values())
        for _ in range(3):
            once(model, optimizer, values())
        self.assertEqual(kept.shape, (4, WIDTH))
        self.assertTrue(any(slot.n_saved > 0 for slot in model.front.slots))

    def test_autograd_grad(self):
        model, _ = engine(Two)
        gradients = torch.autograd.grad(square(model(values())), list(model.parameters()))
        self.assertEqual(gradients[0].shape, (WIDTH, WIDTH))

    def test_a_saved_activation_that_is_changed_in_place_is_found(self):
        model, _ = engine(Two)
        x = values()

        def output():
            y = model(x.clone().requires_grad_()).exp()
            y.mul_(1).sum().backward()

        def input():
            changed = x.clone()
            y = model.module.a(changed)
            changed.add_(1)
            y.sum().backward()
        self.refused(output, "modified by an inplace")
        self.refused(input, "modified by an inplace")

    def test_graphs_that_are_dropped_leave_nothing(self):
        for f in (torch.exp, lambda x: x.softmax(-1), torch.relu, torch.norm):
            class Scaled(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.w = nn.Parameter(torch.ones(WIDTH))

                def forward(self, x):
                    return f(x * self.w)
            model, _ = engine(Scaled)
            model(values().requires_grad_())
            gc.collect()
            self.assertEqual(model.front.slots[0].n_saved, 0)

    def test_an_exception_in_forward_leaves_nothing_in_use(self):
        model, optimizer = engine(two(lambda s, x, bad=False: (s.a(x), 1 / 0) if bad else s.b(s.a(x))))
        with self.assertRaises(ZeroDivisionError):
            model(values(), bad=True)
        with self.assertRaises(RuntimeError):
            model(values(4, 5))
        self.assertTrue(all(slot.n_uses == 0 for slot in model.front.slots))
        gc.collect()
        self.assertEqual(pinned(model), [])
        once(model, optimizer, values())


class Places(Case):
    def test_nothing_stays_between_forward_and_backward(self):
        model, _ = engine(lambda: nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(8)]))
        loss = square(model(values()))
        self.assertEqual(pinned(model), [])
        model.front.saved.pack_parameter = lambda tensor: None  # without handles
        other = square(model(values()))
        self.assertEqual(len(pinned(model)), 7)  # the first weight is not saved: its input needs no gradient
        del loss, other

    def test_what_is_stale_shows(self):
        """Were places let go while autograd keeps views of them, training in little memory would go wrong: by other
        values, or, where the memory is not there any more, by the system's signal."""
        good = train(deep, square_of_values, n=2)
        done = subprocess.run([sys.executable, "-W", "ignore", os.path.abspath(__file__), STALE],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300)
        self.assertGreater(good.moved_bytes, 0)
        if done.returncode not in (-signal.SIGSEGV, -signal.SIGBUS):
            self.assertEqual(done.returncode, 0)
            self.assertNotEqual(good.losses, json.loads(done.stdout))


# ---- training with places that are let go too early, in a process of its own

STALE = "--stale"


def deep():
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(12)])


def square_of_values(model, _):
    return square(model(values()))


def train_on_stale_places():
    from patrickstar import _client
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    real = _client.Client.export_dlpack

    def export_for_a_moment(client, number, what, mode):
        exported = real(client, number, what, mode)
        address, n_bytes = exported.data_ptr(), exported.numel() * exported.element_size()
        buffer = (ctypes.c_char * n_bytes).from_address(address)
        return torch.frombuffer(buffer, dtype=exported.dtype).view(exported.shape)

    _client.Client.export_dlpack = export_for_a_moment
    print(json.dumps(train(deep, square_of_values, n=2).losses))


if __name__ == "__main__":
    if sys.argv[1:] == [STALE]:
        train_on_stale_places()
    else:
        unittest.main()
