"""What other parts of PyTorch do with parameters in chunks: scripts, compiled functions, function transforms, a second
engine."""
import importlib.util
import re
import unittest
from typing import Dict, List

import torch
import torch.nn as nn
import torch.nn.functional as F

from support import BF16, F32, VERSION, WIDTH, Case, Two, config, engine, masters, module_of, once, square, values
import patrickstar
from patrickstar import PatrickStarError, Refused, _library
from patrickstar.runtime import initialize_engine


@torch.jit.script
def scripted(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor):
    return torch.tanh(x @ w.t() + b)


@torch.jit.script
def scripted_of_dict(x: torch.Tensor, w: Dict[str, torch.Tensor]):
    return torch.tanh(x @ w["w"].t() + w["b"])


@torch.jit.script
def scripted_of_nested_dict(x: torch.Tensor, w: Dict[str, List[torch.Tensor]]):
    return torch.tanh(x @ w["w"][0].t() + w["w"][1])


@torch.jit.script
def scripted_in_place(w: torch.Tensor):
    w.mul_(2.0)


def compiled(x, w, b):
    return torch.tanh(x @ w.t() + b)


class Functions(Case):
    """A function that takes the parameters of a module that is not running."""

    def same_as_called(self, function):
        self.same(lambda: Two(lambda s, x: s.b(function(x, s.a.weight, s.a.bias))), lambda m, t: square(m(values())))
        self.same(lambda: Two(lambda s, x: s.b(s.a(x))),
                  lambda m, t: square(function(m(values()), module_of(m).a.weight, module_of(m).a.bias)))

    def test_scripted(self):
        with torch.jit.optimized_execution(False):  # else it rounds otherwise from its third call on
            self.same_as_called(scripted)
            self.same_as_called(lambda x, w, b: scripted(x, w=w, b=b))
        self.same(lambda: Two(lambda s, x: s.b(scripted(x, s.a.weight, s.a.bias))), lambda m, t: square(m(values())),
                  n=6, within=1e-3)

    def test_scripted_with_dictionaries(self):
        with torch.jit.optimized_execution(False):
            self.same_as_called(lambda x, w, b: scripted_of_dict(x, {"w": w, "b": b}))
            self.same_as_called(lambda x, w, b: scripted_of_dict(x, w={"w": w, "b": b}))
            self.same_as_called(lambda x, w, b: scripted_of_nested_dict(x, {"w": [w, b]}))

    def test_scripted_that_writes(self):
        model, _ = engine(Two)
        before = masters(model)
        with torch.no_grad():
            scripted_in_place(model.module.a.weight)
        for name, value in masters(model).items():
            expected = before[name].to(BF16).float() * 2 if name == "a.weight" else before[name]
            self.assertTrue(torch.equal(value, expected), name)

    @unittest.skipIf(VERSION < (2, 5), "this PyTorch's torch.compile cannot leave out tensors of a class")
    def test_compiled(self):
        for backend in ("eager", "aot_eager"):
            torch._dynamo.reset()
            with self.subTest(backend=backend):
                self.same_as_called(torch.compile(compiled, backend=backend))

    @unittest.skipIf(VERSION < (2, 5), "this PyTorch's torch.compile cannot leave out tensors of a class")
    def test_compiled_within_the_module_that_is_running(self):
        torch._dynamo.reset()
        function = torch.compile(compiled, backend="aot_eager")

        class Line(nn.Linear):
            def forward(self, x):
                return function(x, self.weight, self.bias)
        self.same(lambda: nn.Sequential(Line(WIDTH, WIDTH), Line(WIDTH, WIDTH)), lambda m, t: square(m(values())))


    @unittest.skipIf(VERSION < (2, 5), "this PyTorch's torch.compile cannot leave out tensors of a class")
    def test_compiled_step(self):
        model, optimizer = engine(Two)
        torch._dynamo.reset()
        for n, step in enumerate((lambda: optimizer.step(), optimizer.step), 1):
            step = torch.compile(step, backend="aot_eager")
            for t in range(2):
                model.backward(square(model(values())))
                step()
                self.assertEqual(optimizer.last_step.step, 2 * n - 1 + t)
                self.assertGreater(optimizer.last_step.grad_norm, 0)


class Modules(Case):
    def test_scripted(self):
        def part():
            return nn.Sequential(torch.jit.script(nn.Linear(WIDTH, WIDTH)), nn.Linear(WIDTH, WIDTH))
        for make in (part, lambda: torch.jit.script(nn.Linear(WIDTH, WIDTH))):
            for dtype in (F32, BF16):
                with torch.jit.optimized_execution(False):
                    self.same(make, lambda m, t: square(m(values(dtype=dtype))), dtype=dtype)


class Refusals(Case):
    def test_script_of_a_module(self):
        model, optimizer = engine(Two, F32)
        for given in (model, model.module, model.module.a):
            self.refused(lambda: torch.jit.script(given), "torch.jit.script of", Refused)
        once(model, optimizer, values(dtype=F32))

    def test_spectral_norm_by_hooks(self):
        def make():
            model = Two()
            nn.utils.spectral_norm(model.b)
            return model
        for dtype in (F32, BF16):
            self.refused(lambda: engine(make, dtype), "spectral_norm on b", Refused)

    def test_a_module_given_twice(self):
        model, optimizer = engine(Two)
        before = model.state_dict()
        for given in (model.module, lambda: model.module, model.module.a, lambda: nn.Sequential(model.module.b), model):
            self.refused(lambda: initialize_engine(given, 0, config()), "in the chunks of an engine already", Refused)

        def tied():
            other = Two()
            other.a.weight = model.module.a.weight
            return other
        self.refused(lambda: initialize_engine(tied, 0, config()), "in the chunks of an engine already", Refused)
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        once(model, optimizer, values())
        model.close()
        self.refused(lambda: initialize_engine(model.module, 0, config()), "an engine already", Refused)

    @unittest.skipIf(VERSION < (2, 0), "torch.func is of PyTorch 2")
    def test_function_transforms(self):
        model, optimizer = engine(Two, F32)
        x = values(dtype=F32)
        weight = model.module.a.weight
        for transform in (torch.func.grad, torch.func.jacrev, lambda f: lambda *a: torch.func.vjp(f, *a),
                          torch.func.grad_and_value):
            self.refused(lambda: transform(lambda w: F.linear(x, w).sum())(weight), "of parameter a.weight", Refused)
            self.refused(lambda: transform(lambda p: F.linear(x, p["w"]).sum())({"w": weight}), "a.weight", Refused)
            self.refused(lambda: transform(lambda y: square(model(y)))(x), "use torch.autograd.grad", Refused)
        expected = torch.func.grad(lambda w: F.linear(x, w).sum())(weight.detach().clone())
        self.assertTrue(torch.equal(torch.autograd.grad(F.linear(x, weight).sum(), weight)[0], expected))
        once(model, optimizer, x)

    @unittest.skipUnless(importlib.util.find_spec("peft") and importlib.util.find_spec("transformers"),
                         "peft and transformers are not installed")
    def test_adapters_afterwards(self):
        import peft
        from test_transformers import causal, gpt2
        model, optimizer = engine(gpt2, F32, default_chunk_size=1 << 13)
        adapted = peft.get_peft_model(model.module, peft.LoraConfig(r=4, target_modules=["c_attn"]))

        def step():
            model.backward(causal(adapted, 1))
            optimizer.step()
        self.refused(step, "get_peft_model", Refused)


class Introspection(Case):
    def test_version(self):
        self.assertRegex(patrickstar.__version__, r"^\d+\.\d+\.\d+$")

    def test_last_step_before_the_first(self):
        model, optimizer = engine(Two)
        self.assertEqual((optimizer.last_step.step, optimizer.last_step.grad_norm, optimizer.last_step.is_skipped),
                         (0, 0, False))
        "%d %.3f" % (optimizer.last_step.step, optimizer.last_step.grad_norm)
        once(model, optimizer, values())
        once(model, optimizer, values())
        other, theirs = engine(Two)
        theirs.load_state_dict(optimizer.state_dict())
        self.assertEqual(theirs.last_step.step, 2)

    def test_info_as_text(self):
        model, optimizer = engine(Two)
        once(model, optimizer, values())
        text = str(model.client.get_info())
        self.assertIn("n_steps=1,", text)
        self.assertIn("n_ranks=1,", text)
        self.assertTrue(re.search(r"budget_bytes=\[64 MB, 64 MB, 256 MB\]", text), text)
        info = model.client.get_info()
        self.assertEqual(info.budget_bytes, [64000000, 64000000, 256000000])
        self.assertEqual([len(info.used_bytes), len(info.peak_bytes), len(info.moved_bytes)], [3, 3, 4])
        self.assertEqual(info.peak_bytes[2:], [0])
        self.assertIn("lr=0.01", repr(model.client.get_groups()[0]))

    def test_sizes_as_text(self):
        """As messages of the library have them."""
        for n_bytes, text in ((0, "0 B"), (999, "999 B"), (1000, "1 kB"), (96_000_000, "96 MB"), (-5e6, "-5 MB"),
                              (32_845_312, "32.8 MB"), (999_600_000, "1 GB"), (5 * 10**15, "5 PB")):
            self.assertEqual(_library.format_bytes(n_bytes), text)

    def test_any_members_as_text(self):
        checkpoint = _library.ClientCheckpoint(tag=b"caf\xc3\xa9", extra=b"\xff")
        self.assertIn("tag=caf\u00e9,", repr(checkpoint))
        self.assertIn("extra=\\xff,", repr(checkpoint))
        for dtype, text in ((0, "fp32"), (2, "fp16"), (-1, "-1"), (3, "3")):
            self.assertIn("dtype=%s," % text, repr(_library.ClientTensor(dtype=dtype)))
        self.assertIn("wait_ns=1200000000,", repr(_library.ClientInfo(wait_ns=1200000000)))

    def test_messages_have_calls_of_python(self):
        """Not the library's functions, which a program of Python's does not know."""
        self.assertEqual([name for name in _library._FUNCTIONS
                          if name.startswith("ps_client_") and name not in _library._CALLS], [])
        model, optimizer = engine(Two)
        self.refused(lambda: model.client.profile_save("x"), "profiler.save(): nothing was recorded; profiler.start() "
                     "begins", PatrickStarError)


if __name__ == "__main__":
    unittest.main()
