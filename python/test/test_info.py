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
        for name in ("patrickstar", "Python", "PyTorch", "packages", "NVIDIA's libraries", "processor", "memory", "GPU", "libraries"):
            self.assertIn(name, names)
        self.assertNotIn("disk tier", names)
        self.assertIn(torch.__version__, done.stdout)

    @unittest.skipIf((torch.version.cuda or "").startswith("13."), "PyTorch is for CUDA 13")
    def test_the_pytorch_that_a_gpu_needs(self):
        done = info("--disk-path=")
        self.assertRegex(done.stdout, r"PyTorch +.*; training on a GPU needs a PyTorch for CUDA 13 \(2\.9 or later, ")

    def test_libraries_of_nvidia_that_pip_has_installed(self):
        """pstar looks for them after the user's folders and before the system's."""
        with tempfile.TemporaryDirectory() as folder:
            names = {"libcublasLt.so.13": "cu13", "libcudnn.so.9": "cudnn"}
            for name, part in names.items():
                os.makedirs(os.path.join(folder, "nvidia", part, "lib"))
                open(os.path.join(folder, "nvidia", part, "lib", name), "w").close()
            os.makedirs(os.path.join(folder, "nvidia", "nccl", "lib"))  # without the library
            expected = {name: os.path.join(folder, "nvidia", part, "lib", name) for name, part in names.items()}
            path = folder + os.pathsep + os.environ.get("PYTHONPATH", "")
            done = info("--json", "--disk-path=", PYTHONPATH=path)
            self.assertEqual(json.loads(done.stdout)["nvidia"], expected)
            self.assertIn(expected["libcudnn.so.9"], info("--disk-path=", PYTHONPATH=path).stdout)
            program = os.path.join(folder, "pstar")
            with open(program, "w") as file:
                file.write("#!/bin/sh\necho \"$LD_LIBRARY_PATH\"\n")
            os.chmod(program, 0o755)
            code = ("import sys; from patrickstar import _program; _program.find = lambda: %r; sys.argv = ['pstar']; "
                    "_program.main()" % program)
            for given in ("", "/of/the/user"):
                done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE, text=True,
                                      env=dict(os.environ, PYTHONPATH=path, LD_LIBRARY_PATH=given))
                self.assertEqual(done.stdout.strip().split(":"), ([given] if given else []) + [
                    os.path.dirname(expected[name]) for name in ("libcublasLt.so.13", "libcudnn.so.9")])

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
