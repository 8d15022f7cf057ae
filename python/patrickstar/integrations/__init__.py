"""Hugging Face's training loops over models in chunks (doc/trainer.md): accelerate, transformers' Trainer, TRL,
sentence-transformers. Each is imported when it is named, so none of them is needed for the others.

    accelerate     PatrickStarPlugin and Accelerator: prepare, backward, clipping, checkpoints
    trainer        PatrickStarTrainerMixin for any subclass of transformers' Trainer, over that Accelerator; Trainer
    trl            SFTTrainer
    sentence_transformers    SentenceTransformerTrainer
    _plugin        what a plugin knows; _config: the configuration and the program's settings as one"""
import importlib
from typing import Any

_PLACES = {"PatrickStarPlugin": "_plugin", "Accelerator": "accelerate", "PatrickStarTrainerMixin": "trainer",
           "Trainer": "trainer", "SFTTrainer": "trl", "SentenceTransformerTrainer": "sentence_transformers"}

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module("%s.%s" % (__name__, _PLACES[name])), name)
    raise AttributeError("module %r has no attribute %r" % (__name__, name))
