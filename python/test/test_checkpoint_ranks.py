"""Checkpoints of several ranks: each resumes with its own bits, buffers and generators; any number of ranks reads
them."""
import os
import tempfile
import unittest

import torch
import torch.distributed as dist

from support import IS_LONG, Case, torchrun
from test_checkpoint import read_safetensors

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "checkpoint_worker.py")


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "torch.distributed with gloo")
class CheckpointRanks(Case):
    def test_saved_by_two_loaded_by_one_two_and_three(self):
        with tempfile.TemporaryDirectory() as folder:
            self.works(torchrun(WORKER, folder, "save"))
            saved = os.path.join(folder, "saved")
            self.assertEqual(sorted(os.listdir(saved)), ["latest", "step-000003"])
            self.assertEqual(len(os.listdir(os.path.join(saved, "step-000003"))), 7)
            own = os.path.join(folder, "run", "checkpoints")  # train.save_interval
            self.assertEqual(sorted(os.listdir(own)), ["latest", "step-000006"])
            weights = read_safetensors(os.path.join(folder, "weights.safetensors"))
            for name, value in torch.load(os.path.join(folder, "rank-0.pt"))["values"].items():
                self.assertTrue(torch.equal(value, weights[name]), name)
            os.rename(os.path.join(folder, "run"), os.path.join(folder, "run of then"))
            self.works(torchrun(WORKER, folder, "load"))
            for n_ranks in (1, 3) if IS_LONG else (3,):
                os.rename(os.path.join(folder, "run"), os.path.join(folder, "run before %d" % n_ranks))
                self.works(torchrun(WORKER, folder, "load", n_ranks=n_ranks))

    def test_one_tag(self):
        with tempfile.TemporaryDirectory() as folder:
            self.works(torchrun(WORKER, folder, "tags"))

    def works(self, done):
        status, text = done
        self.assertEqual(status, 0, text)


if __name__ == "__main__":
    unittest.main()
