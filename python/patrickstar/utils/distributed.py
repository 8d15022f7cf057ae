"""PatrickStar's helpers of programs (doc/migrating.md)."""
from .._original import get_rank, get_world_size

__all__ = ["get_rank", "get_world_size"]
