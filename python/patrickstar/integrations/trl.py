"""TRL's SFTTrainer for a model in chunks, also with an adapter of peft (peft_config)."""
import trl

from .trainer import PatrickStarTrainerMixin


class SFTTrainer(PatrickStarTrainerMixin, trl.SFTTrainer):
    """trl.SFTTrainer, with patrickstar_config beside its arguments. A model given by its name or folder is built in
    chunks, and so is the adapter."""
    arguments_class = trl.SFTConfig
