"""Budgets that the machine does not have, folders of the disk tier, and what a program holds outside of chunks."""
import os
import resource
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.nn as nn

from support import F32, VERSION, WIDTH, Case, Two, config, once, values
from patrickstar import BudgetError
from patrickstar.runtime import initialize_engine

FOLDER = os.path.dirname(os.path.abspath(__file__))

RESUME = """
import sys
import torch
import torch.nn as nn
from support import square
from patrickstar import BudgetError
from patrickstar.runtime import initialize_engine

folder, way = sys.argv[1:]
make = lambda: nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(24)])
x = torch.randn(64, 1024)
square(nn.Linear(1024, 1024)(x)).backward()  # what PyTorch takes once
torch.save(make().state_dict(), folder + "/model.pt")
model, optimizer = initialize_engine(make, 0, {"default_chunk_size": 1024 * 1025, "memory": {
    "device": "80MB", "host": 0, "disk": "1GB", "disk_path": folder}})
saved = torch.load(folder + "/model.pt", **({"mmap": True} if way == "mmap" else {}))
model.load_state_dict(saved)
if way == "dropped":
    del saved
try:
    model.backward(square(model(x)))
    optimizer.step()
    print("trained")
except BudgetError as refused:
    print(refused)
"""


def start(**changed):
    return initialize_engine(Two, 0, config(F32, **changed))


class Machine(Case):
    def test_more_memory_than_there_is(self):
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        changed = {"memory__device": "900TB", "memory__host": 0, "memory__disk": 0}
        self.refused(lambda: start(default_chunk_size=total // 16 + 4096, **changed),
                     "memory.device and memory.host: the plan takes ", BudgetError)
        once(*start(**changed), values(dtype=F32))  # what is not used of it does no harm

    def test_a_model_that_the_machine_cannot_hold(self):
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        width = int((total / 20) ** .5)  # two of them take 8/5 of it, and none exists before that is known

        def on_meta():
            return nn.Sequential(*[nn.Linear(width, width, device="meta") for _ in range(2)])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        changed = {"memory__device": "900TB", "memory__host": 0, "memory__disk": 0}
        self.refused(lambda: initialize_engine(on_meta, 0, config(F32, **changed)),
                     "memory.device and memory.host: the plan takes ", BudgetError)
        changed = {"memory__device": "1GB", "memory__host": 0, "memory__disk": "10MB"}
        self.refused(lambda: initialize_engine(on_meta, 0, config(F32, **changed)), "memory.disk is ", BudgetError)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 200 << 10)  # KB

    def test_a_folder_that_is_missing_is_made(self):
        with tempfile.TemporaryDirectory() as folder:
            missing = os.path.join(folder, "not", "yet")
            model, optimizer = start(memory__disk_path=missing)
            self.assertTrue(os.path.isdir(missing))
            once(model, optimizer, values(dtype=F32))
            model.close()
        self.refused(lambda: start(memory__disk_path="/proc/not/yet"), "memory.disk_path: /proc/not: cannot make")

    def test_a_folder_without_a_disk_tier(self):
        """Is refused, with what makes one."""
        with tempfile.TemporaryDirectory() as folder, self.assertLogs("patrickstar", "WARNING") as caught:
            model, _ = initialize_engine(Two, 0, {"memory": {"device": "60MB", "disk_path": folder}})
            model.close()
        self.assertIn("memory.disk = auto, or a size, makes one", caught.output[0])

    def test_folders_that_are_none(self):
        with tempfile.NamedTemporaryFile() as file:
            self.refused(lambda: start(memory__disk_path=file.name), "memory.disk_path: %s: is not a folder" % file.name)
            self.refused(lambda: start(memory__disk_path=file.name + "/x"), "%s: is not a folder" % file.name)
        for name in ("~/x", "~", "/tmp, ~/x"):
            self.refused(lambda: start(memory__disk_path=name), "not replaced by the home folder: write %s"
                         % os.environ.get("HOME", ""))
        self.assertFalse(os.path.exists("~"))


class Resuming(Case):
    def resume(self, way):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", RESUME, folder, way], cwd=FOLDER,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_a_checkpoint_that_is_held_is_reported(self):
        said = self.resume("held")
        self.assertIn("MB outside of chunks since before the step (a loaded checkpoint, say: let go of it, or load it "
                      "by mmap)", said)
        megabytes = float(said.split("the program holds ")[1].split(" MB")[0])
        self.assertGreater(megabytes, 95)  # of which the checkpoint is 100.7
        self.assertEqual(self.resume("dropped"), "trained\n")

    @unittest.skipIf(VERSION < (2, 1), "torch.load(mmap=True) is of PyTorch 2.1")
    def test_a_checkpoint_that_is_mapped_counts_nothing(self):
        self.assertEqual(self.resume("mmap"), "trained\n")


class Modes(Case):
    def test_a_step_in_eval_is_told_once(self):
        model, optimizer = start()
        once(model, optimizer, values(dtype=F32))
        model.eval()
        with self.assertLogs("patrickstar") as logs:
            for _ in range(3):
                once(model, optimizer, values(dtype=F32))
        self.assertEqual(len([line for line in logs.output if "a training step in model.eval()" in line]), 1)

    def test_a_single_rank(self):
        self.refused(lambda: initialize_engine(Two, 1, config()), "local_rank=1, but this is a single process")
        for local_rank in (0, -1, None):
            initialize_engine(Two, local_rank, config())


if __name__ == "__main__":
    unittest.main()
