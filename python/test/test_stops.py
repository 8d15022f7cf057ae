"""A run that is killed N_STOPS times (3) at instants drawn at random, most of them while it saves, and resumes each
time from its last checkpoint, ends with the bits of one that was never stopped. Its model has four times the budgets'
data.

STOPS_SEED draws other instants. CONTROL_GROUP=large, an hour: GPT-2 124M in fp32 and 774M in bf16, within a control
group of the budgets and of what the same program takes with one layer."""
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from support import IS_LONG, Case

N_STOPS = int(os.environ.get("N_STOPS", 3))
SEED = int(os.environ.get("STOPS_SEED", 1))
IS_LARGE = os.environ.get("CONTROL_GROUP") == "large"
HERE = os.path.dirname(os.path.abspath(__file__))


class Run:
    def __init__(self, folder, n_steps, kind, group=None):
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", os.path.join(HERE, "stop_worker.py"), folder, str(n_steps), kind],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=group.enter if group is not None else None)
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate()[1])
        self.began = json.loads(line)
        self.began_at = time.monotonic()

    def finish(self):
        """What it prints at its end."""
        out, error = self.process.communicate(timeout=3000)
        if self.process.returncode != 0:
            raise AssertionError("status %d: %s" % (self.process.returncode, error))
        return json.loads(out)

    def kill(self):
        self.process.kill()
        self.process.communicate()


class Group:
    """A control group with a limit of memory, version 1 or 2."""

    def __init__(self, limit):
        with open("/proc/self/cgroup") as file:
            own = dict(line.rstrip().split(":", 2)[1:] for line in file)
        for root, name, peak in (("/sys/fs/cgroup/memory" + own.get("memory", "/"), "memory.limit_in_bytes",
                                  "memory.max_usage_in_bytes"),
                                 ("/sys/fs/cgroup" + own.get("", "/"), "memory.max", "memory.peak")):
            self.path = os.path.join(root, "pstar-stops-%d" % os.getpid())
            try:
                os.mkdir(self.path)
                with open(os.path.join(self.path, name), "w") as file:
                    file.write(str(limit))
                self._peak = os.path.join(self.path, peak)
                return
            except OSError:
                if os.path.isdir(self.path):
                    os.rmdir(self.path)
        raise unittest.SkipTest("no control group with a limit of memory can be made")

    def enter(self):
        with open(os.path.join(self.path, "cgroup.procs"), "w") as file:
            file.write(str(os.getpid()))

    def close(self):
        with open(self._peak) as file:
            peak = int(file.read())
        os.rmdir(self.path)
        return peak


class Stops(Case):
    def survives(self, n_steps, kind, group=None):
        folder = tempfile.mkdtemp(dir="/var/tmp" if IS_LARGE else None)
        self.addCleanup(shutil.rmtree, folder)
        whole = Run(folder, n_steps, kind, group)
        self.assertGreater(whole.began["model_data"], 3.9 * whole.began["budgets"])
        want = whole.finish()
        seconds = time.monotonic() - whole.began_at
        dice = random.Random(SEED)
        steps, n_stops = set(), 0
        self.clean(folder)
        while n_stops < N_STOPS:
            run = Run(folder, n_steps, kind, group)
            time.sleep(dice.random() * 0.6 * seconds)
            n_stops += run.process.poll() is None
            steps.add(run.began["step"])
            run.kill()
            if IS_LARGE:
                print("%s: %d stops" % (kind, n_stops), file=sys.stderr, flush=True)
            if run.began["step"] > 2 * n_steps // 3:
                self.clean(folder)
        self.assertEqual(Run(folder, n_steps, kind, group).finish()["hash"], want["hash"])
        print("%s: %d bytes of model data, budgets of %d: %d stops; runs began at steps %s; %.1f s without stops"
              % (kind, whole.began["model_data"], whole.began["budgets"], n_stops, sorted(steps), seconds))
        left = [name for name in os.listdir(os.path.join(folder, "checkpoints")) if name.startswith(".tmp")]
        self.assertEqual(left, [])

    def clean(self, folder):
        shutil.rmtree(folder)
        os.mkdir(folder)

    @unittest.skipUnless(IS_LONG or N_STOPS > 3, "long: PS_TEST_LONG=1, or N_STOPS above 3")
    def test_f32(self):
        self.survives(24, "f32")

    def test_bf16(self):
        self.survives(24, "bf16")

    @unittest.skipUnless(IS_LARGE and importlib.util.find_spec("transformers"), "an hour: CONTROL_GROUP=large")
    def test_large(self):
        for kind, n_steps in (("gpt2-124m-f32", 8), ("gpt2-774m-bf16", 6)):
            if os.environ.get("STOPS_ONLY", kind) != kind:
                continue
            with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
                one = Run(folder, 2, kind + "-one-layer").finish()
            budgets = Run("/nowhere", 0, kind).began["budgets"]
            group = Group(budgets + one["peak"])
            try:
                self.survives(n_steps, kind, group)
            finally:
                print("%s: at most %d bytes in a control group of %d" % (kind, group.close(), budgets + one["peak"]))


if __name__ == "__main__":
    unittest.main()
