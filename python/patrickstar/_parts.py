"""Parts: the result of state_dict(whole=False) of model and optimizer on one rank, and where it can be loaded again.

A part is marked with its rank: an optimizer's under a separate key, a model's as an attribute of the OrderedDict, which
torch.save keeps and other code ignores. A dictionary with all entries is whole, marked or not, for example one joined
from the files of all ranks."""
from typing import Any, Dict, List, Optional

from ._client import Client
from ._library import Refused

_ATTRIBUTE = "_patrickstar"
_JOIN = ("join the files of all ranks by `python -m patrickstar.merge`, which any number of ranks loads, as it does "
         "the result of state_dict()")


def new_mark(client: Client) -> Dict[str, Any]:
    info = client.info
    return {"rank": info.rank, "ranks": info.n_ranks, "chunk_elements": info.chunk_elements}


def mark_model(state: Any, client: Client) -> None:
    if hasattr(state, "__dict__"):  # a plain dictionary, which a program may have passed, has none
        setattr(state, _ATTRIBUTE, new_mark(client))


def mark_of_model(state: Any) -> Optional[Dict[str, Any]]:
    return getattr(state, _ATTRIBUTE, None)


def check_rank(mark: Dict[str, Any], client: Client, what: str) -> None:
    """what: "model state"."""
    info = client.info
    if (mark["rank"], mark["ranks"]) == (info.rank, info.n_ranks):
        return
    here = "rank %d of %d" % (info.rank, info.n_ranks) if info.n_ranks > 1 else "a single process"
    raise Refused("%s: it is that of one rank (whole=False), rank %d of %d, but this is %s. Load "
                  "it with as many ranks as have saved it, each its own; or %s"
                  % (what, mark["rank"], mark["ranks"], here, _JOIN))


def check_kept(mark: Optional[Dict[str, Any]], client: Client, what: str, missing: List[str], n_kept: int) -> None:
    """missing: names that this rank keeps, of n_kept in total, and the part lacks."""
    if not missing:
        return
    of_whom, remedy = "", "Load it with as many ranks as have saved it, each its own"
    if mark is not None:  # of this rank
        then, now = mark["chunk_elements"], client.info.chunk_elements
        of_whom = ", rank %d of %d" % (mark["rank"], mark["ranks"])
        remedy = ("Its chunks were of %d elements, and here they are of %d: begin with default_chunk_size = %d"
                  % (then, now, then) if then != now else "Build the model as it was when it was saved")
    raise Refused("%s: it is that of one rank (whole=False)%s, without %d of the %d parameters that this %s keeps, the "
                  "first of which is %s. %s; or %s"
                  % (what, of_whom, len(missing), n_kept, "rank" if client.info.n_ranks > 1 else "process", missing[0],
                     remedy, _JOIN))
