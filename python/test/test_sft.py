"""TRL's SFTTrainer: ours trains a model, and an adapter of peft, as the plain one."""
import os
import shutil
import tempfile
import unittest

from hugging_face import MEMORY, LogCase, is_installed, quietly, save_tokenizer, words

if not is_installed("trl", "peft", "datasets"):
    raise unittest.SkipTest("trl, peft and datasets are not installed")

import datasets  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import trl  # noqa: E402

from patrickstar.integrations import SFTTrainer  # noqa: E402

STEPS = 6


class Tuning(LogCase):
    def setUp(self):
        super().setUp()
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        torch.manual_seed(0)
        transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2)).save_pretrained(self.at("model"))
        self.tokenizer = save_tokenizer(self.at("model"))
        datasets.disable_progress_bars()
        self.data = datasets.Dataset.from_list(
            [{"text": words(*range(number, number + 4 + number % 5))} for number in range(32)])

    def at(self, *names):
        return os.path.join(self.folder, *names)

    def train(self, kind, name, resume=None, **given):
        arguments = trl.SFTConfig(
            output_dir=self.at(name), use_cpu=True, bf16=False, report_to=[], max_steps=STEPS, save_steps=3,
            logging_steps=1, disable_tqdm=True, per_device_train_batch_size=2, gradient_accumulation_steps=2,
            max_length=16, learning_rate=1e-3, max_grad_norm=.5, model_init_kwargs={"dtype": "float32"})
        if kind is SFTTrainer:
            given["patrickstar_config"] = {"memory": MEMORY, "default_chunk_size": 1 << 12}
        trainer = quietly(kind, model=self.at("model"), args=arguments, train_dataset=self.data,
                          processing_class=self.tokenizer, **given)
        quietly(trainer.train, resume_from_checkpoint=resume)
        quietly(trainer.save_model)
        return trainer

    def as_plain(self, file, **given):
        ours = self.train(SFTTrainer, "ours", **given)
        plain = self.train(trl.SFTTrainer, "plain", **given)
        self.same_logs(ours.state.log_history, plain.state.log_history)
        self.same_weights(self.at("ours"), self.at("plain"), file)
        whole = ours.state.log_history
        shutil.rmtree(self.at("ours", "checkpoint-%d" % STEPS))
        again = self.train(SFTTrainer, "ours", resume=True, **given)
        self.same_bits(*[[{key: value for key, value in entry.items() if key != "num_tokens"}  # TRL counts it anew
                          for entry in log if "loss" in entry] for log in (again.state.log_history, whole)])
        return ours

    def test_a_model(self):
        self.as_plain("model.safetensors")

    def test_an_adapter(self):
        """The base model is frozen: it has no states. The adapter's file has the adapter alone."""
        adapter = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        ours = self.as_plain("adapter_model.safetensors", peft_config=adapter)
        self.assertNotIn("model.safetensors", os.listdir(self.at("ours")))
        info = ours.engine.client.get_info()
        self.assertLess(info.model_data_bytes, 9 * info.parameters)
        base = transformers.AutoModelForCausalLM.from_pretrained(self.at("model"))
        loaded = peft.PeftModel.from_pretrained(base, self.at("ours"))
        state = ours.model.state_dict()
        for name, value in loaded.state_dict().items():
            self.assertTrue(torch.equal(value, state[name]), name)


if __name__ == "__main__":
    unittest.main()
