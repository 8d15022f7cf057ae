"""Records what a training does with its chunks: memory by tier, moves, moments, waits.

    from patrickstar.profiler import profiler

    profiler.start()               # also before initialize_engine: recording begins with the engine then
    ...train a few steps...
    profiler.end()
    profiler.save("profile.json")  # with several ranks each writes profile.json.rank-N

The file is for Perfetto (ui.perfetto.dev), for `pstar report profile.json -o report.html`, and for
`python -m patrickstar.visualize profile.json --fig_type memory`. A profile changes no bit of the result.
"""
import json
import logging
import os
import time
import weakref
from typing import Any, Dict, List, Optional, Tuple, Union

from .._client import Client
from .._library import PatrickStarError


class Profiler:
    """The recorder of this process, over the engine that was initialized last."""

    def __init__(self) -> None:
        self._of: Optional["weakref.ref[Client]"] = None
        self._is_wanted = False  # start() came before there was an engine
        self._is_recording = False
        self._torch: List[Tuple[float, str, int]] = []  # of training without an engine: time, module, bytes in use

    def start(self) -> None:
        """Record from now on; what was recorded before is dropped. Without an engine yet: from its beginning on."""
        client = self.get_client()
        if client is None:
            self._is_wanted, self._torch = True, []
            return
        if self._is_recording:
            raise PatrickStarError("ESTATE", "profiler.start: it is recording already; profiler.end() first")
        client.profile_start()
        self._is_recording = True

    def warmup_finish(self) -> None:
        """PatrickStar's: the warm-up has ended. Here it is the first step of a training, which the file tells from the
        others: `--rm_warmup` leaves it out."""
        client = self.get_client()
        if client is not None and client.get_info().n_steps != 1:
            logging.getLogger("patrickstar").warning(
                "profiler.warmup_finish after step %d: the warm-up is the first step alone", client.get_info().n_steps)

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
        name = os.fspath(path)
        if self._torch and not self._is_wanted and self.get_client() is None:
            self._save_torch(name)
            return
        client = self._need_client("profiler.save")
        if self._is_recording:
            raise PatrickStarError("ESTATE", "profiler.save: it is still recording; profiler.end() first")
        if client.info.n_ranks > 1:
            name += ".rank-%d" % client.info.rank
        client.profile_save(name)

    def record_torch(self, module: str, n_bytes: int) -> None:
        """From register_torch_profiler_hook: so much is in use now."""
        if self._is_wanted:
            self._torch.append((time.perf_counter(), module, n_bytes))

    def _save_torch(self, path: str) -> None:
        """A file of the same form, of which the figure `memory` is drawn; what lies in chunks is nothing."""
        begin = self._torch[0][0]
        events: List[Dict[str, Any]] = []
        for at, module, n_bytes in self._torch:
            event = {"pid": 0, "tid": 0, "ts": round(1e6 * (at - begin), 3)}
            events.append({**event, "name": "device bytes", "cat": "memory", "ph": "C",
                           "args": {"chunks": 0, "non_model": n_bytes, "other": 0}})
            events.append({**event, "name": module, "cat": "op", "ph": "i", "tid": 2, "args": {"bytes": n_bytes}})
        facts = {"version": 1, "simulated": False, "rank": 0, "n_ranks": 1, "title": "PyTorch", "begin_ns": 0,
                 "steps": [1, 1], "budgets": {"device": 0, "host": 0, "disk": 0}, "chunk_elements": 0, "n_chunks": 0,
                 "n_lists": 1, "waste": 0, "chunks": []}
        with open(path + ".tmp", "w") as file:
            json.dump({"traceEvents": events, "patrickstar": facts}, file)
        os.replace(path + ".tmp", path)

    def get_client(self) -> Optional[Client]:
        """Of the engine that was initialized last, while it is open."""
        client = self._of() if self._of is not None else None
        return client if client is not None and client.is_open() else None

    def _need_client(self, what: str) -> Client:
        client = self.get_client()
        if client is None:
            why = "nothing was recorded: there is no engine; initialize_engine first"
            if self._of is not None:
                why = "the engine that was recorded has ended, and the record with it: save while it lives"
            raise PatrickStarError("ESTATE", "%s: %s" % (what, why))
        return client

    def _attach(self, client: Client) -> None:
        """From the runtime, when an engine has begun: this one from now on, also where an older one was recorded."""
        older = self.get_client()
        if self._is_recording and older is not None:
            older.profile_stop()
        is_wanted = self._is_wanted or self._is_recording
        self._of, self._is_wanted, self._is_recording, self._torch = weakref.ref(client), False, False, []
        if is_wanted:
            self.start()


profiler = Profiler()
