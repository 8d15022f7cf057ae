"""Optimizer files of the ranks (optimizer.state_dict(whole=False), each by torch.save) as one: what
optimizer.state_dict() of all of them is.

A state is in the file of each rank that keeps a part of it. Files are mapped where PyTorch supports that (2.1), so that
a state that is in several needs memory only while it is compared."""
import os
import pickle
from typing import Any, Dict, List, Optional

import torch

from ._library import Refused, format_bytes
from ._torch import load_plain

_OWN_KEY = "patrickstar"


def join(paths: List[str], out: str) -> str:
    """Write the whole, and return a line that describes it. Refused, and nothing written, if files do not belong
    together."""
    if out.endswith(".safetensors"):
        raise Refused("%s: optimizer states are written as torch.save does it; name a file of another kind, .pt" % out)
    files = {path: _load(path) for path in paths}
    names = _check_ranks(files)
    first = paths[0]
    for path in paths[1:]:
        for key in ("param_groups", _OWN_KEY):
            _check_same(key, _without_part(files[first].get(key)), first, _without_part(files[path].get(key)), path)
    state: Dict[Any, Dict[str, Any]] = {}
    found_in: Dict[Any, str] = {}
    for path in paths:
        _add(state, found_in, files.pop(path) if path != first else files[path], path, names)
    _check_all_are_there(state, files[first], names)
    whole = {**files.pop(first), "state": {number: state[number] for number in sorted(state)}}
    if _OWN_KEY in whole:
        whole[_OWN_KEY] = _without_part(whole[_OWN_KEY])
    _save(whole, out)
    n_bytes = sum(value.numel() * value.element_size() for values in state.values() for value in values.values()
                  if isinstance(value, torch.Tensor))
    return "%s: states of %d parameters, %s" % (out, len(state), format_bytes(n_bytes))


def _load(path: str) -> Dict[str, Any]:
    """Loads the file without executing anything in it."""
    try:
        found = load_plain(path, is_mapped=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise Refused("%s: no file of torch.save with nothing but tensors, numbers and texts: %s" % (path, error)
                      ) from None
    if not isinstance(found, dict) or not {"state", "param_groups"} <= set(found):
        raise Refused("%s: it has no 'state' and 'param_groups', as the file of rank 0 has; expected what "
                      "optimizer.state_dict(whole=False) gave" % path)
    return found


def _part_of(file: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    return file.get(_OWN_KEY, {}).get("part")


def _without_part(own: Any) -> Any:
    return {key: value for key, value in own.items() if key != "part"} if isinstance(own, dict) else own


def _check_ranks(files: Dict[str, Dict[str, Any]]) -> Dict[Any, str]:
    """Checks for one file of each rank, or whole ones. Returns the names of parameters by number."""
    path_of: Dict[int, str] = {}
    names: Dict[Any, str] = {}
    for path, file in files.items():
        part = _part_of(file)
        if part is None:
            continue
        if part["ranks"] != len(files):
            raise Refused("%s: it is of one of %d ranks, but there are %d files (--num); name the files of all ranks"
                          % (path, part["ranks"], len(files)))
        if part["rank"] in path_of:
            raise Refused("%s: it is of rank %d, as is %s; expected one file of each rank"
                          % (path, part["rank"], path_of[part["rank"]]))
        path_of[part["rank"]] = path
        names = part["names"]
    for path, file in files.items():
        if path_of and _part_of(file) is None:
            raise Refused("%s: it is whole, and %s is of one rank; a whole one needs no joining" % (
                path, next(iter(path_of.values()))))
    return names


def _check_same(what: str, one: Any, first: str, other: Any, path: str) -> None:
    """Numbers and lists that all ranks share."""
    if isinstance(one, dict) and isinstance(other, dict) and set(one) == set(other):
        for key in one:
            _check_same("%s[%r]" % (what, key), one[key], first, other[key], path)
    elif isinstance(one, (list, tuple)) and type(one) is type(other) and len(one) == len(other):
        for i, (a, b) in enumerate(zip(one, other)):
            _check_same("%s[%d]" % (what, i), a, first, b, path)
    elif not _is_same(one, other):
        raise Refused("%s is %s in %s, and %s in %s; files of ranks that were saved together have the same"
                      % (what, one, first, other, path))


def _is_same(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return type(one) is type(other) and bool(one == other or one != one and other != other)
    if not isinstance(other, torch.Tensor) or (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())


def _add(state: Dict[Any, Dict[str, Any]], found_in: Dict[Any, str], file: Dict[str, Any], path: str,
         names: Dict[Any, str]) -> None:
    for number, values in file["state"].items():
        if number not in state:
            state[number], found_in[number] = values, path
            continue
        for key in list(dict.fromkeys([*state[number], *values])):
            if key in state[number] and key in values and _is_same(state[number][key], values[key]):
                continue
            raise Refused("%s of %s differs between %s and %s; files of ranks that were saved together have the same"
                          % (key, _name(number, names), found_in[number], path))


def _check_all_are_there(state: Dict[Any, Any], file: Dict[str, Any], names: Dict[Any, str]) -> None:
    steps = file.get(_OWN_KEY, {}).get("tensor_steps", {})
    missing = [number for number, n in steps.items() if n > 0 and number not in state]
    if missing:
        raise Refused("the state of %s, and of %d other parameters, is in none of the files; name the files of all "
                      "ranks (--num)" % (_name(missing[0], names), len(missing) - 1))


def _name(number: Any, names: Dict[Any, str]) -> str:
    return names.get(number, "parameter %r" % number)


def _save(whole: Dict[str, Any], out: str) -> None:
    """Writes the file completely, or not at all."""
    unfinished = "%s.tmp-%d" % (out, os.getpid())
    try:
        torch.save(whole, unfinished)
        os.replace(unfinished, out)
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)
