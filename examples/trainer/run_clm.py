"""Trains a causal language model of transformers by its Trainer: the form of transformers' run_clm.py,
over files on this machine.

usage: python3 run_clm.py --model_name_or_path FOLDER --train_file TEXT [--validation_file TEXT] --output_dir FOLDER
       [--do_train] [--do_eval] [--block_size 128] [--config_overrides n_layer=4,n_embd=128]
       and all of transformers' TrainingArguments: --max_steps 100 --save_steps 50 --learning_rate 5e-5 ...

FOLDER holds a tokenizer and a model; with --from_scratch its config.json alone, and weights are random. A run whose
output_dir has checkpoints goes on from the newest. To train in chunks, change three lines (doc/trainer.md):

    from patrickstar import Trainer                                         instead of transformers' Trainer
    patrickstar_config = {"memory": "2GB"}                                instead of none
    trainer = Trainer(patrickstar_config=patrickstar_config,                instead of trainer = Trainer(
"""
import math
import os
from dataclasses import dataclass, field
from typing import Optional

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, TrainingArguments
from transformers import default_data_collator, set_seed
from transformers.trainer_utils import get_last_checkpoint

from transformers import Trainer

patrickstar_config = None


@dataclass
class ModelArguments:
    model_name_or_path: str = field(metadata={"help": "Folder of the model and its tokenizer"})
    from_scratch: bool = field(default=False, metadata={"help": "Random weights"})
    config_overrides: Optional[str] = field(default=None, metadata={"help": "Changes of config.json: n_layer=4,..."})


@dataclass
class DataTrainingArguments:
    train_file: Optional[str] = field(default=None, metadata={"help": "A text"})
    validation_file: Optional[str] = field(default=None, metadata={"help": "A text"})
    block_size: int = field(default=128, metadata={"help": "Tokens of a sequence"})
    max_eval_samples: Optional[int] = field(default=None, metadata={"help": "At most so many sequences"})


class Blocks(torch.utils.data.Dataset):
    """A text as sequences of one length; the rest is dropped."""

    def __init__(self, path, tokenizer, length, most=None):
        with open(path, encoding="utf-8") as file:
            ids = torch.tensor(tokenizer(file.read())["input_ids"])
        self.blocks = ids[:len(ids) // length * length].view(-1, length)[:most]

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, number):
        return {"input_ids": self.blocks[number], "labels": self.blocks[number]}


def preprocess_logits_for_metrics(logits, labels):
    return (logits[0] if isinstance(logits, tuple) else logits).argmax(dim=-1)


def compute_metrics(predictions):
    found, labels = predictions.predictions[:, :-1], predictions.label_ids[:, 1:]
    return {"accuracy": float((found == labels).mean())}


def main():
    parser = HfArgumentParser((ModelArguments, DataTrainingArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)

    last_checkpoint = None
    if os.path.isdir(training_args.output_dir) and training_args.do_train:
        last_checkpoint = get_last_checkpoint(training_args.output_dir)

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    config = AutoConfig.from_pretrained(model_args.model_name_or_path)
    if model_args.config_overrides:
        config.update_from_string(model_args.config_overrides)

    def model_init():
        if model_args.from_scratch:
            return AutoModelForCausalLM.from_config(config)
        return AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, config=config)

    train_dataset = eval_dataset = None
    if training_args.do_train:
        train_dataset = Blocks(data_args.train_file, tokenizer, data_args.block_size)
    if training_args.do_eval:
        eval_dataset = Blocks(data_args.validation_file, tokenizer, data_args.block_size, data_args.max_eval_samples)

    trainer = Trainer(
        model_init=model_init,
        args=training_args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        processing_class=tokenizer,
        data_collator=default_data_collator,
        compute_metrics=compute_metrics if training_args.do_eval else None,
        preprocess_logits_for_metrics=preprocess_logits_for_metrics if training_args.do_eval else None,
    )

    if training_args.do_train:
        checkpoint = training_args.resume_from_checkpoint or last_checkpoint
        result = trainer.train(resume_from_checkpoint=checkpoint)
        trainer.save_model()
        trainer.log_metrics("train", result.metrics)
        trainer.save_metrics("train", result.metrics)
        trainer.save_state()
    if training_args.do_eval:
        metrics = trainer.evaluate()
        metrics["perplexity"] = math.exp(metrics["eval_loss"])
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)
    return trainer


if __name__ == "__main__":
    main()
