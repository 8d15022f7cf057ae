"""PatrickStar's helpers of programs (doc/migrating.md)."""
from .._original import get_rank, get_world_size, log_dist, logger, print_log_lines, see_memory_usage

__all__ = ["get_rank", "get_world_size", "log_dist", "logger", "see_memory_usage"]

print_log_lines()
