"""What the tests of Hugging Face's training loops share: tiny models, tokenizers and data, and logs to compare."""
import contextlib
import importlib.util
import io
import os
import sys
import types
from typing import Any, Dict, List

import torch

from support import Case


def is_installed(*names: str) -> bool:
    return all(importlib.util.find_spec(name) for name in names)


MEMORY = {"device": "64MB", "host": 0, "disk": "512MB"}
HAS_CPU_RANKS = hasattr(getattr(torch, "cpu", None), "device_count")  # as accelerate asks for it
VOCABULARY = 100
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def words(*numbers: int) -> str:
    return " ".join("w%d" % (number % (VOCABULARY - 5)) for number in numbers)


def save_tokenizer(folder: str, n_words: int = VOCABULARY) -> Any:
    """A tokenizer of whole words, w0 w1 ..."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast
    special = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    names = special + ["w%d" % number for number in range(n_words - len(special))]
    tokenizer = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 2), ("</s>", 3)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>",
        cls_token="<s>", sep_token="</s>", mask_token="<mask>", model_max_length=64)
    fast.save_pretrained(folder)
    return fast


def quietly(function: Any, *args: Any, **kwargs: Any) -> Any:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return function(*args, **kwargs)


def forget_accelerate() -> None:
    """TrainingArguments(bf16=True) is otherwise that of all that come after it in the process."""
    from accelerate.state import AcceleratorState
    os.environ.pop("ACCELERATE_MIXED_PRECISION", None)
    AcceleratorState._reset_state(reset_partial_state=False)


def load_script(path: str, changes: Dict[str, str], name: str) -> types.ModuleType:
    """A script as a module, with lines of it replaced, each of which is in it once."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    for old, new in changes.items():
        assert lines.count(old) == 1, (path, old)
        lines[lines.index(old)] = new
    module = types.ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module  # HfArgumentParser looks for its types there
    exec(compile("\n".join(lines), path, "exec"), module.__dict__)
    return module


class LogCase(Case):
    """Compares what Trainers have logged."""

    def setUp(self) -> None:
        self.addCleanup(forget_accelerate)

    def same_logs(self, ours: List[Dict[str, Any]], theirs: List[Dict[str, Any]], within: float = 1e-5) -> None:
        self.assertEqual(len(ours), len(theirs))
        n_losses = 0
        for mine, other in zip(ours, theirs):
            keys = [key for key in other if "runtime" not in key and "per_second" not in key and key != "total_flos"]
            self.assertLessEqual(set(keys), set(mine))
            for key in keys:
                most = 10 * within if key == "grad_norm" else within  # torch adds its squares up in fp32
                self.assertLessEqual(abs(float(mine[key]) - float(other[key])),
                                     most * max(1., abs(float(other[key]))), (key, mine, other))
            n_losses += "loss" in other
        self.assertGreater(n_losses, 0)

    def same_bits(self, ours: List[Dict[str, Any]], theirs: List[Dict[str, Any]]) -> None:
        self.same_logs(ours, theirs, 0.)

    def same_weights(self, folder: str, other: str, file: str = "model.safetensors", within: float = 1e-5) -> None:
        from safetensors.torch import load_file
        mine, theirs = load_file(os.path.join(folder, file)), load_file(os.path.join(other, file))
        self.assertEqual(set(mine), set(theirs))
        for name, value in theirs.items():
            self.assertLessEqual(float((mine[name].float() - value.float()).abs().max()), within, name)


def rows(n: int = 32, length: int = 12) -> List[Dict[str, torch.Tensor]]:
    """Sequences with another number of targets each."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(0, VOCABULARY, (n, length), generator=generator)
    until = torch.randint(2, length, (n, 1), generator=generator)
    labels = torch.where(torch.arange(length)[None] > until, -100, ids)
    return [{"input_ids": i, "labels": y} for i, y in zip(ids, labels)]
