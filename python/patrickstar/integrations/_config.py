"""A configuration of the engine, and what the program sets elsewhere (arguments, an optimizer of torch.optim), as one:
keys that the configuration leaves out, or has as "auto", are the program's; others must be the same."""
import copy
import json
import os
from typing import Any, Dict, Iterator, List, Tuple

from .._client import expect_config_file
from .._library import PatrickStarError

_LEFT_OUT = object()


def read(given: Any) -> Dict[str, Any]:
    """A copy of a configuration: a dictionary, the path of a JSON file, or None."""
    if given is None:
        return {}
    if isinstance(given, (str, os.PathLike)):
        path = os.fspath(given)
        expect_config_file(path)
        if not os.path.exists(path):
            raise PatrickStarError("EIO", "the configuration %s: there is no such file; expected a dictionary, or the "
                                   "path of a JSON file" % path)
        with open(path, encoding="utf-8") as file:
            try:
                given = json.load(file)
            except ValueError as error:  # JSONDecodeError, UnicodeDecodeError
                raise PatrickStarError("EINVAL", "%s: not JSON: %s" % (path, error)) from None
    if not isinstance(given, dict):
        raise PatrickStarError("EINVAL", "the configuration is %s; it must be a dictionary, or the path of a JSON file"
                               % type(given).__name__)
    return copy.deepcopy(given)


def merge(config: Dict[str, Any], of_program: Dict[str, Tuple[Any, str]]) -> None:
    """of_program: by key, with dots, the value and the name that it has in the program."""
    differing: List[str] = []
    for key, (value, name) in of_program.items():
        section, last = _section_of(config, key)
        given = section.get(last, _LEFT_OUT)
        if given is _LEFT_OUT or given == "auto":
            section[last] = value
        elif not is_same(given, value):
            differing.append("%s is %r, and %s is %r" % (key, given, name, value))
    for precision in ("bf16", "fp16"):  # which the program has not turned on
        section = config.get(precision)
        if isinstance(section, dict) and section.get("enabled") == "auto":
            section["enabled"] = False
    if differing:
        raise PatrickStarError("EINVAL", "the configuration and the program differ: %s; leave the keys out of the "
                               "configuration, or give them as \"auto\"" % "; ".join(differing))


def take(config: Dict[str, Any], key: str) -> Any:
    """Removes a key, with dots; None where there is none."""
    section, last = _section_of(config, key)
    return section.pop(last, None)


def get(config: Dict[str, Any], key: str) -> Any:
    for part in key.split("."):
        config = config.get(part, None) if isinstance(config, dict) else None  # type: ignore[assignment]
    return config


def expect_none(config: Dict[str, Any], keys: Dict[str, str]) -> None:
    """Refuse keys, each with what to do instead."""
    for key, instead in keys.items():
        if get(config, key) is not None:
            raise PatrickStarError("EINVAL", "%s in the configuration: %s" % (key, instead))


def check_no_auto(config: Dict[str, Any], prefix: str = "") -> None:
    """Nothing that the program decides is left as "auto": memory's "auto" is a value of its own."""
    for key, value in _leaves(config, prefix):
        if value == "auto" and key.split(".")[0] in ("optimizer", "bf16", "fp16", "gradient_accumulation_steps",
                                                     "gradient_clipping", "train_batch_size",
                                                     "train_micro_batch_size_per_gpu"):
            raise PatrickStarError("EINVAL", "%s is \"auto\", and the program does not say what it is: give a value"
                                   % key)


def _leaves(config: Dict[str, Any], prefix: str) -> Iterator[Tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _leaves(value, prefix + key + ".")
        else:
            yield prefix + key, value


def _section_of(config: Dict[str, Any], key: str) -> Tuple[Dict[str, Any], str]:
    *sections, last = key.split(".")
    for name in sections:
        config = config.setdefault(name, {})
        if not isinstance(config, dict):
            raise PatrickStarError("EINVAL", "%s in the configuration is %r; it must be a section" % (name, config))
    return config, last


def is_same(one: Any, other: Any) -> bool:
    """Numbers within rounding, lists and tuples by their items."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(is_same(a, b) for a, b in zip(one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return abs(one - other) <= 1e-9 * max(abs(one), abs(other))
    return bool(one == other)
