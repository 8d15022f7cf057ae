"""Records what a training does with its chunks: memory by tier, moves, moments, waits.

    from patrickstar.profiler import profiler

    profiler.start()               # also before initialize_engine: recording begins with the engine then
    ...train a few steps...
    profiler.end()
    profiler.save("profile.json")  # with several ranks each writes profile.json.rank-N

The file is for Perfetto (ui.perfetto.dev), for `pstar report profile.json -o report.html`, and for
`python -m patrickstar.visualize profile.json --fig_type memory`. A profile changes no bit of the result.
"""
import ctypes
from typing import Any, Optional

from .._library import PatrickStarError, check, library


class Profiler:
    """The recorder of this process, over the engine that was initialized last."""

    def __init__(self) -> None:
        self._client: Optional[ctypes.c_void_p] = None
        self._is_wanted = False  # start() came before there was an engine
        self._is_recording = False
        self._is_gone = False  # the engine has ended, and with it what was recorded

    def start(self) -> None:
        """Record from now on; what was recorded before is dropped. Without an engine yet: from its beginning on."""
        if self._client is None:
            self._is_wanted = True
            return
        if self._is_recording:
            raise PatrickStarError("ESTATE", "profiler.start: it is recording already; profiler.end() first")
        check(_function("ps_client_profile_start", ctypes.c_void_p)(self._client), "profiler.start")
        self._is_recording = True

    def end(self) -> None:
        """Stop recording; save() writes what there is."""
        if self._client is None and self._is_wanted:
            self._is_wanted = False
            return
        self._need_engine("profiler.end")
        if not self._is_recording:
            raise PatrickStarError("ESTATE", "profiler.end: it is not recording; profiler.start() first")
        check(_function("ps_client_profile_stop", ctypes.c_void_p)(self._client), "profiler.end")
        self._is_recording = False

    def save(self, path: Any) -> None:
        """Write what was recorded, after end(). The file appears complete or not at all; `.rank-N` is added to its name
        with several ranks, each of which writes what it did."""
        self._need_engine("profiler.save")
        if self._is_recording:
            raise PatrickStarError("ESTATE", "profiler.save: it is still recording; profiler.end() first")
        name = str(path)
        rank, n_ranks = self._ranks
        if n_ranks > 1:
            name += ".rank-%d" % rank
        check(_function("ps_client_profile_save", ctypes.c_void_p, ctypes.c_char_p)(self._client, name.encode()),
              "profiler.save")

    def _need_engine(self, what: str) -> None:
        if self._client is None:
            why = "nothing was recorded: there is no engine; initialize_engine first"
            if self._is_gone:
                why = "the engine that was recorded has ended, and the record with it: save while it lives"
            raise PatrickStarError("ESTATE", "%s: %s" % (what, why))

    def _attach(self, client: ctypes.c_void_p, rank: int = 0, n_ranks: int = 1) -> None:
        """From the runtime, when an engine has begun: this one from now on."""
        self._client, self._ranks = client, (rank, n_ranks)
        self._is_recording = self._is_gone = False
        if self._is_wanted:
            self._is_wanted = False
            self.start()

    def _detach(self, client: ctypes.c_void_p) -> None:
        """From the runtime, before an engine ends."""
        if self._client is not None and self._client.value == client.value:
            self._client, self._is_recording, self._is_gone = None, False, True


def _function(name: str, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.argtypes, function.restype = arguments, ctypes.c_int
    return function


profiler = Profiler()
