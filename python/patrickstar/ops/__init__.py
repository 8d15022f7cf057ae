"""What PatrickStar has in patrickstar.ops and programs use (doc/migrating.md)."""
from torch.nn import Embedding  # its table lies in chunks as any other parameter

from .._original import MadeByEngine
from ..runtime import Optimizer

__all__ = ["Embedding", "FP16Adam"]


class FP16Adam(Optimizer, metaclass=MadeByEngine):
    """What the optimizer of initialize_engine is."""
    way = ("initialize_engine(model_func, local_rank, config) makes the optimizer too; optimizer.type and "
           "optimizer.params of the configuration say which")
