"""sentence-transformers' trainer for a model in chunks."""
import logging

import sentence_transformers
import torch.nn as nn

from .._library import Refused
from .trainer import PatrickStarTrainerMixin


class SentenceTransformerTrainer(PatrickStarTrainerMixin, sentence_transformers.SentenceTransformerTrainer):
    """sentence_transformers.SentenceTransformerTrainer, with patrickstar_config beside its arguments. Parameters of the
    loss are in chunks, too, and gradients are clipped by the norm of all. save_model copies the state_dict()."""
    arguments_class = sentence_transformers.SentenceTransformerTrainingArguments

    def get_trained_module(self) -> nn.Module:
        if self.args.world_size > 1:
            raise Refused("SentenceTransformerTrainer of a model in chunks with %d processes: one of them alone computes "
                          "with the model, for its card, and no process has all of it; start a single process"
                          % self.args.world_size)
        losses = self.loss if isinstance(self.loss, dict) else {"loss": self.loss}
        of_model = {id(param) for param in self.model.parameters()}
        if all(id(param) in of_model for loss in losses.values() for param in loss.parameters()):
            return self.model
        self._plugin.clips_all = True
        if self.args.max_grad_norm:
            logging.getLogger("patrickstar").warning(
                "the loss has parameters of its own: max_grad_norm clips by the norm of all gradients, and not, as with "
                "plain PyTorch, by the norm of the model's alone, without clipping those of the loss")
        # The model first: its parameters have its names.
        return nn.ModuleDict({"model": self.model, **{"loss_%s" % name: loss for name, loss in losses.items()}})
