"""PatrickStar: training of PyTorch modules whose model data does not fit the device (doc/pytorch.md).

    from patrickstar.runtime import initialize_engine
    model, optimizer = initialize_engine(model_func=model_func, local_rank=0, config=config)
    for batch in loader:
        optimizer.zero_grad()
        loss = model(**batch).loss
        model.backward(loss)
        optimizer.step()

The package is thin: parameters, gradients and optimizer states lie in the chunks of libpatrickstar
(include/patrickstar_client.h), which move between device, host and disk. Modules stay PyTorch's, and nothing is
compiled."""
from ._library import BudgetError, PatrickStarError, Refused
from ._build import torch_scope

__all__ = ["BudgetError", "PatrickStarError", "Refused", "torch_scope"]
