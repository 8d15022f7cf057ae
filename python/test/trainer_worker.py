"""A rank of test_trainer: ours, a plain Trainer (DistributedDataParallel), and ours again from a checkpoint."""
import json
import os
import sys

import torch
import transformers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from hugging_face import MEMORY, quietly, rows  # noqa: E402
from support import without_dropout  # noqa: E402
from test_transformers import gpt2  # noqa: E402

import patrickstar  # noqa: E402

folder = sys.argv[1]


def train(kind, name, resume=None, **given):
    arguments = transformers.TrainingArguments(
        output_dir=os.path.join(folder, name.replace("again", "ours")), use_cpu=True, report_to=[], max_steps=6,
        per_device_train_batch_size=2, gradient_accumulation_steps=2, learning_rate=1e-3, max_grad_norm=.5,
        logging_steps=1, disable_tqdm=True, save_steps=3, weight_decay=.1, eval_strategy="steps", eval_steps=3,
        ddp_backend="gloo", ddp_find_unused_parameters=False)
    trainer = kind(model_init=without_dropout(gpt2), args=arguments, train_dataset=rows(), eval_dataset=rows(9),
                   **given)
    quietly(trainer.train, resume_from_checkpoint=resume)
    if trainer.is_world_process_zero():
        with open(os.path.join(folder, name + ".json"), "w") as file:
            json.dump([entry for entry in trainer.state.log_history if "loss" in entry or "eval_loss" in entry], file)


config = {"memory": MEMORY, "default_chunk_size": 1 << 13}
train(patrickstar.Trainer, "ours", patrickstar_config=config)
train(transformers.Trainer, "plain")
train(patrickstar.Trainer, "again", resume=os.path.join(folder, "ours", "checkpoint-3"), patrickstar_config=config)
torch.distributed.barrier()
