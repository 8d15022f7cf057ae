"""Folders of the one front end read by the other: pstar's commands over checkpoints of PyTorch, and PyTorch over one of
pstar train. Models are of Hugging Face's transformers."""
import json
import os
import subprocess
import tempfile
import unittest

import torch

from support import BF16, F32, Case, engine, masters
from test_checkpoint import read_safetensors
from patrickstar import PatrickStarError, _program

try:
    import transformers
    from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel
    transformers.logging.set_verbosity_error()
except ImportError:
    raise unittest.SkipTest("transformers is not installed")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SIZES = dict(n_embd=32, n_layer=2, n_head=2, vocab_size=300, n_positions=16, bos_token_id=0, eos_token_id=0)


def gpt2():
    return GPT2LMHeadModel(GPT2Config(**SIZES))


def bert():
    return BertForSequenceClassification(BertConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=300, num_labels=3))


def tokens(step):
    return torch.randint(0, 300, (2, 12), generator=torch.Generator().manual_seed(step))


def train(model, optimizer, n, labels=lambda ids: ids):
    losses = []
    for step in range(n):
        optimizer.zero_grad()
        loss = model(input_ids=tokens(step), labels=labels(tokens(step))).loss
        model.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


def pstar(*arguments, status=0):
    done = subprocess.run([_program.find(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != status:
        raise AssertionError("%s: status %d: %s" % (arguments, done.returncode, done.stdout))
    return done.stdout


class Tools(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def logits_of(self, model, plain):
        model.eval(), plain.eval()
        with torch.no_grad():
            self.assertTrue(torch.equal(model(input_ids=tokens(9)).logits.float(), plain(input_ids=tokens(9)).logits))

    def test_export_of_a_module(self):
        for make, kind, labels in ((gpt2, GPT2LMHeadModel, lambda ids: ids),
                                   (bert, BertForSequenceClassification, lambda ids: ids[:, 0] % 3)):
            with self.subTest(kind.__name__):
                saved, out = self.path(kind.__name__), self.path(kind.__name__ + "-out")
                model, optimizer = engine(make, F32, default_chunk_size=4096)
                train(model, optimizer, 2, labels)
                model.save_checkpoint(saved)
                pstar("export", saved, out)
                self.logits_of(model, kind.from_pretrained(out))
                pstar("export", "--dtype", "bf16", os.path.join(saved, "step-000002"), out + "16")
                self.assertEqual(json.load(open(os.path.join(out + "16", "config.json")))["torch_dtype"], "bfloat16")
                pstar("export", "--format", "pt", saved, out + "pt")
                self.logits_of(model, kind.from_pretrained(out + "pt"))
                model.save_pretrained(out + "own")
                self.logits_of(model, kind.from_pretrained(out + "own"))
                with open(os.path.join(saved, "step-000002", "state.json")) as file:
                    kept = json.load(file)["module"]["config"]
                self.assertEqual(kept, json.load(open(os.path.join(out + "own", "config.json"))))
                self.assertIn("classifier" if make is bert else "transformer.wte.weight", pstar("inspect", saved))
                pstar("merge", saved, self.path("merged.safetensors"))
                merged = read_safetensors(self.path("merged.safetensors"))
                for name, value in masters(model).items():
                    self.assertTrue(torch.equal(merged[name], value), name)

    def test_export_of_no_model_of_transformers(self):
        model, _ = engine(lambda: torch.nn.Linear(4, 4), F32)
        model.save_checkpoint(self.path("saved"))
        self.assertIn("pstar merge", pstar("export", self.path("saved"), self.path("out"), status=2))

    def native(self, *changes):
        """A run of pstar's."""
        config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
                  "model": {**SIZES, "vocab_size": 50257, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0},
                  "data": {"train": ROOT + "/data/text/moby-dick.txt", "tokenizer": ROOT + "/data/gpt2"},
                  "train": {"steps": 3, "output_dir": self.path("run")}}
        config["model"].pop("bos_token_id"), config["model"].pop("eos_token_id")
        with open(self.path("config.json"), "w") as file:
            json.dump(config, file)
        return pstar("train", self.path("config.json"), *changes)

    def test_pytorch_goes_on_from_a_run_of_pstar(self):
        self.native()
        checkpoints = self.path("run", "checkpoints")
        model, optimizer = engine(lambda: GPT2LMHeadModel(GPT2Config(**dict(SIZES, vocab_size=50257))), F32,
                                  default_chunk_size=4096)
        found, state = model.load_checkpoint(checkpoints)
        self.assertTrue(found.endswith("step-000003"))
        self.assertEqual(state, {})
        values = read_safetensors(os.path.join(found, "model-0-of-1.safetensors"))
        states = read_safetensors(os.path.join(found, "optimizer-0-of-1.safetensors"))
        self.assertEqual(optimizer.last_step.step, 3)
        for slot in model.front.slots:
            self.assertTrue(torch.equal(model.client.read(slot.number, None, slot.shape), values[slot.name]), slot.name)
            self.assertEqual(model.client.get_steps(slot.number), 3)
            for key in ("exp_avg", "exp_avg_sq"):
                self.assertTrue(torch.equal(model.client.read(slot.number, key, slot.shape),
                                            states["%s.%s" % (slot.name, key)]), slot.name)
        other, _ = engine(gpt2, F32, default_chunk_size=4096)
        self.refused(lambda: other.load_checkpoint(checkpoints), "wte.weight", PatrickStarError)

    def test_pstar_begins_with_weights_of_pytorch(self):
        model, optimizer = engine(lambda: GPT2LMHeadModel(GPT2Config(**dict(SIZES, vocab_size=50257))), BF16,
                                  default_chunk_size=65536)
        model.save_checkpoint(self.path("saved"))
        self.native("train.steps=1", "train.init_from=" + self.path("saved"), "optimizer.params.lr=0")
        trained = read_safetensors(self.path("run", "model.safetensors"))
        for name, value in masters(model).items():
            have = trained.get(name, trained.get(name.split(".", 1)[1]))
            self.assertTrue(torch.equal(have, value), name)


if __name__ == "__main__":
    unittest.main()
