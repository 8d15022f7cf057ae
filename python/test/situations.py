"""What people do in PyTorch, each with a small model: test_coverage.py runs them by plain PyTorch and by the package.

A function under @trains is given the number format, and returns (make, step) or (make, step, options): step(model, t)
is the loss of step t of the usual loop. Under @loop it is (make, loop), where loop(model, optimizer) is the whole
program, and yields numbers that are to be the same. options: of the configuration; is_tight=False where parameters
outside of chunks cannot leave the device. Under @refused it is a program that raises an error with the text of the
table."""
import collections
import importlib.util

import torch.nn as nn

from support import VERSION, WIDTH, Two, square, values

Situation = collections.namedtuple("Situation", "section name function is_loop message needs bf16_needs within")
SITUATIONS = []

_section = ""


def section(name):
    global _section
    _section = name


SUMS = 1e-3, "gradients are added in fp32"


def trains(name, needs=(), bf16=None, bf16_needs=(), is_loop=False):
    """bf16: how far losses in bf16 may be from plain PyTorch's, and why; None: the same bits."""
    def add(function):
        SITUATIONS.append(Situation(_section, name, function, is_loop, None, needs, bf16_needs, bf16))
        return function
    return add


def loop(name, needs=(), bf16=None, bf16_needs=()):
    return trains(name, needs, bf16, bf16_needs, is_loop=True)


def refused(name, message, needs=()):
    def add(function):
        SITUATIONS.append(Situation(_section, name, function, False, message, needs, (), None))
        return function
    return add


def lacks(needs):
    """The first of these that is not here, or None: ("torch", 2, 1), or the name of a package."""
    for need in needs:
        if isinstance(need, str):
            if importlib.util.find_spec(need) is None:
                return need
        elif need[0] == "torch" and VERSION < need[1:]:
            return "torch %s" % ".".join(str(n) for n in need[1:])
    return None


def two(run):
    return lambda: Two(run)


def mlp():
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))


def step_of(dtype, *shape):
    return lambda model, t: square(model(values(*shape, dtype=dtype)))


TORCH2, TORCH21, TRANSFORMERS = (("torch", 2, 0),), (("torch", 2, 1),), ("transformers",)
