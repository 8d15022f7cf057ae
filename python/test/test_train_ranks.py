"""Several ranks train as one, over gloo and MPI, chunks owned in turn; their files are the model."""
import glob
import os
import shutil
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist

from support import BF16, F32, IS_LONG, LR, Case, config, masters, run, torchrun
from test_modules import Own
from train_worker import N_STEPS, batch
from patrickstar import Refused, merge
from patrickstar.runtime import initialize_engine

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_worker.py")


def train_single_rank(dtype, n_parts):
    """One rank, with the parts of a step one after the other."""
    torch.manual_seed(0)
    model, optimizer = initialize_engine(Own, 0, config(dtype))
    model.eval()
    losses = []
    for step in range(N_STEPS):
        of_parts = []
        for part in range(n_parts):
            loss = model(batch(step, part, n_parts))
            model.backward(loss / n_parts)
            of_parts.append(loss.item())
        optimizer.step()
        losses.append(of_parts)
    return model, optimizer, losses


def train_plainly(n_parts):
    """PyTorch alone."""
    torch.manual_seed(0)
    model = Own().eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0)
    losses = []
    for step in range(N_STEPS):
        optimizer.zero_grad()
        of_parts = [model(batch(step, part, n_parts)) for part in range(n_parts)]
        (sum(of_parts) / n_parts).backward()
        optimizer.step()
        losses.append([loss.item() for loss in of_parts])
    return losses


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "torch.distributed with gloo")
class Ranks(Case):
    def train(self, n_ranks, dtype, by_mpi=False):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        if by_mpi:
            status, text = run(["mpirun.openmpi", "-np", str(n_ranks), sys.executable, "-W", "ignore", WORKER,
                                folder.name, dtype])
        else:
            status, text = torchrun(WORKER, folder.name, dtype, n_ranks=n_ranks)
        self.assertEqual(status, 0, text)
        self.folder = folder.name
        return [torch.load(os.path.join(folder.name, "rank-%d.pt" % rank)) for rank in range(n_ranks)]

    def test_two_ranks_are_one_in_f32(self):
        ranks = self.train(2, "f32")
        model, optimizer, losses = train_single_rank(F32, 2)
        plain = train_plainly(2)
        for step in range(N_STEPS):
            of_ranks = [rank["losses"][step] for rank in ranks]
            self.assertEqual(of_ranks, losses[step])
            for loss, expected in zip(of_ranks, plain[step]):
                self.assertAlmostEqual(loss, expected, delta=1e-5)  # its Adam rounds otherwise
        for rank in ranks:
            self.assertAlmostEqual(rank["norm"], optimizer.last_step.grad_norm, delta=1e-6)
            for name, value in masters(model).items():
                self.assertTrue(torch.equal(rank["values"][name], value), name)
        self.merged(ranks, model)

    def merged(self, ranks, model):
        """Files of the ranks together are the model; plain PyTorch loads it."""
        states = {}
        for path in glob.glob(os.path.join(self.folder, "model-*.pt")):
            self.assertTrue(0 < len(torch.load(path)) < len(ranks[0]["whole"]))
        pattern = os.path.join(self.folder, "model-*.pt")
        self.assertEqual(merge.main(["--pattern", pattern, "--num", str(len(ranks))]), 0)
        merged = torch.load(os.path.join(self.folder, "model-merged.pt"))
        plain = Own()
        plain.load_state_dict(merged)
        for name, param in plain.named_parameters():
            self.assertTrue(torch.equal(param, ranks[0]["whole"][name]), name)
            self.assertTrue(torch.equal(param, ranks[1]["whole"][name]), name)
        for path in glob.glob(os.path.join(self.folder, "optimizer-*.pt")):
            part = torch.load(path)["state"]
            self.assertLess(len(part), len(ranks[0]["optimizer"]["state"]))
            states.update(part)
            _, alone = initialize_engine(Own, 0, config(F32))
            self.refused(lambda: alone.load_state_dict(torch.load(path)), "it is that of one rank", Refused)
        alone.load_state_dict(ranks[0]["optimizer"])
        whole = ranks[0]["optimizer"]["state"]
        self.assertEqual(sorted(states), sorted(whole))
        for number, values in whole.items():
            self.assertTrue(torch.equal(values["exp_avg"], states[number]["exp_avg"]))

    def test_three_ranks_agree_in_bf16(self):
        ranks = self.train(3, "bf16")
        _, _, losses = train_single_rank(BF16, 3)
        for rank in ranks[1:]:
            for name, value in ranks[0]["values"].items():
                self.assertTrue(torch.equal(rank["values"][name], value), name)
        for step in range(N_STEPS):
            for rank in range(3):
                self.assertAlmostEqual(ranks[rank]["losses"][step], losses[step][rank], delta=.02)

    @unittest.skipUnless(IS_LONG, "long: PS_TEST_LONG=1")
    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "mpirun of Open MPI")
    def test_same_bits_over_mpi(self):
        for one, other in zip(self.train(2, "bf16"), self.train(2, "bf16", by_mpi=True)):
            self.assertEqual(one["losses"], other["losses"])
            for name, value in one["values"].items():
                self.assertTrue(torch.equal(other["values"][name], value), name)


if __name__ == "__main__":
    unittest.main()
