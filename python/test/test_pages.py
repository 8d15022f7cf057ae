"""Programs of README.md, doc/pytorch.md and doc/trainer.md, as they stand there: README's whole, the pages' with a small
model and data.

test/cli/doc_blocks.txt says which test runs the page's other programs."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

from support import VERSION

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

try:
    import transformers  # noqa: F401
except ImportError:
    transformers = None

try:
    import accelerate  # noqa: F401
    from transformers import Trainer  # noqa: F401
    HAS_TRAINER = True
except ImportError:
    HAS_TRAINER = False

# What the page takes for granted: BertConfig() is small here, and there is data.
BEFORE = """
import functools, torch, transformers
transformers.BertConfig = functools.partial(transformers.BertConfig, vocab_size=100, hidden_size=32, num_hidden_layers=2,
                                            num_attention_heads=2, intermediate_size=64)
loader = [{"input_ids": torch.arange(32).reshape(4, 8) + i, "labels": torch.arange(4) % 2} for i in range(8)]
"""
STEP = "    model.backward(model(**loader[0]).loss)\n"


def program(page, begins):
    """The fenced program of a page that begins so."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as f:
        found = [text for text in re.findall(r"```python\n(.*?)```", f.read(), re.S) if text.startswith(begins)]
    assert len(found) == 1, (page, begins, len(found))
    return found[0]


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_program(self, text):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", text], cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True)
        self.assertEqual(done.returncode, 0, done.stdout + text)
        return done.stdout

    def written(self, *names):
        for name in names:
            self.assertTrue(os.path.exists(os.path.join(self.folder, name)), name)

    def test_readme(self):
        losses = [float(loss) for loss in re.findall(r"^\d+ ([0-9.]+)$", self.run_program(
            program("README.md", "import torch")), re.M)]
        self.assertEqual(len(losses), 5)
        self.assertLess(losses[-1], losses[0])
        self.written("model.safetensors")

    @unittest.skipIf(transformers is None, "transformers")
    def test_training_and_files(self):
        page = "doc/pytorch.md"
        train = program(page, "import torch\n")
        checkpoints = program(page, "path, state = model.load").replace("1000", "2").replace("% 100", "% 1")
        profile = program(page, "from patrickstar.profiler")
        files = program(page, "torch.save(model.state_dict(), ")
        if VERSION < (2, 1):
            files = files.replace(", mmap=True", "")
        block = program(page, "import patrickstar\n")
        self.run_program("".join([BEFORE, train[:train.index("def model_func")], block, """
model.backward(model(**loader[0]).loss)
optimizer.step()
assert optimizer.last_step.step == 1, optimizer.last_step
"""]))
        self.run_program("".join([
            BEFORE, train, "scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)\n",
            checkpoints.replace("    ...\n", "    optimizer.zero_grad()\n" + STEP), program(page, "model.save_weights("), files,
            profile.replace("...   ", "optimizer.zero_grad()\n%soptimizer.step()\n" % STEP.strip(" "))]))
        self.written("checkpoints/latest", "model.safetensors", "my-model/config.json", "model.pt", "optimizer.pt", "profile.json")

    @unittest.skipIf(transformers is None, "transformers")
    def test_accumulation(self):
        train = program("doc/pytorch.md", "import torch\n")
        train = train[:train.index("model, optimizer =")]
        line, _, loop = program("doc/pytorch.md", 'config["gradient_accumulation_steps"]').partition("\n")
        begin = "\nmodel, optimizer = initialize_engine(model_func=model_func, local_rank=0, config=config)\n"
        self.run_program(BEFORE + train + line + begin + loop + "assert optimizer.last_step.step == 1, optimizer.last_step\n")

    @unittest.skipIf(transformers is None, "transformers")
    def test_accumulation_by_targets(self):
        weighted = program("doc/pytorch.md", "import itertools")
        self.run_program(BEFORE + """
from patrickstar.runtime import initialize_engine
small = transformers.LlamaConfig(vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                                 num_attention_heads=2)
config = {"optimizer": {"type": "AdamW"}, "gradient_accumulation_steps": 8,
          "memory": {"device": "400MB", "host": "100MB"}}
model, optimizer = initialize_engine(lambda: transformers.LlamaForCausalLM(small), 0, config)
loader = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in loader]
""" + weighted + "assert optimizer.last_step.step == 1, optimizer.last_step\n")

    @unittest.skipUnless(HAS_TRAINER, "transformers' Trainer and accelerate")
    def test_trainer(self):
        rows = "data = [{'input_ids': torch.arange(8) + i, 'labels': torch.arange(8) + i} for i in range(64)]\n"
        text = self.run_program("import torch\n" + rows + program("doc/trainer.md", "from patrickstar import Trainer"))
        self.written("output/checkpoint-4/patrickstar/state.json", "output/model.safetensors")
        self.assertIn("budget", text)

    @unittest.skipUnless(HAS_TRAINER, "transformers' Trainer and accelerate")
    def test_accelerate(self):
        self.run_program("""
import torch
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 64), torch.randn(8, 1)), batch_size=2)
""" + program("doc/trainer.md", "from patrickstar.integrations import Accelerator") + """
assert norm.item() > 0, norm
assert optimizer.param_groups[0]["lr"] == 1e-3 / 3, optimizer.param_groups[0]["lr"]
accelerator.load_state("state")
""")
        self.written("state/patrickstar/state.json")


if __name__ == "__main__":
    unittest.main()
