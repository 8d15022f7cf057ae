"""Fine-tunes a classifier of sentences by transformers' Trainer: the form of transformers' run_glue.py,
over files on this machine.

usage: python3 run_glue.py --model_name_or_path FOLDER --train_file LINES [--validation_file LINES]
       [--test_file LINES] --output_dir FOLDER [--do_train] [--do_eval] [--do_predict] [--max_seq_length 128]
       and all of transformers' TrainingArguments: --num_train_epochs 3 --learning_rate 2e-5 ...

Files have JSON lines: {"sentence": ..., "label": ...}, or {"sentence1": ..., "sentence2": ..., "label": ...}. FOLDER
holds a tokenizer and a model; with --from_scratch its config.json alone, and weights are random. A run whose output_dir
has checkpoints goes on from the newest. To train in chunks, change three lines (doc/trainer.md):

    from patrickstar import Trainer                                         instead of transformers' Trainer
    patrickstar_config = {"memory": "2GB"}                                instead of none
    trainer = Trainer(patrickstar_config=patrickstar_config,                instead of trainer = Trainer(
"""
import json
import os
from dataclasses import dataclass, field
from typing import Optional

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding
from transformers import HfArgumentParser, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from transformers import Trainer

patrickstar_config = None


@dataclass
class ModelArguments:
    model_name_or_path: str = field(metadata={"help": "Folder of the model and its tokenizer"})
    from_scratch: bool = field(default=False, metadata={"help": "Random weights"})


@dataclass
class DataTrainingArguments:
    train_file: Optional[str] = field(default=None, metadata={"help": "JSON lines"})
    validation_file: Optional[str] = field(default=None, metadata={"help": "JSON lines"})
    test_file: Optional[str] = field(default=None, metadata={"help": "JSON lines; labels are not read"})
    max_seq_length: int = field(default=128, metadata={"help": "Longer sentences are cut"})


class Sentences(torch.utils.data.Dataset):
    """Tokenized lines of a file."""

    def __init__(self, path, tokenizer, length, label_to_id=None):
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.strip()]
        self.examples = []
        for line in lines:
            texts = [line[key] for key in ("sentence", "sentence1", "sentence2") if key in line]
            example = dict(tokenizer(*texts, max_length=length, truncation=True))
            if label_to_id is not None:
                example["label"] = label_to_id[line["label"]]
            self.examples.append(example)

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, number):
        return self.examples[number]


def labels_of(path):
    with open(path, encoding="utf-8") as file:
        return sorted({json.loads(line)["label"] for line in file if line.strip()})


def compute_metrics(predictions):
    return {"accuracy": float((predictions.predictions.argmax(axis=1) == predictions.label_ids).mean())}


def main():
    parser = HfArgumentParser((ModelArguments, DataTrainingArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)

    last_checkpoint = None
    if os.path.isdir(training_args.output_dir) and training_args.do_train:
        last_checkpoint = get_last_checkpoint(training_args.output_dir)

    labels = labels_of(data_args.train_file or data_args.validation_file)
    label_to_id = {label: number for number, label in enumerate(labels)}
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    config = AutoConfig.from_pretrained(model_args.model_name_or_path, num_labels=len(labels))
    config.label2id = {str(label): number for label, number in label_to_id.items()}
    config.id2label = {number: str(label) for label, number in label_to_id.items()}

    def model_init():
        if model_args.from_scratch:
            return AutoModelForSequenceClassification.from_config(config)
        return AutoModelForSequenceClassification.from_pretrained(model_args.model_name_or_path, config=config)

    def read(path, is_wanted, of_labels=label_to_id):
        return Sentences(path, tokenizer, data_args.max_seq_length, of_labels) if is_wanted else None

    trainer = Trainer(
        model_init=model_init,
        args=training_args,
        train_dataset=read(data_args.train_file, training_args.do_train),
        eval_dataset=read(data_args.validation_file, training_args.do_eval),
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=compute_metrics,
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
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)
    if training_args.do_predict:
        found = trainer.predict(read(data_args.test_file, True, None)).predictions.argmax(axis=1)
        if trainer.is_world_process_zero():
            with open(os.path.join(training_args.output_dir, "predict_results.txt"), "w", encoding="utf-8") as file:
                file.writelines("%d\t%s\n" % (number, labels[label]) for number, label in enumerate(found))
    return trainer


if __name__ == "__main__":
    main()
