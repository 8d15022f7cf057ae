"""After a failure everything is as it was."""
import os
import subprocess
import sys
import unittest

from support import Case

FOLDER = os.path.dirname(os.path.abspath(__file__))

EXIT = """
import torch
from support import F32, Two, engine, values

class Boom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("of the test")

model, _ = engine(Two, F32)

def fail():
    x = values(dtype=F32)
    model.backward((model.module.b(x) + Boom.apply(model.module.a(x))).sum())

try:
    fail()
except ValueError:
    print("went on")
"""


class Backward(Case):
    def test_that_raised_lets_the_program_end_well(self):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", EXIT], cwd=FOLDER, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout), (0, "went on\n"))


if __name__ == "__main__":
    unittest.main()
