"""A checkpoint for torch.distributed.checkpoint: python -m patrickstar.to_dcp FOLDER OUTPUT

FOLDER has checkpoints of model.save_checkpoint, train.save_interval or `pstar train`: the newest one is used, that
of --tag, or the one that the folder is. OUTPUT, a new folder, has

    model           parameters, fp32, and buffers, by the names of the module's state_dict
    optim           states and param_groups by parameters' names, as get_optimizer_state_dict of
                    torch.distributed.checkpoint.state_dict returns them
    client_state    data of the program, of rank 0

which torch.distributed.checkpoint.load reads into a model of any number of ranks. It is streamed: memory for a piece of
a tensor, whatever the model's size. It needs PyTorch 2.3 or later.
"""
import argparse
import contextlib
import errno
import fcntl
import fnmatch
import os
import shutil
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ._library import PatrickStarError, Refused, find_checkpoint, format_bytes

# For transformers' models: an additional name in state_dict, which `pstar train` ties, and the suffix of its tensor.
_TIED = (("lm_head.weight", "wte.weight"), ("lm_head.weight", "embed_tokens.weight"),
         ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
         ("cls.predictions.decoder.bias", "cls.predictions.bias"))


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m patrickstar.to_dcp", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", help="checkpoints, or one of them")
    parser.add_argument("output", metavar="OUTPUT", help="folder to write; it must be empty or missing")
    parser.add_argument("-t", "--tag", help="name of a checkpoint in FOLDER (default: the newest)")
    a = parser.parse_args(arguments)
    try:
        print(convert(a.folder, a.output, a.tag))
    except (OSError, RuntimeError) as error:
        print("to_dcp: %s" % error, file=sys.stderr)
        return 2
    return 0


def convert(folder: str, output: str, tag: Optional[str] = None) -> str:
    """Lines that describe the result."""
    _check_torch()
    from . import _dcp  # importing PyTorch takes a while
    from ._checkpoint_files import CheckpointFiles
    output = os.path.realpath(output)
    _check_output(output)
    files = CheckpointFiles(_find(folder, tag))
    state_dict, said = _describe(files)
    with _new_folder(output) as unfinished:
        _check_room(state_dict, output)
        try:
            _dcp.write(state_dict, unfinished)
        except OSError as error:
            raise PatrickStarError("EIO", "%s: cannot be written: %s; nothing of it is left. Free some room, or name "
                                   "another OUTPUT" % (output, error.strerror)) from None
        except ValueError as error:  # raised by flattening
            raise Refused("%s: torch.distributed.checkpoint names values by their keys with dots between them, and two "
                          "of client_state would have one name: %s" % (files.folder, error)) from None
    return "from %s\n%s: %s" % (files.folder, output, said)


def _check_torch() -> None:
    import torch
    from ._torch import VERSION
    if VERSION < (2, 3) or not torch.distributed.is_available():
        raise Refused("PyTorch %s%s is installed, and torch.distributed.checkpoint of 2.3 or later is needed: run this "
                      "by a Python that has it; the checkpoint may be of any version"
                      % (torch.__version__, "" if VERSION < (2, 3) else " without torch.distributed"))


def _find(folder: str, tag: Optional[str]) -> str:
    """As `pstar export`: also the newest of a run's output folder."""
    places = [os.path.join(folder, tag)] if tag is not None else [folder, os.path.join(folder, "checkpoints")]
    for place in places:
        found = find_checkpoint(place) if os.path.isdir(place) else None
        if found is not None:
            return found
    there = sorted(name for name in (os.listdir(folder) if os.path.isdir(folder) else [])
                   if os.path.exists(os.path.join(folder, name, "state.json")))
    raise Refused("%s: no checkpoint there; expected the folder that model.save_checkpoint(FOLDER) or `pstar train` "
                  "has saved to, or a checkpoint's own%s"
                  % (places[0], "; %s has %s (--tag)" % (folder, ", ".join(there)) if there else ""))


# ---- content --------------------------------------------------------------------------------------------------

def _describe(files: Any) -> Tuple[Dict[str, Any], str]:
    """The state_dict, with placeholders for large tensors, and a line about it."""
    import torch
    from ._dcp import promise
    from ._torch import load_plain
    path = files.find_extra()
    extra = load_plain(path) if path is not None else {}
    engine = extra.get("engine", {})
    buffers = engine.get("buffers", {})
    names = engine.get("state_dict") or {name: name for name in [*files.values, *buffers]}
    model: Dict[str, Any] = {name: promise(files.values[stored]) if stored in files.values else buffers[stored]
                             for name, stored in names.items()}
    model.update((name + "._extra_state" if name else "_extra_state", value)
                 for name, value in engine.get("module_extra_state", {}).items())
    config = files.state.get("config")
    if config is not None:
        model.update((name, promise(files.values[stored])) for name, stored in _tied(config, list(files.values)))
    state_dict: Dict[str, Any] = {"model": model}
    optimizer = engine.get("optimizer") or (_optimizer_of_pstar(files, config) if config is not None else None)
    if optimizer is not None:
        state_dict["optim"] = {"state": _states(files), "param_groups": [
            _as_torch(optimizer["type"], group) for group in optimizer["param_groups"]]}
    client_state = extra.get("client_state") or files.state.get("caller")
    if client_state:
        state_dict["client_state"] = client_state
    n_bytes = sum(tensor.numel() * tensor.element_size() for tensor in _tensors(state_dict))
    return state_dict, "%d tensors of the model, %s, %s" % (
        sum(isinstance(value, torch.Tensor) for value in model.values()),
        "states of %d parameters (%s)" % (len(state_dict["optim"]["state"]), optimizer["type"])
        if optimizer is not None else "without an optimizer, of which the checkpoint has no groups",
        format_bytes(n_bytes))


def _states(files: Any) -> Dict[str, Dict[str, Any]]:
    import torch
    from ._dcp import promise
    from .runtime.optimizer import is_counted
    module = files.state.get("module")
    steps = module["tensor_steps"] if module is not None else {}
    states: Dict[str, Dict[str, Any]] = {}
    for stored, tensor in files.states.items():
        name, _, key = stored.rpartition(".")
        states.setdefault(name, {})[key] = promise(tensor)
    for name, values in states.items():
        if is_counted(values):
            values["step"] = torch.tensor(float(steps.get(name, files.state["optimizer_steps"])))
    return states


def _as_torch(kind: str, group: Dict[str, Any]) -> Dict[str, Any]:
    """The group with all keys of this PyTorch's class, if it has one."""
    import torch
    if not hasattr(torch.optim, kind) or kind == "Muon":  # its groups are those of two optimizers
        return group
    numbers = {key: value for key, value in group.items() if key != "params"}
    made = getattr(torch.optim, kind)([torch.zeros(1)], **numbers).param_groups[0]
    return {**made, "params": group["params"]}


def _tied(config: Dict[str, Any], names: List[str]) -> Iterator[Tuple[str, str]]:
    model = config["model"]
    if model["head"] not in ("causal_lm", "masked_lm") or not model["tie_word_embeddings"]:
        return
    for name, end in _TIED:
        stored = next((stored for stored in names if stored == end or stored.endswith("." + end)), None)
        if stored is not None and name not in names and name.startswith("lm_") == (model["head"] == "causal_lm"):
            yield name, stored


def _optimizer_of_pstar(files: Any, config: Dict[str, Any]) -> Dict[str, Any]:
    """Groups of `pstar train`, as in its configuration; a group that excludes biases and norms from weight decay
    becomes two of PyTorch's."""
    from .runtime.optimizer import PARAMS_OF
    options = config["optimizer"]
    keys = ["lr", "weight_decay", *PARAMS_OF[options["type"]]]
    given = [{}, *(options.get("param_groups") or [])]
    members: List[List[str]] = [[] for _ in given]
    for name in files.values:
        members[next((i for i, group in enumerate(given) if i > 0 and _has(group, name)), 0)].append(name)
    scale = files.state["lr_schedule"]["learning_rate"] / (options["params"]["lr"] or 1)
    groups = []
    for group, names in zip(given, members):
        numbers = {key: group.get(key, options["params"][key]) for key in keys}
        numbers["lr"] *= scale
        if "betas" in numbers:
            numbers["betas"] = tuple(numbers["betas"])
        plain = [name for name in names if "weight_decay" not in group and numbers["weight_decay"] != 0
                 and (len(files.values[name].shape) < 2 or name.rpartition(".")[2] == "bias")]
        groups.append({**numbers, "params": [name for name in names if name not in plain]})
        groups.append({**numbers, "weight_decay": 0.0, "params": plain})
    return {"type": options["type"], "param_groups": [group for group in groups if group["params"]]}


def _has(group: Dict[str, Any], name: str) -> bool:
    patterns = group["params"]
    patterns = patterns.split(",") if isinstance(patterns, str) else patterns
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _tensors(value: Any) -> Iterator[Any]:
    import torch
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


# ---- output ------------------------------------------------------------------------------------------------

def _check_output(output: str) -> None:
    if os.path.isdir(output) and os.listdir(output):
        raise Refused("%s is there and not empty; name a new folder for OUTPUT" % output)
    if os.path.lexists(output) and not os.path.isdir(output):
        raise Refused("%s is there and no folder; name a new folder for OUTPUT" % output)
    if os.path.ismount(output):
        raise Refused("%s is where a file system is mounted, so that no complete folder could take its place; name a "
                      "new folder in it for OUTPUT" % output)


def _check_room(state_dict: Dict[str, Any], output: str) -> None:
    needed = sum(tensor.numel() * tensor.element_size() for tensor in _tensors(state_dict))
    free = shutil.disk_usage(os.path.dirname(output)).free
    if needed > free:
        raise PatrickStarError("EIO", "%s takes %s, and its file system has %s left; free some, or name an "
                               "OUTPUT elsewhere" % (output, format_bytes(needed), format_bytes(free)))


@contextlib.contextmanager
def _new_folder(output: str) -> Iterator[str]:
    """A folder next to it that becomes `output` when everything is written, and is removed on failure. Folders left by
    killed runs are removed."""
    unfinished = output + ".tmp-to_dcp"
    os.makedirs(unfinished, exist_ok=True)
    folder = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno == errno.EWOULDBLOCK:
                raise Refused("%s is being written by another process; wait for its end, or name another OUTPUT"
                              % output) from None
        try:
            _empty(unfinished)
            yield unfinished
            os.fsync(folder)
            os.rename(unfinished, output)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    finally:
        os.close(folder)


def _empty(folder: str) -> None:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.remove(entry.path)


if __name__ == "__main__":
    sys.exit(main())
