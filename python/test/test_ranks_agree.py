"""Two ranks train as plain PyTorch does, over gloo and MPI; their files are merged and loaded by plain PyTorch."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist

import ranks_agree_worker
from test_ranks import run, torchrun

WORKER = ranks_agree_worker.__file__


def plain_losses():
    """PyTorch alone, on whole batches."""
    model = ranks_agree_worker.make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    losses = []
    for step in range(ranks_agree_worker.N_STEPS):
        loss = ranks_agree_worker.loss_of(model, ranks_agree_worker.batch_of(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


class Ranks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def losses_of(self, result):
        status, text = result
        self.assertEqual(status, 0, text)
        with open(self.path("losses.json")) as file:
            return json.load(file)

    def by_torchrun(self, *arguments):
        return self.losses_of(torchrun(WORKER, self.folder.name, *arguments))

    def by_mpirun(self, *arguments):
        return self.losses_of(run(["mpirun.openmpi", "-np", "2", sys.executable, "-W", "ignore", WORKER,
                                   self.folder.name] + list(arguments)))

    def assert_near(self, losses, expected, tolerance):
        for step, (loss, wanted) in enumerate(zip(losses, expected)):
            self.assertLess(abs(loss - wanted), tolerance, "step %d: %r, expected %r" % (step, losses, expected))

    @unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "torch.distributed with gloo")
    def test_as_plain_pytorch_and_merged_files(self):
        expected, model = plain_losses()
        self.assertLess(expected[-1], expected[0] - 0.5)
        # Means of halves are added in another order: some last places of fp32, which six updates carry on.
        self.assert_near(self.by_torchrun(), expected, 1e-5)
        whole = torch.load(self.path("whole.pt"))
        self.assertEqual(list(whole), list(model.state_dict()))
        parts = [torch.load(self.path("model-%d.pt" % rank)) for rank in range(2)]
        for part in parts:
            self.assertTrue(0 < len(part) < len(whole), [list(part) for part in parts])
        done = subprocess.run([sys.executable, "-W", "ignore", "-m", "patrickstar.merge", "--pattern",
                               self.path("model-*.pt"), "--num", "2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        merged = torch.load(self.path("model-merged.pt"))
        self.assertFalse(any(model.load_state_dict(merged)))
        for name, tensor in merged.items():
            self.assertTrue(torch.equal(tensor, whole[name]), name)

    @unittest.skipUnless(os.environ.get("PS_TEST_LONG"), "long: PS_TEST_LONG=1")
    @unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "torch.distributed with gloo")
    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "mpirun of Open MPI")
    def test_same_bits_over_mpi(self):
        by_gloo = self.by_torchrun("bf16")
        whole = torch.load(self.path("whole.pt"))
        self.assertEqual(self.by_mpirun("bf16"), by_gloo)
        for name, tensor in torch.load(self.path("whole.pt")).items():
            self.assertTrue(torch.equal(tensor, whole[name]), name)


if __name__ == "__main__":
    unittest.main()
