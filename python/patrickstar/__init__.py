"""PatrickStar: training of PyTorch modules whose model data does not fit the device (doc/pytorch.md)."""
