"""How ranks meet (patrickstar._ranks): by torchrun and gloo, by mpirun; and how they part."""
import os
import shutil
import socket
import subprocess
import sys
import unittest

import torch
import torch.distributed as dist

from patrickstar import _ranks

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ranks_worker.py")


def run(command):
    """(status, output) of a command that starts ranks."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_mpi_yield_when_idle="1",
                       OMPI_MCA_hwloc_base_binding_policy="none")
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, text=True,
                          env=environment)
    return done.returncode, done.stdout


def torchrun(program, *arguments, n_ranks=2):
    # Torch 1.13 on Python 3.11 knows neither its own default, 0, nor 3.
    tee = ["--redirects", "1", "--tee", "1"] if torch.__version__.startswith("1.") else []
    return run([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(n_ranks), "--master_addr",
                "127.0.0.1", "--master_port", str(free_port())] + tee + [program] + list(arguments))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "torch.distributed with gloo")
class Torchrun(unittest.TestCase):
    def all_say(self, case, what, n_ranks=2):
        status, text = torchrun(WORKER, case, n_ranks=n_ranks)
        self.assertEqual(status, 0, text)
        for rank in range(n_ranks):
            self.assertIn("rank %d of %d: %s" % (rank, n_ranks, what), text)

    def test_meet_exchange_part(self):
        self.all_say("one_after_the_other", "torch.distributed (gloo beside gloo)")

    @unittest.skipUnless(os.environ.get("PS_TEST_LONG"), "long: PS_TEST_LONG=1")
    def test_three_ranks(self):
        self.all_say("one_after_the_other", "torch.distributed (gloo beside gloo)", n_ranks=3)

    @unittest.skipUnless(os.environ.get("PS_TEST_LONG"), "long: PS_TEST_LONG=1")
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
        ranks = _ranks.meet()
        self.assertEqual((ranks.comm, ranks.rank, ranks.size, ranks.description), (None, 0, 1, "single"))
        ranks.close()


if __name__ == "__main__":
    unittest.main()
