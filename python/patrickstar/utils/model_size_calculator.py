"""PatrickStar's helpers of programs (doc/migrating.md)."""
from .._original import get_ps_model_size

__all__ = ["get_ps_model_size"]
