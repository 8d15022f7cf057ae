"""What people do in PyTorch (situations.py): equal to plain PyTorch, or refused with the message, in fp32 and bf16; and
the tables of doc/pytorch.md, which this file writes: python3 python/test/test_coverage.py --write"""
import os
import sys
import unittest

import torch

from plain import Plain, PlainOptimizer
import situations_modules  # noqa: F401, they add to SITUATIONS
import situations_training  # noqa: F401
import situations_refused  # noqa: F401, the last on the page
from situations import SITUATIONS, lacks
from support import BF16, F32, Case, Squeeze, engine, masters, pinned

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "doc", "pytorch.md")
BEGIN, END = "<!-- Written by python/test/test_coverage.py --write -->", "<!-- End of what that writes -->"
FORMATS = ((F32, "fp32"), (BF16, "bf16"))


def usual(step):
    def loop(model, optimizer):
        for t in range(3):
            optimizer.zero_grad()
            torch.manual_seed(10 + t)
            loss = step(model, t)
            model.backward(loss)
            optimizer.step()
            yield loss
    return loop


def numbers_of(loop, model, optimizer):
    torch.manual_seed(1)
    model.train()
    return [float(number) for number in loop(model, optimizer)]


class Coverage(Case):
    def run_both(self, situation, dtype):
        make, run, *options = situation.function(dtype)
        options = dict(options[0]) if options else {}
        is_tight = options.pop("is_tight", True)
        loop = run if situation.is_loop else usual(run)
        torch.manual_seed(0)
        plain = Plain(make(), dtype, **options)
        expected = numbers_of(loop, plain, PlainOptimizer(plain)), plain.masters(), dict(plain.module.named_buffers())
        plain.close()
        tight = {"memory__device": "1MB", "memory__host": 0, **options} if is_tight else options
        make, run, *_ = situation.function(dtype)  # what it keeps between steps begins anew
        loop = run if situation.is_loop else usual(run)
        with Squeeze(is_tight):
            model, optimizer = engine(make, dtype, **tight)
            found = numbers_of(loop, model, optimizer), masters(model), dict(model.module.named_buffers())
            self.assertFalse(pinned(model))
            self.assertEqual(optimizer.last_step.n_restored, 0)
            model.close()
        return expected, found

    def is_equal(self, situation, dtype):
        (losses, params, buffers), (our_losses, our_params, our_buffers) = self.run_both(situation, dtype)
        self.assertTrue(all(loss == loss for loss in losses), losses)
        self.assertEqual(set(params), set(our_params))
        if dtype == BF16 and situation.within is not None:
            self.assertEqual(len(losses), len(our_losses))
            for one, other in zip(losses, our_losses):
                self.assertAlmostEqual(one, other, delta=situation.within[0])
            return
        self.assertEqual(losses, our_losses)
        for name, value in params.items():
            self.assertTrue(torch.equal(value, our_params[name]), name)
        for name, buffer in buffers.items():
            self.assertTrue(torch.equal(buffer, our_buffers[name]), name)

    def is_refused(self, situation, dtype):
        with self.assertRaises((RuntimeError, ValueError)) as caught:
            situation.function(dtype)
        self.assertIn(situation.message, str(caught.exception))


def _add(situation):
    def test(self):
        lacking = lacks(situation.needs)
        if lacking is not None:
            self.skipTest("needs " + lacking)
        for dtype, name in FORMATS:
            with self.subTest(dtype=name):
                if dtype == BF16 and lacks(situation.bf16_needs):
                    print("not tried: %s in bf16 (needs %s)" % (situation.name, lacks(situation.bf16_needs)))
                    continue
                (self.is_refused if situation.message is not None else self.is_equal)(situation, dtype)
    test.__doc__ = situation.name
    setattr(Coverage, "test_%s" % situation.function.__name__, test)


for _situation in SITUATIONS:
    _add(_situation)


# ---- the page


def describe(need):
    return need if isinstance(need, str) else "PyTorch %s" % ".".join(str(n) for n in need[1:])


def in_bf16(situation):
    text = "equal" if situation.within is None else "losses within %g: %s" % situation.within
    return text + ", ".join(" (%s)" % describe(need) for need in situation.bf16_needs)


def tables():
    lines, section = [], None
    for situation in SITUATIONS:
        needs, is_refused = ", ".join(describe(need) for need in situation.needs), situation.message is not None
        if situation.section != section:
            section = situation.section
            lines += ["", "| %s | needs | message |" % section if is_refused else
                      "| %s | needs | fp32 | bf16 |" % section, "|---|---|---|" + "---|" * (not is_refused)]
        lines.append("| %s | %s | \"... %s ...\" |" % (situation.name, needs, situation.message) if is_refused else
                     "| %s | %s | equal | %s |" % (situation.name, needs, in_bf16(situation)))
    return "\n".join(lines + [""])


class Page(unittest.TestCase):
    def test_it_has_these_situations(self):
        with open(PAGE, encoding="utf-8") as page:
            text = page.read()
        self.assertEqual((text.count(BEGIN), text.count(END)), (1, 1))
        self.assertEqual(text[text.index(BEGIN) + len(BEGIN):text.index(END)], "\n" + tables() + "\n",
                         "doc/pytorch.md is stale: python3 python/test/test_coverage.py --write")


def write():
    with open(PAGE, encoding="utf-8") as page:
        text = page.read()
    with open(PAGE, "w", encoding="utf-8") as page:
        page.write(text[:text.index(BEGIN) + len(BEGIN)] + "\n" + tables() + "\n" + text[text.index(END):])


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        unittest.main()
