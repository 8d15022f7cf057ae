"""Event files of `pstar train` (train.log_to) by TensorBoard's own reader; test/cli/test_events.sh does without it."""
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

from patrickstar import _program

try:
    import tensorboard  # noqa: F401
except ImportError:
    raise unittest.SkipTest("TensorBoard")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class EventFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def train(self, *more):
        config = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1,
                  "model": {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 16},
                  "data": {"train": ROOT + "/data/text/moby-dick.txt", "tokenizer": ROOT + "/data/gpt2",
                           "validation_split": 0.1},
                  "train": {"steps": 6, "eval_interval": 2, "eval_steps": 1, "save_interval": 2, "keep_last": 0,
                            "log_to": ["tensorboard"], "output_dir": self.folder + "/run"}}
        path = os.path.join(self.folder, "config.json")
        with open(path, "w") as file:
            json.dump(config, file)
        done = subprocess.run([_program.find(), "train", path, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    def check(self, n_files):
        done = subprocess.run([sys.executable, ROOT + "/test/cli/check_events.py", self.folder + "/run", str(n_files)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("TensorBoard's reader was tried", done.stdout)

    def test_all_of_metrics(self):
        self.train()
        self.check(1)

    def test_a_record_that_was_cut(self):
        self.train()
        (name,) = glob.glob(self.folder + "/run/events.out.tfevents.*")
        with open(name, "rb") as file:
            begin = file.read(20)
        with open(name, "ab") as file:
            file.write(begin)
        self.check(1)

    def test_a_resumed_run(self):
        self.train()
        self.train("--resume", self.folder + "/run/checkpoints/step-000002")
        self.check(2)


if __name__ == "__main__":
    unittest.main()
