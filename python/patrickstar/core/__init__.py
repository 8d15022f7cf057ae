"""What PatrickStar's guide has in patrickstar.core and this package has too."""
from .._build import torch_scope

__all__ = ["torch_scope"]
