"""sentence-transformers' trainer: ours gives a model with the scores of the plain one."""
import os
import shutil
import tempfile
import unittest

from hugging_face import HAS_CPU_RANKS, MEMORY, LogCase, is_installed, quietly, save_tokenizer, words
from support import start_ranks

if not is_installed("sentence_transformers", "datasets", "accelerate"):
    raise unittest.SkipTest("sentence-transformers and datasets are not installed")

import datasets  # noqa: E402
import sentence_transformers as st  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from sentence_transformers import losses  # noqa: E402
from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator  # noqa: E402

from patrickstar.integrations import SentenceTransformerTrainer  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 6


def save_model(folder):
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(
        vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64)).save_pretrained(folder)
    save_tokenizer(folder)


def pairs(n, label):
    return datasets.Dataset.from_list([
        {"sentence1": words(*range(number, number + 5)), "sentence2": words(*range(number, number + 30, 2 + number % 7)),
         "label": label(number)} for number in range(n)])


def train(kind, folder, name, loss="cosine", resume=None):
    """The trainer; its model has been saved to folder/name/final."""
    torch.manual_seed(1)
    model = st.SentenceTransformer(os.path.join(folder, "model"))
    if loss == "cosine":
        data, function = pairs(32, lambda number: 1 - (number % 7) / 9), losses.CosineSimilarityLoss(model)
    else:  # with a classifier of its own
        data = pairs(32, lambda number: number % 3)
        function = losses.SoftmaxLoss(model, model.get_sentence_embedding_dimension(), 3)
    scores = pairs(24, lambda number: (5 * number % 24) / 24)
    evaluator = EmbeddingSimilarityEvaluator(scores["sentence1"], scores["sentence2"], scores["label"], name="pairs")
    arguments = st.SentenceTransformerTrainingArguments(
        output_dir=os.path.join(folder, name), use_cpu=True, report_to=[], max_steps=STEPS, save_steps=3, eval_steps=3,
        eval_strategy="steps", logging_steps=1, disable_tqdm=True, per_device_train_batch_size=4,
        gradient_accumulation_steps=2, learning_rate=1e-3, weight_decay=.1, max_grad_norm=1. if loss == "cosine" else 0)
    given = {}
    if kind is SentenceTransformerTrainer:
        given["patrickstar_config"] = {"memory": MEMORY, "default_chunk_size": 1 << 12}
    trainer = quietly(kind, model=model, args=arguments, train_dataset=data, eval_dataset=data, loss=function,
                      evaluator=evaluator, **given)
    quietly(trainer.train, resume_from_checkpoint=resume)
    quietly(trainer.save_model, os.path.join(folder, name, "final"))
    return trainer


class Training(LogCase):
    def setUp(self):
        super().setUp()
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        datasets.disable_progress_bars()
        save_model(self.at("model"))

    def at(self, *names):
        return os.path.join(self.folder, *names)

    def as_plain(self, loss, is_clipped):
        ours = train(SentenceTransformerTrainer, self.folder, "ours", loss)
        plain = train(st.SentenceTransformerTrainer, self.folder, "plain", loss)
        logs = [[{key: value for key, value in entry.items() if is_clipped or key != "grad_norm"} for entry in
                 trainer.state.log_history] for trainer in (ours, plain)]
        self.same_logs(*logs)
        self.assertEqual(len([entry for entry in logs[1] if "eval_pairs_spearman_cosine" in entry]), 2)
        texts = [words(3, 1, 4), words(1, 5, 9, 2, 6)]
        found = st.SentenceTransformer(self.at("ours", "final")).encode(texts)
        self.assertLess(abs(found - plain.model.encode(texts)).max(), 1e-5)
        return ours

    def test_scores_are_those_of_the_plain_trainer(self):
        whole = self.as_plain("cosine", True).state.log_history
        shutil.rmtree(self.at("ours", "checkpoint-%d" % STEPS))
        again = train(SentenceTransformerTrainer, self.folder, "ours", resume=True).state.log_history
        self.same_bits([entry for entry in again if "loss" in entry], [entry for entry in whole if "loss" in entry])

    def test_a_loss_with_parameters(self):
        """They are trained, too. (The plain trainer's norm is without theirs.)"""
        ours = self.as_plain("softmax", False)
        names = [slot.name for slot in ours.engine.front.slots]
        self.assertTrue(any("classifier" in name for name in names), names)

    @unittest.skipUnless(HAS_CPU_RANKS, "accelerate starts several processes on the processor with PyTorch 2")
    def test_two_ranks_are_refused(self):
        for status, text in start_ranks(os.path.join(HERE, "sentences_worker.py"), self.folder):
            self.assertNotEqual(status, 0)
            self.assertIn("start a single process", text)


if __name__ == "__main__":
    unittest.main()
