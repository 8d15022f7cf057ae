"""sentence-transformers' trainer for a model in chunks."""
import sentence_transformers
import torch.nn as nn

from .trainer import PatrickStarTrainerMixin


class SentenceTransformerTrainer(PatrickStarTrainerMixin, sentence_transformers.SentenceTransformerTrainer):
    """sentence_transformers.SentenceTransformerTrainer, with patrickstar_config beside its arguments. Parameters of the
    loss are in chunks, too. save_model copies the state_dict()."""
    arguments_class = sentence_transformers.SentenceTransformerTrainingArguments

    def get_trained_module(self) -> nn.Module:
        losses = self.loss if isinstance(self.loss, dict) else {"loss": self.loss}
        of_model = {id(param) for param in self.model.parameters()}
        if all(id(param) in of_model for loss in losses.values() for param in loss.parameters()):
            return self.model
        # The model first: its parameters have its names.
        return nn.ModuleDict({"model": self.model, **{"loss_%s" % name: loss for name, loss in losses.items()}})
