"""PatrickStar's helpers of programs (doc/migrating.md)."""
from .._original import register_torch_profiler_hook

__all__ = ["register_torch_profiler_hook"]
