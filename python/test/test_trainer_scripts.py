"""The scripts of examples/trainer, with the three lines changed that their beginnings name: losses, evaluations and
predictions of the plain scripts, in a third of the model data; and the run goes on after kill -9."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import torch

from hugging_face import ROOT, LogCase, is_installed, load_script, quietly, save_tokenizer, words

if not is_installed("transformers", "accelerate"):
    raise unittest.SkipTest("transformers and accelerate are not installed")

import transformers  # noqa: E402

try:
    from transformers import Trainer  # noqa: E402, F401
except ImportError as error:
    raise unittest.SkipTest("this transformers has no Trainer for this PyTorch (%s)" % error) from None

FOLDER = os.path.join(ROOT, "examples", "trainer")


def changes(config):
    """The lines of a plain script, and what they become."""
    return {"from transformers import Trainer": "from patrickstar import Trainer",
            "patrickstar_config = None": "patrickstar_config = %r" % (config,),
            "    trainer = Trainer(": "    trainer = Trainer(patrickstar_config=patrickstar_config,"}


class Scripts(LogCase):
    def setUp(self):
        super().setUp()
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def at(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, lines):
        with open(self.at(name), "w") as file:
            file.writelines(line + "\n" for line in lines)
        return self.at(name)

    def run_script(self, script, arguments, changed, output):
        """The trainer of the script's main()."""
        module = load_script(os.path.join(FOLDER, script), changed, "script_" + output)
        before = sys.argv
        sys.argv = [script, "--output_dir", self.at(output)] + [str(argument) for argument in arguments]
        try:
            return quietly(module.main)
        finally:
            sys.argv = before

    def both(self, script, arguments, config):
        plain = self.run_script(script, arguments, {}, "plain")
        ours = self.run_script(script, arguments, changes(config), "ours")
        self.same_logs(ours.state.log_history, plain.state.log_history)
        self.same_weights(self.at("ours"), self.at("plain"))
        self.assertEqual({name for name in os.listdir(self.at("plain"))}, set(os.listdir(self.at("ours"))))
        for name in ("train_results.json", "eval_results.json", "all_results.json"):
            with open(self.at("plain", name)) as theirs, open(self.at("ours", name)) as mine:
                self.same_logs([dict(json.load(mine), loss=0)], [dict(json.load(theirs), loss=0)])
        return ours

    def trained_in_a_third(self, trainer):
        info = trainer.engine.client.get_info()
        self.assertLessEqual(3 * sum(info.budget_bytes[:2]), info.model_data_bytes)
        for tier in (0, 1):
            self.assertLessEqual(info.peak_bytes[tier], info.budget_bytes[tier])

    def model_folder(self, config, n_words):
        config.save_pretrained(self.at("model"))
        save_tokenizer(self.at("model"), n_words)
        return self.at("model")

    def clm(self, **sizes):
        """Arguments of run_clm.py."""
        n_words = sizes.pop("n_words", 500)
        config = transformers.GPT2Config(vocab_size=n_words, n_positions=64, architectures=["GPT2LMHeadModel"], **sizes)
        text = [words(*range(start, start + 90, 1 + start % 3)) for start in range(30)]
        return ["--model_name_or_path", self.model_folder(config, n_words), "--from_scratch", "--train_file",
                self.write("train.txt", text), "--validation_file", self.write("test.txt", text[::7]), "--block_size",
                24, "--do_train", "--do_eval", "--use_cpu", "--report_to", "none", "--disable_tqdm", True,
                "--logging_steps", 1, "--per_device_train_batch_size", 2, "--gradient_accumulation_steps", 2,
                "--per_device_eval_batch_size", 4, "--save_strategy", "steps", "--lr_scheduler_type", "cosine",
                "--warmup_steps", 2]

    def test_run_clm_in_a_third_of_the_model_data(self):
        arguments = self.clm(n_words=2000, n_embd=512, n_layer=6, n_head=4) + [
            "--max_steps", 2, "--save_steps", 2, "--max_eval_samples", 8]
        config = {"memory": {"device": "105MB", "host": 0, "disk": "2GB", "disk_path": self.folder}}
        trainer = self.both("run_clm.py", arguments, config)
        self.trained_in_a_third(trainer)
        self.assertIn("perplexity", json.load(open(self.at("ours", "eval_results.json"))))

    def test_run_glue_in_a_third_of_the_model_data(self):
        config = transformers.BertConfig(
            vocab_size=2000, hidden_size=512, num_hidden_layers=9, num_attention_heads=4, intermediate_size=1024,
            max_position_embeddings=64, architectures=["BertForSequenceClassification"])
        lines = [json.dumps({"sentence": words(number, number + 7, 1 + number % 3, *range(number % 5)),
                             "label": ("no", "yes", "maybe")[number % 3]}) for number in range(16)]
        arguments = ["--model_name_or_path", self.model_folder(config, 2000), "--from_scratch", "--train_file",
                     self.write("train.jsonl", lines), "--validation_file", self.write("dev.jsonl", lines[::3]),
                     "--test_file", self.write("test.jsonl", lines[::4]), "--do_train", "--do_eval", "--do_predict",
                     "--use_cpu", "--report_to", "none", "--disable_tqdm", True, "--logging_steps", 1,
                     "--per_device_train_batch_size", 8, "--num_train_epochs", 1, "--save_strategy", "epoch",
                     "--learning_rate", "1e-4", "--weight_decay", .01, "--max_seq_length", 16]
        memory = {"device": "105MB", "host": 0, "disk": "2GB", "disk_path": self.folder}
        trainer = self.both("run_glue.py", arguments, {"memory": memory})
        self.trained_in_a_third(trainer)
        with open(self.at("ours", "predict_results.txt")) as mine, open(self.at("plain", "predict_results.txt")) as file:
            self.assertEqual(mine.read(), file.read())

    def start(self, script, arguments, output):
        command = [sys.executable, "-W", "ignore", script, "--output_dir", self.at(output)]
        return subprocess.Popen(command + [str(argument) for argument in arguments], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def end(self, process, output):
        """What the run has logged."""
        text, _ = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, text)
        with open(self.at(output, "trainer_state.json")) as file:
            return [entry for entry in json.load(file)["log_history"] if "loss" in entry]

    def test_goes_on_after_kill_9(self):
        """With the bits of a run that was not killed."""
        steps = 40
        arguments = self.clm(n_embd=64, n_layer=2, n_head=2) + ["--max_steps", steps, "--save_steps", 2]
        changed = changes({"memory": {"device": "64MB", "host": 0, "disk": "512MB", "disk_path": self.folder}})
        with open(os.path.join(FOLDER, "run_clm.py")) as file:
            script = self.write("run_clm_ours.py", [changed.get(line, line) for line in file.read().split("\n")])
        whole = self.start(script, arguments, "whole")
        process = self.start(script, arguments, "killed")
        while not os.path.exists(self.at("killed", "checkpoint-6", "trainer_state.json")):
            self.assertIsNone(process.poll(), "ended early")
            time.sleep(.005)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        reached = max(int(re.fullmatch(r"checkpoint-(\d+)", name)[1]) for name in os.listdir(self.at("killed"))
                      if name.startswith("checkpoint"))
        self.assertLess(reached, steps)
        expected = self.end(whole, "whole")
        self.same_bits(self.end(self.start(script, arguments, "killed"), "killed"), expected)
        self.assertEqual(len(expected), steps)
        self.same_weights(self.at("killed"), self.at("whole"), within=0.)


if __name__ == "__main__":
    torch.manual_seed(0)
    unittest.main()
