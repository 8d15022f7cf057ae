"""Records what a training does with its chunks: memory by tier, moves, moments, waits.

    from patrickstar.profiler import profiler

    profiler.start()               # also before initialize_engine: recording begins with the engine then
    ...train a few steps...
    profiler.end()
    profiler.save("profile.json")  # with several ranks each writes profile.json.rank-N

The file is for Perfetto (ui.perfetto.dev), for `pstar report profile.json -o report.html`, and for
`python -m patrickstar.visualize profile.json --fig_type memory`. A profile changes no bit of the result.
"""
import os
import weakref
from typing import Optional, Union

from .._client import Client
from .._library import PatrickStarError


class Profiler:
    """The recorder of this process, over the engine that was initialized last."""

    def __init__(self) -> None:
        self._of: Optional["weakref.ref[Client]"] = None
        self._is_wanted = False  # start() came before there was an engine
        self._is_recording = False

    def start(self) -> None:
        """Record from now on; what was recorded before is dropped. Without an engine yet: from its beginning on."""
        client = self._get_client()
        if client is None:
            self._is_wanted = True
            return
        if self._is_recording:
            raise PatrickStarError("ESTATE", "profiler.start: it is recording already; profiler.end() first")
        client.profile_start()
        self._is_recording = True

    def end(self) -> None:
        """Stop recording; save() writes what there is."""
        if self._is_wanted:
            self._is_wanted = False
            return
        client = self._need_client("profiler.end")
        if not self._is_recording:
            raise PatrickStarError("ESTATE", "profiler.end: it is not recording; profiler.start() first")
        client.profile_stop()
        self._is_recording = False

    def save(self, path: Union[str, os.PathLike]) -> None:
        """Write what was recorded, after end(). The file appears complete or not at all; `.rank-N` is added to its name
        with several ranks, each of which writes what it did."""
        client = self._need_client("profiler.save")
        if self._is_recording:
            raise PatrickStarError("ESTATE", "profiler.save: it is still recording; profiler.end() first")
        name = os.fspath(path)
        if client.info.n_ranks > 1:
            name += ".rank-%d" % client.info.rank
        client.profile_save(name)

    def _get_client(self) -> Optional[Client]:
        client = self._of() if self._of is not None else None
        return client if client is not None and client.is_open() else None

    def _need_client(self, what: str) -> Client:
        client = self._get_client()
        if client is None:
            why = "nothing was recorded: there is no engine; initialize_engine first"
            if self._of is not None:
                why = "the engine that was recorded has ended, and the record with it: save while it lives"
            raise PatrickStarError("ESTATE", "%s: %s" % (what, why))
        return client

    def _attach(self, client: Client) -> None:
        """From the runtime, when an engine has begun: this one from now on, also where an older one was recorded."""
        older = self._get_client()
        if self._is_recording and older is not None:
            older.profile_stop()
        is_wanted = self._is_wanted or self._is_recording
        self._of, self._is_wanted, self._is_recording = weakref.ref(client), False, False
        if is_wanted:
            self.start()


profiler = Profiler()
