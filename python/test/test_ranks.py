"""How ranks are initialised (patrickstar._ranks): by torchrun and gloo, by mpirun; and how they end."""
import os
import shutil
import sys
import unittest

import torch.distributed as dist

from support import IS_LONG, run, torchrun
from patrickstar import _ranks

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ranks_worker.py")


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "torch.distributed with gloo")
class Torchrun(unittest.TestCase):
    def all_say(self, case, what, n_ranks=2):
        status, text = torchrun(WORKER, case, n_ranks=n_ranks)
        self.assertEqual(status, 0, text)
        for rank in range(n_ranks):
            self.assertIn("rank %d of %d: %s" % (rank, n_ranks, what), text)

    def test_collective_parts(self):
        self.all_say("one_after_the_other", "torch.distributed (gloo next to gloo)")

    @unittest.skipUnless(IS_LONG, "long: PS_TEST_LONG=1")
    def test_three_ranks(self):
        self.all_say("one_after_the_other", "torch.distributed (gloo next to gloo)", n_ranks=3)

    @unittest.skipUnless(IS_LONG, "long: PS_TEST_LONG=1")
    def test_without_a_group(self):
        self.all_say("no_group", "torch.distributed")

    def test_one_raises(self):
        status, text = torchrun(WORKER, "one_raises")
        self.assertNotEqual(status, 0, text)
        self.assertIn("rank 0 heard: ", text)
        self.assertIn("ValueError: a thing that only rank 1 knows", text.split("rank 0 heard: ")[1].splitlines()[0])


class Mpirun(unittest.TestCase):
    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "mpirun of Open MPI")
    def test_ranks(self):
        status, text = run(["mpirun.openmpi", "-np", "2", sys.executable, WORKER, "mpi"])
        self.assertEqual(status, 0, text)
        for rank in range(2):
            self.assertIn("rank %d of 2: mpi" % rank, text)


class Alone(unittest.TestCase):
    def test_no_launcher(self):
        ranks = _ranks.init()
        self.assertEqual((ranks.comm, ranks.rank, ranks.size, ranks.description), (None, 0, 1, "single"))
        ranks.close()


if __name__ == "__main__":
    unittest.main()
