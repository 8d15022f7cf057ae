"""python -m patrickstar.info: what it finds is what pstar and Python say of the machine, as text and as JSON."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import torch

import patrickstar
from patrickstar import _library


def info(*arguments, **environment):
    return subprocess.run([sys.executable, "-W", "ignore", "-m", "patrickstar.info", *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, env=dict(os.environ, **environment))


class Info(unittest.TestCase):
    def test_json(self):
        with tempfile.TemporaryDirectory() as folder:
            done = info("--json", "--disk-path", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(done.stdout)
            self.assertEqual(found["disk"]["path"], folder)
        self.assertEqual(found["patrickstar"]["version"], patrickstar.__version__)
        self.assertEqual(found["pstar"], patrickstar.__version__)
        self.assertEqual(found["patrickstar"]["library"], _library.path())
        self.assertEqual(found["python"]["executable"], sys.executable)
        self.assertEqual(found["torch"]["version"], torch.__version__)
        self.assertEqual(len(found["torch"]["gpus"]), torch.cuda.device_count())
        with open("/proc/meminfo") as file:
            total = int(file.readline().split()[1]) * 1024
        self.assertTrue(0 < found["memory"]["total_bytes"] <= total)
        self.assertIn("pcre2", found["libraries"])

    def test_text(self):
        done = info("--disk-path=")
        self.assertEqual(done.returncode, 0, done.stderr)
        names = [line[:20].strip() for line in done.stdout.splitlines()]
        for name in ("patrickstar", "Python", "PyTorch", "packages", "processor", "memory", "GPU", "libraries"):
            self.assertIn(name, names)
        self.assertNotIn("disk tier", names)
        self.assertIn(torch.__version__, done.stdout)

    def test_torch_that_cannot_be_imported(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "torch.py"), "w") as file:
                file.write("raise OSError('libtorch_cpu.so: cannot open shared object file')\n")
            path = folder + os.pathsep + os.environ.get("PYTHONPATH", "")
            done = info("--json", "--disk-path=", PYTHONPATH=path)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["torch"],
                             {"error": "OSError: libtorch_cpu.so: cannot open shared object file"})
            self.assertIn("cannot be imported: OSError", info("--disk-path=", PYTHONPATH=path).stdout)

    def test_failure_of_pstar(self):
        done = info("--json", PS_TEST_CPU="pentium")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'pentium' is no processor kind", done.stderr)
        self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
