"""transformers' Trainer over the module and the optimizer of an engine trains as over plain PyTorch."""
import importlib.util
import os
import tempfile
import unittest

import torch

from support import BF16, F32, Case, engine, without_dropout

if not importlib.util.find_spec("transformers") or not importlib.util.find_spec("accelerate"):
    raise unittest.SkipTest("transformers and accelerate are not installed")

from test_transformers import VOCABULARY, gpt2, transformers  # noqa: E402

LR, DECAY, STEPS = 1e-3, .1, 6
OPTIMIZER = {"type": "AdamW", "params": {"lr": LR, "weight_decay": DECAY}}


def sentences(n=32, length=12):
    """Another part of each is to be learned."""
    torch.manual_seed(5)
    ids = torch.randint(0, VOCABULARY, (n, length))
    labels = torch.where(torch.arange(length)[None] > torch.randint(2, length, (n, 1)), -100, ids)
    return [{"input_ids": i, "labels": y} for i, y in zip(ids, labels)]


class Training(Case):
    def train(self, module, optimizer):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        arguments = transformers.TrainingArguments(
            output_dir=folder.name, use_cpu=True, report_to=[], max_steps=STEPS, per_device_train_batch_size=2,
            gradient_accumulation_steps=2, max_grad_norm=.5, logging_steps=1, disable_tqdm=True, save_steps=STEPS)
        scheduler = transformers.get_linear_schedule_with_warmup(optimizer, 2, STEPS)
        trainer = transformers.Trainer(model=module, args=arguments, train_dataset=sentences(),
                                       eval_dataset=sentences(), optimizers=(optimizer, scheduler))
        before = trainer.evaluate()["eval_loss"]
        trainer.train()
        logged = [entry for entry in trainer.state.log_history if "loss" in entry]
        self.assertEqual(len(logged), STEPS)
        saved = os.path.join(folder.name, "checkpoint-%d" % STEPS)
        read = type(module).from_pretrained(saved).state_dict()
        after = trainer.evaluate()["eval_loss"]
        self.assertLess(after, before)
        return logged, after, read

    def test_losses_are_those_of_plain_trainer(self):
        model, optimizer = engine(without_dropout(gpt2), F32, optimizer=OPTIMIZER, default_chunk_size=1 << 13)
        plain = without_dropout(gpt2)()
        plain.load_state_dict(model.state_dict())
        logged, eval_loss, read = self.train(model.module, optimizer)
        theirs = torch.optim.AdamW(plain.parameters(), lr=LR, weight_decay=DECAY)
        expected, eval_expected, other = self.train(plain, theirs)
        for ours, entry in zip(logged, expected):
            for key in ("loss", "grad_norm", "learning_rate"):
                self.assertAlmostEqual(float(ours[key]), float(entry[key]), delta=2e-4, msg=key)
        self.assertGreater(float(expected[0]["grad_norm"]), .5)  # clipped
        self.assertAlmostEqual(eval_loss, eval_expected, delta=1e-4)
        self.assertEqual(optimizer.last_step.step, STEPS)
        for name, value in other.items():
            self.assertTrue(torch.allclose(read[name], value, atol=1e-4), name)

    def test_in_bf16(self):
        model, optimizer = engine(without_dropout(gpt2), BF16, optimizer=OPTIMIZER, default_chunk_size=1 << 13)
        self.train(model.module, optimizer)
        self.assertEqual(optimizer.last_step.step, STEPS)


if __name__ == "__main__":
    unittest.main()
