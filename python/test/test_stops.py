"""A run that is killed N_STOPS times (3) at instants drawn at random, most of them while it saves, and goes on each time
from its last checkpoint, ends with the bits of one that was never stopped."""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from support import Case

STEPS = 24
N_STOPS = int(os.environ.get("N_STOPS", 3))
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stop_worker.py")


class Run:
    def __init__(self, folder, dtype):
        self.process = subprocess.Popen([sys.executable, "-W", "ignore", WORKER, folder, str(STEPS), dtype],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate()[1])
        self.began = json.loads(line)
        self.began_at = time.monotonic()

    def finish(self):
        """The hash that it prints."""
        out, error = self.process.communicate(timeout=300)
        if self.process.returncode != 0:
            raise AssertionError(error)
        return out.strip()

    def kill(self):
        self.process.kill()
        self.process.communicate()


class Stops(Case):
    def survives(self, dtype):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        whole = Run(os.path.join(folder), dtype)
        self.assertGreater(whole.began["model_data"], 3.9 * whole.began["budgets"])
        want = whole.finish()
        seconds = time.monotonic() - whole.began_at
        dice = random.Random(1)
        steps, n_stops = set(), 0
        self.clean(folder)
        while n_stops < N_STOPS:
            run = Run(folder, dtype)
            time.sleep(dice.random() * 0.6 * seconds)
            n_stops += run.process.poll() is None
            steps.add(run.began["step"])
            run.kill()
            if run.began["step"] > STEPS - 8:
                self.clean(folder)
        self.assertEqual(Run(folder, dtype).finish(), want)
        print("%d stops; runs began at steps %s" % (n_stops, sorted(steps)))
        left = [name for name in os.listdir(os.path.join(folder, "checkpoints")) if name.startswith(".tmp")]
        self.assertEqual(left, [])

    def clean(self, folder):
        shutil.rmtree(folder)
        os.mkdir(folder)

    def test_f32(self):
        self.survives("f32")

    def test_bf16(self):
        self.survives("bf16")


if __name__ == "__main__":
    unittest.main()
