"""PatrickStar's helpers of programs (doc/migrating.md)."""
from .._original import data_move_cnter, my_timer

__all__ = ["data_move_cnter", "my_timer"]
