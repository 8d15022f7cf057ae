"""What PatrickStar's guide has in patrickstar.core and this package has too."""
from .._build import torch_scope
from .._client import Client
from .._original import MadeByEngine, refuse_names

__all__ = ["PatrickStarClient", "torch_scope"]


class PatrickStarClient(Client, metaclass=MadeByEngine):
    """What model.client is."""
    way = ("initialize_engine(model_func, local_rank, config) makes the client, and model.client is it; "
           "default_chunk_size is a key of the configuration")


__getattr__ = refuse_names(__name__, {
    "PSPreProcessCtx": "patrickstar.init(config) is such a context; then initialize_engine(model=model)"})
