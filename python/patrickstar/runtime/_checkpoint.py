"""Checkpoints of an engine: those of the library, and state of PyTorch in addition: buffers, random generators, and
data of the program. The latter are in one file a rank, which torch.load(weights_only=True) reads."""
import atexit
import contextlib
import io
import json
import logging
import os
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.nn as nn

from .. import _cuda
from .._front import Front
from .._library import PatrickStarError, find_checkpoint
from .._ranks import report_failure_to_ranks
from .._state import names_of
from .._torch import load_plain
from .._weights import config_of


class Checkpoints:
    """The checkpoints of one engine. Several ranks: all call."""

    def __init__(self, module: nn.Module, front: Front, config: Any, ranks: Any) -> None:
        self._module, self._front, self._client, self._ranks = module, front, front.client, ranks
        self._interval = config.get_int("train.save_interval")
        self._keep_last = config.get_int("train.keep_last")
        self._folder = os.path.join(config.get_string("train.output_dir"), "checkpoints")
        self._client_state: Callable[[], Optional[Dict[str, Any]]] = dict
        self._is_saving = False
        self._due: Optional[Dict[str, Any]] = None  # state of generators after the step that is to be saved
        self._hooks: List[Any] = []  # hooks that begin it
        self._step = 0  # the step that is being saved
        self._knows_folder = False  # the folder has been checked for checkpoints of another run
        self.optimizer: Any = None  # weak reference

    # ---- at any time

    def save(self, folder: str, tag: Optional[str], client_state: Optional[Dict[str, Any]]) -> str:
        self.finish()
        self._begin(folder, None if tag is None else str(tag), 0, lambda: client_state,
                    _generators(self._client.device))
        return os.path.join(folder, self._client.finish_checkpoint())

    def load(self, folder: str, tag: Optional[str]) -> Tuple[Optional[str], Dict[str, Any]]:
        self.finish()
        path = self._find(folder) if tag is None else self._find_tagged(folder, str(tag))
        if path is None:
            logging.getLogger("patrickstar").warning(
                "load_checkpoint: %s has no checkpoint: training begins with the present values", folder)
            return None, {}
        self._front.copy_exported_gradients()
        found = self._client.load_checkpoint(path)
        for slot in self._front.slots:
            self._front.note_written(slot)
        self._knows_folder = self._knows_folder or _is_same(os.path.dirname(found.path), self._folder)
        client_state = self._restore(found.extra_path, found.n_ranks == self._ranks.size)
        optimizer = self.get_optimizer()
        if optimizer is not None:
            optimizer.note_loaded()
        return found.path, client_state

    def _find_tagged(self, folder: str, tag: str) -> str:
        self._ranks.agree(_tag_error(folder, tag), "load_checkpoint")
        return os.path.join(folder, tag)

    def _find(self, folder: str) -> Optional[str]:
        """Checks that it is the same on all ranks."""
        failure, path = None, None
        try:
            path = find_checkpoint(folder)
        except PatrickStarError as error:
            failure = error
        if path is None and failure is None:
            failure = _folder_error(folder)
        self._ranks.agree(failure, "load_checkpoint")
        if self._ranks.size > 1:
            names = self._ranks.gather(os.path.basename(path) if path is not None else "none")
            if len(set(names)) > 1:
                raise PatrickStarError("EIO", "load_checkpoint: ranks have found different checkpoints in %s: %s; they "
                                       "need one file system" % (folder, ", ".join(names)))
        return path

    # ---- by the configuration: train.save_interval

    def take_client_state_from(self, function: Callable[[], Optional[Dict[str, Any]]]) -> None:
        self._client_state = function

    def before_step(self) -> None:
        """Refuse a folder where the run would replace checkpoints of another one."""
        if self._interval == 0 or self._knows_folder:
            return
        found = find_checkpoint(self._folder)
        if found is not None:
            raise PatrickStarError("EINVAL", "%s is a checkpoint of an earlier run, which train.save_interval would "
                                   "replace: continue from it by model.load_checkpoint(%r), or name another "
                                   "train.output_dir" % (found, self._folder))
        self._knows_folder = True

    def after_step(self) -> None:
        """Saves the state of generators now; all else when the next forward pass begins, so that it includes the
        effects of calls after the step, such as scheduler.step()."""
        if self._is_saving and self._client.checkpoint_is_done():
            self.finish()
        if self._interval == 0 or self._client.get_info().n_steps % self._interval != 0:
            return
        self.finish()
        self._due = _generators(self._client.device)
        self._front.before_pass = self._begin_due  # also if a module's forward is called directly, without hooks
        # A module that counts in a buffer may do so before any parameter is used. Functions, as a copy of the module
        # would copy the objects of methods.
        self._hooks = [module.register_forward_pre_hook(lambda *_: self._begin_due())
                       for module in self._module.modules()]
        atexit.register(self._finish_at_exit)

    def _begin_due(self) -> None:
        if self._due is None:
            return
        generators, self._due = self._due, None
        self._front.before_pass = None
        for hook in self._hooks:
            hook.remove()
        self._step = self._client.get_info().n_steps
        try:
            self._begin(self._folder, None, self._keep_last, self._client_state, generators)
        except (PatrickStarError, OSError) as error:
            self._log_failure(error)
            return
        self._is_saving = True

    def get_optimizer(self) -> Any:
        """None after the program has dropped it."""
        return self.optimizer() if self.optimizer is not None else None

    def _finish_at_exit(self) -> None:
        report_failure_to_ranks()
        self.finish()

    def finish(self) -> None:
        """Completes a save of train.save_interval that is due or in progress. A failure is logged, and training
        continues."""
        atexit.unregister(self._finish_at_exit)
        if not self._client.is_open():
            return
        self._begin_due()
        if not self._is_saving:
            return
        self._is_saving = False
        try:
            self._client.finish_checkpoint()
        except PatrickStarError as error:
            self._log_failure(error)

    def _log_failure(self, error: BaseException) -> None:
        logging.getLogger("patrickstar").warning("no checkpoint of step %d: %s", self._step, error)

    # ---- content

    def _begin(self, folder: str, tag: Optional[str], keep_last: int, give: Callable[[], Optional[Dict[str, Any]]],
               generators: Optional[Dict[str, Any]]) -> None:
        self._front.copy_exported_gradients()
        try:
            extra = self._extra(give(), generators)
        except BaseException:
            if self._ranks.size > 1:  # the others make the library's call, and must fail with this rank
                with contextlib.suppress(PatrickStarError):
                    self._client.begin_checkpoint(folder, tag, keep_last, None, None)
            raise
        self._client.begin_checkpoint(folder, tag, keep_last, _config_json(self._module), extra)

    def _extra(self, client_state: Optional[Dict[str, Any]], generators: Optional[Dict[str, Any]]) -> bytes:
        if client_state is not None and not isinstance(client_state, dict):
            raise PatrickStarError("EINVAL", "save_checkpoint: client_state is %s; it must be a dictionary"
                                   % type(client_state).__name__)
        optimizer = self.get_optimizer()
        state = {
            "buffers": dict(self._module.named_buffers()),
            "module_extra_state": {name: module.get_extra_state() for name, module in _with_extra_state(self._module)},
            **(generators or {}),
            "param_groups": optimizer.get_written() if optimizer is not None else None,
            # For to_dcp: which parameter or buffer each name in state_dict is, and the optimizer's groups.
            "state_dict": _names_in_state_dict(self._module),
            "optimizer": optimizer.describe() if optimizer is not None else None,
        }
        return _save({"client_state": client_state or {}, "engine": state})

    @torch.no_grad()
    def _restore(self, path: Optional[str], is_same_world: bool) -> Dict[str, Any]:
        if path is None:
            return {}
        extra = load_plain(path)
        state = extra["engine"]
        buffers = dict(self._module.named_buffers())
        for name, value in state["buffers"].items():
            buffer = buffers.get(name)
            if buffer is None or buffer.shape != value.shape:
                logging.getLogger("patrickstar").warning(
                    "%s: buffer %s of shape %s is %s, and is left as it is", path, name, tuple(value.shape),
                    "none of this model's" if buffer is None else "of shape %s here" % (tuple(buffer.shape),))
            else:
                buffer.copy_(value)
        for name, module in _with_extra_state(self._module):
            if name in state["module_extra_state"]:
                module.set_extra_state(state["module_extra_state"][name])
        if is_same_world:  # otherwise ranks would draw the same numbers
            torch.set_rng_state(state["rng"])
            if state["cuda_rng"] is not None and self._client.device.type == "cuda":
                _cuda.set_generator(state["cuda_rng"], self._client.device)
        optimizer = self.get_optimizer()
        if state["param_groups"] is not None and optimizer is not None:
            optimizer.set_written(state["param_groups"])
        return extra["client_state"]


def _with_extra_state(module: nn.Module) -> List[Tuple[str, nn.Module]]:
    return [(name, part) for name, part in module.named_modules()
            if type(part).get_extra_state is not nn.Module.get_extra_state]


def _names_in_state_dict(module: nn.Module) -> Dict[str, str]:
    names = {name: slot.name for slot, all_names in names_of(module).items() for name in all_names}
    name_of = {id(buffer): name for name, buffer in module.named_buffers()}
    for prefix, part in module.named_modules(remove_duplicate=False):
        for key, buffer in part._buffers.items():
            if buffer is not None and key not in part._non_persistent_buffers_set:
                names[prefix + "." * bool(prefix) + key] = name_of[id(buffer)]
    return names


def _save(extra: Dict[str, Any]) -> bytes:
    for what, part in (("client_state", extra["client_state"]),
                       ("get_extra_state() of a module", extra["engine"]["module_extra_state"])):
        _check_that_it_loads(what, part)
    out = io.BytesIO()
    torch.save(extra, out)
    return out.getvalue()


def _check_that_it_loads(what: str, part: Any) -> None:
    """Refuse it before a checkpoint is written that cannot be read."""
    error = _load_error(part)
    if error is None:
        return
    where, part = "", part
    while isinstance(part, (dict, list, tuple)):  # find the offending element
        items = part.items() if isinstance(part, dict) else enumerate(part)
        inner = next(((key, value) for key, value in items if _load_error(value) is not None), None)
        if inner is None:
            break
        where, part = "%s[%r]" % (where, inner[0]), inner[1]
    raise PatrickStarError("EINVAL", "save_checkpoint: %s%s is %s, which torch.load(weights_only=True) does not read: "
                           "keep Python numbers, texts, tensors, lists and dictionaries (%s)"
                           % (what, where, type(part).__name__, error))


def _load_error(part: Any) -> Optional[Exception]:
    out = io.BytesIO()
    try:
        torch.save(part, out)
        out.seek(0)
        load_plain(out)
    except Exception as error:
        return error
    return None


def _generators(device: torch.device) -> Dict[str, Any]:
    return {"rng": torch.get_rng_state(),
            "cuda_rng": _cuda.get_generator(device) if device.type == "cuda" else None}


def _folder_error(folder: str) -> Optional[PatrickStarError]:
    """An error for a path of another kind. A missing folder, or one without weights, is no error."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    if os.path.isfile(folder):
        return PatrickStarError("EINVAL", "load_checkpoint: %s is a file; give the folder of checkpoints, or of one"
                                % folder)
    if "checkpoints" in names and find_checkpoint(os.path.join(folder, "checkpoints")) is not None:
        return PatrickStarError("EINVAL", "load_checkpoint: %s has no checkpoint, but %s has one: give that folder"
                                % (folder, os.path.join(folder, "checkpoints")))
    if any(name.endswith((".safetensors", ".bin", ".pt", ".safetensors.index.json")) for name in names):
        return PatrickStarError("EINVAL", "load_checkpoint: %s has files of weights, and no checkpoint: they go to "
                                "from_pretrained or model.load_state_dict" % folder)
    tags = _tags_in(folder)
    if tags:
        return PatrickStarError("EINVAL", "load_checkpoint: %s has no file latest, which names the newest of its "
                                "checkpoints: %s; give one of them by tag=" % (folder, ", ".join(tags)))
    return None


def _tags_in(folder: str) -> List[str]:
    return sorted(name for name in (os.listdir(folder) if os.path.isdir(folder) else [])
                  if not name.startswith(".") and os.path.exists(os.path.join(folder, name, "state.json")))


def _tag_error(folder: str, tag: str) -> Optional[PatrickStarError]:
    tags = _tags_in(folder)
    if tag in ("", ".", "..") or os.path.basename(tag) != tag:
        return PatrickStarError("EINVAL", "load_checkpoint: tag=%r: expected the name of a folder in %s"
                                % (tag, folder))
    if tags and not os.path.exists(os.path.join(folder, tag)):
        return PatrickStarError("EINVAL", "load_checkpoint: %s has no checkpoint %s; it has %s"
                                % (folder, tag, ", ".join(tags)))
    return None


def _config_json(module: nn.Module) -> Optional[str]:
    """config.json of a model of transformers."""
    config = config_of(module)
    try:
        return json.dumps(json.loads(config.to_json_string())) if config is not None else None
    except (TypeError, ValueError):
        return None


def _is_same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
