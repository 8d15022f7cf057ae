"""Runs that save into one train.output_dir: the second is refused, on all of its ranks, with the name of the first."""
import gc
import json
import os
import platform
import signal
import subprocess
import tempfile
import time
import unittest

import torch.distributed as dist

from support import F32, Case, Two, engine, start_ranks
from patrickstar import BudgetError, _program
from patrickstar._output_lock import OutputLock

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def named(pid):
    return "(process %d on %s)" % (pid, platform.node())


class Locks(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "run")

    def engine(self, save_interval=2, **changed):
        return engine(Two, F32, train={"threads": 2, "save_interval": save_interval, "output_dir": self.folder},
                      **changed)[0]

    def test_engines_of_a_process(self):
        model = self.engine()
        refusal = "another engine of this process %s saves into %s: end it by model.close()" % (
            named(os.getpid()), self.folder)
        self.refused(self.engine, refusal)
        child = os.fork()
        if child == 0:  # as a worker of a DataLoader
            model.close()
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.refused(self.engine, refusal)
        model.close()
        model = self.engine()
        del model
        gc.collect()
        self.refused(lambda: self.engine(memory__device="1KB", memory__host=0, memory__disk=0), "", BudgetError)
        self.engine()

    def test_a_forked_child_leaves_the_lock_to_its_parent(self):
        """The parent is killed while a child of it, a worker of a data loader, say, lives on."""
        reading, writing = os.pipe()
        parent = os.fork()
        if parent == 0:
            lock = OutputLock(self.folder)
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            os.write(writing, b"%d" % child)
            os.kill(os.getpid(), signal.SIGKILL)
            lock.release()
        os.waitpid(parent, 0)
        child = int(os.read(reading, 16))
        try:
            OutputLock(self.folder).release()
        finally:
            os.kill(child, signal.SIGKILL)
            os.close(reading)
            os.close(writing)

    def test_an_engine_that_saves_nothing_by_itself(self):
        models = [self.engine(save_interval=0) for _ in range(2)]
        self.assertFalse(os.path.exists(self.folder))
        del models

    def test_pstar(self):
        config = {"train_micro_batch_size_per_gpu": 1, "model": {"n_embd": 32, "n_layer": 1, "n_head": 2,
                                                                 "n_positions": 16},
                  "data": {"train": ROOT + "/data/text/moby-dick.txt", "tokenizer": ROOT + "/data/gpt2"},
                  "train": {"steps": 1000000, "output_dir": self.folder}}
        path = self.folder + ".json"
        with open(path, "w") as file:
            json.dump(config, file)
        command = [_program.find(), "train", "--overwrite", path]
        model = self.engine()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("another run is writing into %s %s" % (self.folder, named(os.getpid())), done.stdout)
        model.close()
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 120
            while not os.path.exists(os.path.join(self.folder, "metrics.jsonl")) and time.monotonic() < until:
                time.sleep(0.05)
            self.refused(self.engine, "another run is writing into %s %s" % (self.folder, named(run.pid)))
        finally:
            run.kill()
            run.wait()
        self.engine()

    @unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "torch.distributed with gloo")
    def test_all_ranks(self):
        lock = OutputLock(self.folder)
        for status, text in start_ranks(os.path.join(HERE, "checkpoint_worker.py"), os.path.dirname(self.folder),
                                        "save"):
            self.assertEqual(status, 1, text)
            self.assertIn("another run is writing into %s %s" % (self.folder, named(os.getpid())), text)
        lock.release()


if __name__ == "__main__":
    unittest.main()
