"""examples/pytorch_finetune.py, as a user runs it: in one process and by torchrun, in two budgets."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

import torch

from support import IS_LONG, torchrun

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLE = os.path.join(ROOT, "examples", "pytorch_finetune.py")

try:
    import transformers  # noqa: F401
except ImportError:
    transformers = None


def losses(text):
    return re.findall(r"step +(\d+)  loss ([0-9.]+)", text)


@unittest.skipIf(transformers is None, "transformers")
class Example(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_single_rank(self, *arguments):
        done = subprocess.run([sys.executable, "-W", "ignore", EXAMPLE, "--folder", self.folder.name] + list(arguments),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_goes_on_from_its_files(self):
        text = self.run_single_rank("--steps", "2")
        found = losses(text)
        self.assertEqual([step for step, _ in found], ["1", "2", "3", "4", "5", "3", "4", "5"])
        data, device = re.search(r"model data ([0-9.]+) MB; device at most ([0-9.]+) MB", text).groups()
        self.assertLess(float(device), float(data))
        if IS_LONG:
            self.assertEqual(losses(self.run_single_rank("--steps", "2", "--device", "2GB")), found)
        # What it saved is plain PyTorch's.
        sys.path.insert(0, os.path.dirname(EXAMPLE))
        self.addCleanup(sys.path.remove, os.path.dirname(EXAMPLE))
        import pytorch_finetune
        model = pytorch_finetune.model_func()
        self.assertFalse(any(model.load_state_dict(torch.load(os.path.join(self.folder.name, "finetuned.pt")))))
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.load_state_dict(torch.load(os.path.join(self.folder.name, "finetuned-optimizer.pt")))
        self.assertEqual({int(state["step"]) for state in optimizer.state.values()}, {2})

    @unittest.skipUnless(IS_LONG, "long: PS_TEST_LONG=1")
    def test_two_ranks(self):
        status, text = torchrun(EXAMPLE, "--folder", self.folder.name, "--steps", "2")
        self.assertEqual(status, 0, text)
        found = losses(text)
        self.assertEqual([step for step, _ in found], ["1", "2", "3", "4", "5", "3", "4", "5"])
        self.assertEqual(found[2:5], found[5:8])


if __name__ == "__main__":
    unittest.main()
