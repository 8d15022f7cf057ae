"""The shared library: finds it, declares its functions, and turns its failures into exceptions.

It is searched for in this order: the file that the environment variable PATRICKSTAR_LIBRARY names; lib/ of this package
(as in a wheel); build/ of the source tree with this package; the system's libraries. Its version must be one that the
declarations below fit. Its log goes to logging.getLogger("patrickstar")."""
import atexit
import ctypes
import ctypes.util
import glob
import json
import logging
import os
import re
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Dict, List, Optional, Tuple

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_VERSION = (0, 2)  # PS_VERSION_MAJOR, PS_VERSION_MINOR of the headers that are declared here


class PatrickStarError(RuntimeError):
    """What the library refused or failed in: `status` is the name of its ps_status, the text its last error."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status

    def __reduce__(self):
        return type(self), (self.status, self.args[0])


class BudgetError(PatrickStarError):
    """The memory budgets are too small; the text has budgets to try."""


class Refused(PatrickStarError):
    """Something that this package does not support, by name and with an alternative."""

    def __init__(self, text: str) -> None:
        super().__init__("ENOSYS", text)

    def __reduce__(self):
        return type(self), (self.args[0],)


for _kind in (PatrickStarError, BudgetError, Refused):
    _kind.__module__ = "patrickstar"  # where programs find them


def format_bytes(n_bytes: float) -> str:
    """As messages of the library print it: 12.3 MB."""
    return library.ps_bytes_format(int(n_bytes), ctypes.create_string_buffer(_BYTES_TEXT_MAX)).decode()


_BYTES_TEXT_MAX = 24  # PS_BYTES_TEXT_MAX
_DTYPE_NAMES = {0: "fp32", 1: "bf16", 2: "fp16"}


class _Sized(ctypes.Structure):
    """A structure of the library's: begins with its size (patrickstar.h, versions)."""

    def __init__(self, **members) -> None:
        super().__init__(**members)
        self.struct_size = ctypes.sizeof(self)

    def __repr__(self) -> str:
        """All members; sizes as people read them, and a line each where one line does not hold all."""
        members = ["%s=%s" % (name, self._describe(name)) for name, _ in self._fields_ if name != "struct_size"]
        text = ", ".join(members)
        if len(text) > 100:
            text = "\n    " + ",\n    ".join(members)
        return "%s(%s)" % (type(self).__name__, text)

    def _describe(self, name: str) -> str:
        value = getattr(self, name)
        if name == "dtype":
            return _DTYPE_NAMES.get(value, str(value))
        if name.startswith("is_"):
            return str(bool(value))
        if name == "shape":
            return str(tuple(value[i] for i in range(self.n_dims)))
        if not name.endswith("bytes"):
            return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else repr(value)
        if isinstance(value, list):
            return "[%s]" % ", ".join(format_bytes(n) for n in value)
        return format_bytes(value)


class ClientTensor(_Sized):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("shape", POINTER(c_int64)), ("n_dims", c_int32),
                ("dtype", c_int), ("is_frozen", c_int32), ("is_unmanaged", c_int32)]


class ClientGroup(_Sized):
    _fields_ = [("struct_size", c_size_t), ("lr", c_double), ("weight_decay", c_double), ("beta1", c_double),
                ("beta2", c_double), ("eps", c_double)]


class ClientStepInfo(_Sized):
    _fields_ = [("struct_size", c_size_t), ("step", c_int64), ("is_skipped", c_int32), ("grad_norm", c_double),
                ("loss_scale", c_double), ("is_recorded", c_int32), ("n_restored", c_int64), ("n_separate", c_int64),
                ("n_deferred", c_int64), ("n_gathered", c_int64), ("n_gathered_ahead", c_int64),
                ("n_early", c_int64), ("n_speculated", c_int64), ("n_taken_back", c_int64)]


class ClientCheckpoint(_Sized):
    _fields_ = [("struct_size", c_size_t), ("tag", c_char_p), ("keep_last", c_int64), ("config_json", c_char_p),
                ("caller_json", c_char_p), ("extra", c_char_p), ("extra_bytes", c_int64)]


class ClientLoaded(_Sized):
    _fields_ = [("struct_size", c_size_t), ("step", c_int64), ("n_ranks", c_int32), ("path", c_void_p),
                ("caller_json", c_void_p), ("extra_path", c_void_p)]


class CheckpointInfo(_Sized):
    _fields_ = [("struct_size", c_size_t), ("step", c_int64), ("bytes", c_int64), ("seconds", c_double),
                ("stall_seconds", c_double), ("name", ctypes.c_char * 32)]


class ClientTensorInfo(_Sized):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("shape", POINTER(c_int64)), ("n_dims", c_int32),
                ("is_dropped", c_int32), ("is_frozen", c_int32), ("is_unmanaged", c_int32), ("elements", c_int64),
                ("group", c_int32), ("owner", c_int32), ("chunk", c_int32), ("steps", c_int64), ("states", c_int64)]


class _ClientInfo(_Sized):
    _fields_ = [("struct_size", c_size_t), ("dtype", c_int), ("gpu", c_int32),
                ("rank", c_int32), ("n_ranks", c_int32), ("n_chunks", c_int32), ("chunk_elements", c_int64),
                ("parameters", c_int64), ("model_data_bytes", c_int64), ("budget_bytes", c_int64 * 3),
                ("used_bytes", c_int64 * 3), ("peak_bytes", c_int64 * 3), ("framework_bytes", c_int64),
                ("framework_peak_bytes", c_int64), ("moved_bytes", c_int64 * 4), ("sent_bytes", c_int64),
                ("wait_ns", c_int64), ("n_steps", c_int64), ("n_recorded_steps", c_int64), ("n_moments", c_int64),
                ("why_not_gpu", c_char_p)]


def _list_of(array: Any) -> property:
    """An array of a structure, read as a list."""
    return property(lambda info: list(array.__get__(info)))


class ClientInfo(_ClientInfo):
    """Numbers by tier, and of moves between tiers, are lists."""
    budget_bytes, used_bytes = _list_of(_ClientInfo.budget_bytes), _list_of(_ClientInfo.used_bytes)
    peak_bytes, moved_bytes = _list_of(_ClientInfo.peak_bytes), _list_of(_ClientInfo.moved_bytes)


class MemoryUse(_Sized):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("device_bytes", c_int64), ("host_bytes", c_int64),
                ("disk_bytes", c_int64)]


_BYTES = POINTER(c_int64)
ALL_TO_ALL = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, _BYTES, c_void_p, _BYTES, c_void_p)
CLOSE = ctypes.CFUNCTYPE(None, c_void_p, c_int32)
MESSAGE_ERROR_BYTES = 256


class ProcessGroup(_Sized):
    _fields_ = [("struct_size", c_size_t), ("user", c_void_p), ("rank", c_int32), ("size", c_int32), ("name", c_char_p),
                ("trouble", c_char_p), ("all_to_all", ALL_TO_ALL), ("close", CLOSE)]


# Enumerations of patrickstar.h and patrickstar_client.h.
DTYPE_F32, DTYPE_BF16, DTYPE_F16 = range(3)
PARAM, MASTER, GRADIENT = range(3)
READ, WRITE = range(2)
FORWARD, BACKWARD, OUTSIDE_STEP = range(3)
MEASURE = -1

_client, _config, _comm = c_void_p, c_void_p, c_void_p
_text = c_char_p
_LogFunction = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)
_StallFunction = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)

# name: (result, arguments); c_int as a result is a ps_status.
_FUNCTIONS = {
    "ps_version": (_text, (POINTER(c_int), POINTER(c_int), POINTER(c_int))),
    "ps_status_name": (_text, (c_int,)),
    "ps_last_error": (_text, ()),
    "ps_free": (None, (c_void_p,)),
    "ps_bytes_format": (_text, (c_int64, _text)),
    "ps_get_available_memory": (c_int, (POINTER(c_int64),)),
    "ps_set_log": (None, (_LogFunction, c_void_p)),
    "ps_set_stall": (None, (_StallFunction, c_void_p)),
    "ps_config_parse": (c_int, (_text, _text, POINTER(_config))),
    "ps_config_load": (c_int, (_text, POINTER(_config))),
    "ps_config_get_int": (c_int, (_config, _text, POINTER(c_int64))),
    "ps_config_get_double": (c_int, (_config, _text, POINTER(c_double))),
    "ps_config_set": (c_int, (_config, _text, _text)),
    "ps_config_get_string": (c_int, (_config, _text, POINTER(_text))),
    "ps_config_help": (c_int, (POINTER(c_void_p),)),
    "ps_config_help_of": (c_int, (_text, POINTER(c_void_p))),
    "ps_config_dump_json": (c_int, (_config, POINTER(c_void_p))),
    "ps_config_destroy": (None, (_config,)),
    "ps_client_create": (c_int, (_config, c_void_p, POINTER(_client))),
    "ps_client_destroy": (None, (_client,)),
    "ps_client_add": (c_int, (_client, POINTER(ClientTensor), POINTER(c_int32), POINTER(c_void_p))),
    "ps_client_release": (None, (_client, c_int32)),
    "ps_client_drop": (c_int, (_client, c_int32)),
    "ps_client_name": (c_int, (_client, c_int32, _text, c_int32)),
    "ps_client_expect": (c_int, (_client, c_int64, c_int64)),
    "ps_client_use_stream": (c_int, (_client, c_void_p)),
    "ps_client_begin": (c_int, (_client,)),
    "ps_client_export_dlpack": (c_int, (_client, c_int32, c_int, c_int, POINTER(c_void_p))),
    "ps_client_get_pin_counts": (POINTER(c_int32), (_client,)),
    "ps_client_moment": (c_int, (_client, c_int, _text, c_int64)),
    "ps_client_give_gradient": (c_int, (_client, c_int32, c_void_p, c_int, c_int32)),
    "ps_client_has_gradient": (c_int32, (_client, c_int32)),
    "ps_client_begin_last_backward": (c_int, (_client,)),
    "ps_client_drop_gradients": (c_int, (_client, c_int32)),
    "ps_client_get_group_count": (c_int32, (_client,)),
    "ps_client_get_group": (c_int, (_client, c_int32, POINTER(ClientGroup))),
    "ps_client_set_group": (c_int, (_client, c_int32, POINTER(ClientGroup))),
    "ps_client_join_group": (c_int, (_client, c_int32, c_int32)),
    "ps_client_set_gradient_clipping": (c_int, (_client, c_double)),
    "ps_client_get_loss_scale": (c_double, (_client,)),
    "ps_client_step": (c_int, (_client, POINTER(ClientStepInfo))),
    "ps_client_get_tensor_count": (c_int32, (_client,)),
    "ps_client_get_tensor_info": (c_int, (_client, c_int32, POINTER(ClientTensorInfo))),
    "ps_client_get_state_name": (_text, (_client, c_int32)),
    "ps_client_read_state": (c_int, (_client, c_int32, _text, c_int64, c_int64, c_void_p)),
    "ps_client_write_state": (c_int, (_client, c_int32, _text, c_int64, c_int64, c_void_p)),
    "ps_client_set_update_count": (c_int, (_client, c_int32, c_int64)),
    "ps_client_get_update_count": (c_int64, (_client, c_int32)),
    "ps_client_get_scaler": (c_int, (_client, POINTER(c_void_p))),
    "ps_client_set_scaler": (c_int, (_client, _text)),
    "ps_client_begin_checkpoint": (c_int, (_client, _text, POINTER(ClientCheckpoint))),
    "ps_client_checkpoint_is_done": (c_int, (_client,)),
    "ps_client_finish_checkpoint": (c_int, (_client, POINTER(CheckpointInfo))),
    "ps_client_load_checkpoint": (c_int, (_client, _text, POINTER(ClientLoaded))),
    "ps_checkpoint_find": (c_int, (_text, POINTER(c_void_p), POINTER(c_int32))),
    "ps_checkpoint_check": (c_int, (_text,)),
    "ps_client_get_info": (c_int, (_client, POINTER(ClientInfo))),
    "ps_client_get_memory_use": (c_int, (_client, c_int, POINTER(MemoryUse))),
    "ps_client_start_profile": (c_int, (_client,)),
    "ps_client_stop_profile": (c_int, (_client,)),
    "ps_client_save_profile": (c_int, (_client, _text)),
    "ps_comm_init": (c_int, (_config, POINTER(_comm))),
    "ps_comm_init_process_group": (c_int, (_config, POINTER(ProcessGroup), POINTER(_comm))),
    "ps_comm_close": (None, (_comm,)),
    "ps_comm_rank": (c_int32, (_comm,)),
    "ps_comm_size": (c_int32, (_comm,)),
    "ps_comm_local_rank": (c_int32, (_comm,)),
    "ps_comm_describe": (_text, (_comm,)),
    "ps_comm_fail": (None, (_comm, _text)),
    "ps_comm_all_gather": (c_int, (_comm, c_void_p, c_int64, c_void_p)),
}


# Options are listed by the package's own command.
_LISTS = "; `patrickstar --help-config` lists the keys"
# What a program calls, where messages of the library name its functions.
_CALLS = {
    "ps_client_create": "initialize_engine",
    "ps_client_add": "initialize_engine",
    "ps_client_release": "initialize_engine",
    "ps_client_drop": "initialize_engine",
    "ps_client_name": "initialize_engine",
    "ps_client_expect": "initialize_engine",
    "ps_client_use_stream": "initialize_engine",
    "ps_client_begin": "initialize_engine",
    "ps_client_destroy": "model.close()",
    "ps_client_export_dlpack": "using a parameter",
    "ps_client_pin": "using a parameter",
    "ps_client_moment": "running a module",
    "ps_client_give_gradient": "model.backward()",
    "ps_client_has_gradient": "param.grad",
    "ps_client_drop_gradients": "zero_grad()",
    "ps_client_begin_last_backward": "model.backward()",
    "ps_client_step": "optimizer.step()",
    "ps_client_get_loss_scale": "model.backward()",
    "ps_client_get_group_count": "optimizer.param_groups",
    "ps_client_get_group": "optimizer.param_groups",
    "ps_client_set_group": "optimizer.param_groups",
    "ps_client_join_group": "optimizer.param_groups",
    "ps_client_set_gradient_clipping": "optimizer.clip_grad_norm_()",
    "ps_client_get_pin_counts": "using a parameter",
    "ps_client_read_state": "model.state_dict()",
    "ps_client_write_state": "param.data.copy_()",
    "ps_client_get_state_name": "optimizer.state_dict()",
    "ps_client_get_update_count": "optimizer.state_dict()",
    "ps_client_set_update_count": "optimizer.load_state_dict()",
    "ps_client_get_scaler": "optimizer.state_dict()",
    "ps_client_set_scaler": "optimizer.load_state_dict()",
    "ps_client_get_tensor_count": "model.client.get_tensor_count()",
    "ps_client_get_tensor_info": "model.client.get_tensor_info()",
    "ps_client_begin_checkpoint": "model.save_checkpoint()",
    "ps_client_checkpoint_is_done": "model.save_checkpoint()",
    "ps_client_finish_checkpoint": "the end of model.save_checkpoint()",
    "ps_client_load_checkpoint": "model.load_checkpoint()",
    "ps_client_get_info": "model.client.get_info()",
    "ps_client_get_memory_use": "model.client.get_memory_use()",
    "ps_client_start_profile": "profiler.start()",
    "ps_client_stop_profile": "profiler.end()",
    "ps_client_save_profile": "profiler.save()",
}
_NEEDS = ("on Debian 12 `apt-get install libjansson4 libpcre2-8-0 liburing2 libutf8proc2 libxxhash0 libzstd1 zlib1g`; "
          "elsewhere jansson, pcre2, liburing, utf8proc, xxhash, zlib and zstd")


def _find() -> str:
    given = os.environ.get("PATRICKSTAR_LIBRARY")
    if given:
        return given
    for folder in (os.path.join(_PACKAGE, "lib"), os.path.join(_PACKAGE, "..", "..", "build")):
        path = os.path.join(folder, "libpatrickstar.so")
        if os.path.exists(path):
            return os.path.realpath(path)
    return ctypes.util.find_library("patrickstar") or "libpatrickstar.so.0.2"


def _load(path: str) -> ctypes.CDLL:
    try:
        loaded = ctypes.CDLL(path)
    except OSError as error:
        if os.path.exists(path):
            raise ImportError("%s cannot be loaded: %s. The libraries that it needs are the system's: %s"
                              % (path, error, _NEEDS)) from None
        raise ImportError("%s: the library of PatrickStar cannot be loaded; install it (make install), or name its "
                          "file in the environment variable PATRICKSTAR_LIBRARY" % error) from None
    for name, (result, arguments) in _FUNCTIONS.items():
        try:
            function = getattr(loaded, name)
        except AttributeError:
            raise ImportError("%s has no %s: this package needs a library of version %d.%d or later"
                              % (path, name, *_VERSION)) from None
        function.restype, function.argtypes = result, arguments
    major, minor = c_int(), c_int()
    text = loaded.ps_version(byref(major), byref(minor), None)
    if (major.value, minor.value) != _VERSION:
        raise ImportError("%s is version %s, this package is for %d.%d" % (path, text.decode(), *_VERSION))
    return loaded


def _in_python(text: bytes) -> str:
    """A message with the names that a program of Python's knows."""
    message = re.sub(r"\bps_client_[a-z_]+\b", lambda found: _CALLS.get(found[0], found[0]),
                     text.decode("utf-8", "replace")).replace("; --help-config lists the keys", _LISTS)
    return describe_keys(message)


# ---- configurations that are dictionaries: the library names places of a text, messages the keys

_keys: Dict[int, List[str]] = {}  # by the first line of a configuration's text: of each line; no two share lines


def new_config_text(given: Dict[str, Any]) -> Tuple[int, bytes]:
    """Its first line, and the text of a configuration, with a line for each key; forget_config drops it."""
    keys: List[str] = ["config"]  # of the first line

    def write(value: Any, path: str) -> str:
        if not isinstance(value, (dict, list)) or not value:
            return json.dumps(value)
        is_dict = isinstance(value, dict)
        parts = []
        for key in value if is_dict else range(len(value)):
            keys.append("%s[%s]" % (path, json.dumps(key, ensure_ascii=False)))
            parts.append("\n%s%s" % (json.dumps(key) + ": " if is_dict else "", write(value[key], keys[-1])))
        return ("{%s}" if is_dict else "[%s]") % ",".join(parts)

    text = write(json.loads(json.dumps(given)), "config")
    first = max((line + len(keys_of_it) for line, keys_of_it in _keys.items()), default=1)
    _keys[first] = keys
    return first, ("\n" * (first - 1) + text).encode()


def forget_config(first: int) -> None:
    _keys.pop(first, None)


def describe_keys(message: str) -> str:
    """config["memory"]["device"]: ... in place of config:LINE:COLUMN: ... of a dictionary's text."""
    def key_of(line: int) -> str:
        first = max((first for first in _keys if first <= line), default=line)
        keys = _keys.get(first, [])
        return keys[line - first] if line - first < len(keys) else "config"

    changed = re.sub(r"\bconfig:(\d+):\d+", lambda at: key_of(int(at[1])), message)
    if changed == message:
        return message
    return re.sub(r"\bwhich line (\d+) gives", lambda at: "which %s gives" % key_of(int(at[1])), changed)


# ---- the log, and stalls

EXIT_STALLED = 4  # nothing went on for train.stall_s


@_LogFunction
def _log(_user: None, level: int, line: bytes) -> None:
    logging.getLogger("patrickstar").log(logging.WARNING if level else logging.INFO, "%s", _in_python(line))


@_StallFunction
def _end_stalled(_user: None, text: bytes) -> None:
    """The call that hangs cannot raise: the process ends, with the status of `pstar`, and without exit handlers, which
    could hang, too."""
    os.write(2, b"patrickstar: " + text + b"\n")
    os._exit(EXIT_STALLED)


_path = _find()
library = _load(_path)  # CDLL: other threads of Python run while the library works
version: str = library.ps_version(None, None, None).decode()
library.ps_set_log(_log, None)
library.ps_set_stall(_end_stalled, None)
atexit.register(library.ps_set_log, _LogFunction(), None)  # before the interpreter ends
atexit.register(library.ps_set_stall, _StallFunction(), None)


def path() -> str:
    """The file that the library was loaded from."""
    return _path


raised: List[PatrickStarError] = []  # [at most 1] the last one raised by `check`


def check(status: int, what: Optional[str] = None) -> None:
    """Raise PatrickStarError, or BudgetError, unless status is PS_OK."""
    if status != 0:
        text = _in_python(library.ps_last_error())
        name = library.ps_status_name(status).decode()
        kind = BudgetError if name == "EBUDGET" else PatrickStarError
        raised[:] = [kind(name, "%s: %s" % (what, text) if what else text)]
        raise raised[0]


def take_text(text: c_void_p) -> Optional[str]:
    """A text of the library that its caller frees; None for NULL."""
    if not text:
        return None
    try:
        return ctypes.string_at(text).decode("utf-8", "surrogateescape")
    finally:
        library.ps_free(text)


def find_checkpoint(folder: str) -> Optional[str]:
    """The newest checkpoint in a folder, or the folder itself if it is one; None: none."""
    if os.path.exists(os.path.join(folder, "state.json")):
        return folder
    if glob.glob(os.path.join(glob.escape(folder), "model-*-of-*.safetensors")):
        raise PatrickStarError("EFORMAT", "%s: files of a checkpoint, but no state.json next to them" % folder)
    path = c_void_p()
    check(library.ps_checkpoint_find(os.fsencode(folder), byref(path), None))
    return take_text(path)


def get_available_memory() -> int:
    """Bytes that this process may still allocate."""
    n_bytes = c_int64()
    check(library.ps_get_available_memory(byref(n_bytes)))
    return n_bytes.value
