"""PatrickStar's helpers of programs (doc/migrating.md)."""
from .._original import log_dist, logger

__all__ = ["log_dist", "logger"]
