"""A client of the library (patrickstar_client.h) for tensors of PyTorch.

Every method is a call of the same name with converted arguments; include/patrickstar_client.h has the contracts."""
import ctypes
import json
import os
import re
from ctypes import byref, c_char_p, c_double, c_int32, c_int64, c_void_p
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

import torch
from torch.utils.dlpack import from_dlpack

from . import _cuda
from ._library import (DTYPE_BF16, DTYPE_F16, DTYPE_F32, MEASURE, CheckpointInfo, ClientCheckpoint, ClientGroup,
                       ClientInfo, ClientLoaded, ClientStepInfo, ClientTensor, ClientTensorInfo, MemoryUse,
                       PatrickStarError, Refused, check, forget_config, library, new_config_text, take_text)

TORCH_DTYPES = {DTYPE_F32: torch.float32, DTYPE_BF16: torch.bfloat16, DTYPE_F16: torch.float16}
DTYPES = {dtype: number for number, dtype in TORCH_DTYPES.items()}

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
_MADV_REMOVE = 9  # Linux
_SIZE = re.compile(r"\s*\d+(\.\d+)?\s*([kKMGT]i?)?B\s*\Z")
_CAPSULE_NAME = c_char_p(b"dltensor")  # PyCapsule keeps the pointer: it must live as long as this module


class Loaded(NamedTuple):
    """A checkpoint that was loaded."""
    step: int
    n_ranks: int  # ranks that saved it
    path: str
    extra_path: Optional[str]  # of the argument extra of begin_checkpoint


def expect_config_file(path: Union[str, os.PathLike]) -> None:
    """A text that looks like a size is memory, given without its key."""
    text = os.fsdecode(path)
    if _SIZE.match(text) and not os.path.exists(text):
        raise PatrickStarError("EINVAL", "the configuration is %r, and there is no such file: expected a dictionary, or "
                               "the path of a JSON file; memory is given as {\"memory\": %s}" % (text, json.dumps(text)))


class Config:
    """A configuration: a dictionary with DeepSpeed's and PatrickStar's keys (doc/config.md), the path of a JSON file of
    them, or None for the defaults."""

    def __init__(self, given: Union[Dict[str, Any], str, os.PathLike, None]) -> None:
        self.handle = c_void_p()
        self._first_line = 0  # of new_config_text
        if isinstance(given, (str, os.PathLike)):
            expect_config_file(given)
            check(library.ps_config_load(os.fsencode(given), byref(self.handle)))
            return
        if given is not None and not isinstance(given, dict):
            raise PatrickStarError("EINVAL", "config is %s; it must be a dictionary, the path of a JSON file, or None"
                                   % type(given).__name__)
        try:
            self._first_line, text = new_config_text(given or {})
        except (TypeError, ValueError) as error:
            raise PatrickStarError("EINVAL", "config: %s; it must hold JSON values: numbers, texts, true and false, "
                                   "lists and dictionaries" % error) from None
        check(library.ps_config_parse(text, b"config", byref(self.handle)))

    def get_int(self, key: str) -> int:
        out = c_int64()
        check(library.ps_config_get_int(self.handle, key.encode(), byref(out)))
        return out.value

    def get_double(self, key: str) -> float:
        out = c_double()
        check(library.ps_config_get_double(self.handle, key.encode(), byref(out)))
        return out.value

    def set(self, key: str, value: str) -> None:
        check(library.ps_config_set(self.handle, key.encode(), value.encode()))

    def get_string(self, key: str) -> str:
        out = c_char_p()
        check(library.ps_config_get_string(self.handle, key.encode(), byref(out)))
        return out.value.decode()

    def to_dict(self) -> Dict[str, Any]:
        """All options with their current values."""
        return json.loads(_take_text(library.ps_config_dump_json, self.handle))

    def __del__(self) -> None:
        if library is not None:  # None at the end of the interpreter
            library.ps_config_destroy(self.handle)
            forget_config(self._first_line)


class Client:
    """The tensors of one model, by number. comm: a ps_comm, which must outlive the client, or None."""

    def __init__(self, config: Config, comm: Optional[c_void_p] = None) -> None:
        self._handle = c_void_p()
        self._pid = os.getpid()
        self._labels: Dict[str, bytes] = {}
        self._is_single_rank = not comm
        self._is_building, self._has_begun = True, False
        self._after_close: Callable[[], None] = lambda: None
        self._why_not_gpu = self._leave_the_gpu(config)
        self._reserved_ratio = config.get_double("client.mem_tracer.memory_reserved_ratio")
        check(library.ps_client_create(config.handle, comm, byref(self._handle)))

    @staticmethod
    def _leave_the_gpu(config: Config) -> bytes:
        """Where the library finds a GPU, and PyTorch, which computes, cannot use it: the processor computes, and this is
        why. Decided by a client without budgets, as those of the configuration may be more than the GPU has."""
        backend = config.get_string("train.backend")
        if backend == "cpu" or _cuda.count():
            return b""
        found, without_budgets = c_void_p(), Config({"train": {"backend": backend}})
        check(library.ps_client_create(without_budgets.handle, None, byref(found)))
        info = ClientInfo()
        status = library.ps_client_get_info(found, byref(info))
        gpu = info.gpu
        library.ps_client_destroy(found)
        check(status)
        if gpu < 0:
            return b""
        why = "PyTorch %s can use none: %s; install %s" % (torch.__version__, _cuda.why_none(), _cuda.NEEDED)
        if backend == "cuda":
            raise PatrickStarError("ENOSYS", "train.backend = cuda: %s, or set train.backend = cpu" % why)
        config.set("train.backend", "cpu")
        return why.encode()

    def is_open(self) -> bool:
        return bool(self._handle)

    @property
    def handle(self) -> c_void_p:
        if not self._handle:
            raise PatrickStarError("ESTATE", "the engine is closed; state_dict() before close() keeps values")
        return self._handle

    def close(self) -> None:
        """ps_client_destroy; a process that was forked from the one that made the client has nothing to free."""
        handle, self._handle = self._handle, c_void_p()
        if handle and os.getpid() == self._pid:
            count = library.ps_client_get_tensor_count(handle)
            self.pin_counts = (c_int32 * max(count, 1))()
            library.ps_client_destroy(handle)
            self._after_close()

    def __del__(self) -> None:
        # With several ranks all must call: Engine.close. Modules are None at the end of the interpreter.
        if library is not None and getattr(self, "_is_single_rank", False):
            self.close()

    def part(self, after_close: Callable[[], None]) -> None:
        """After construction has failed, and other ranks have been notified: closes the client when the last reference
        to it, which each tensor on its memory holds, is dropped."""
        self._is_single_rank, self._after_close = True, after_close

    # ---- before begin

    def add(self, shape: Tuple[int, ...], dtype: torch.dtype, is_unmanaged: bool) -> Tuple[int, int]:
        """Adds a tensor: its number and address."""
        number, values = c_int32(), c_void_p()
        dims = (c_int64 * max(len(shape), 1))(*shape)
        tensor = ClientTensor(shape=dims, n_dims=len(shape), dtype=DTYPES[dtype], is_unmanaged=is_unmanaged)
        check(library.ps_client_add(self.handle, byref(tensor), byref(number), byref(values)))
        return number.value, values.value

    def release(self, number: int) -> None:
        library.ps_client_release(self.handle, number)

    def drop(self, number: int) -> None:
        if self._is_building:
            check(library.ps_client_drop(self.handle, number))

    def give_back(self, number: int, address: int, n_bytes: int) -> None:
        """drop(), also after begin() has failed, when no call of the library frees the memory of add(): a model whose
        values are copied back would exist twice. A tensor's pages are not shared."""
        if self._is_building:
            self.drop(number)
        else:
            ctypes.CDLL(None).madvise(c_void_p(address), ctypes.c_size_t(n_bytes), _MADV_REMOVE)

    def name(self, number: int, name: str, is_frozen: bool) -> None:
        check(library.ps_client_name(self.handle, number, name.encode(), is_frozen))

    def expect(self, trained: int, frozen: int) -> None:
        """Refuse a model that budgets or machine cannot hold, before it is built; elements: in chunks, in total."""
        check(library.ps_client_expect(self.handle, trained, frozen))

    def use_stream(self) -> None:
        """On a GPU, have PyTorch issue its work to a separate stream, which the library uses."""
        gpu = self.get_info().gpu
        if gpu not in (-1, _cuda.current()):
            raise Refused("PyTorch computes on GPU %d here (local_rank), but the ranks of an engine take a machine's "
                          "GPUs in turn, and this one is to have GPU %d: under torchrun leave local_rank out, or give "
                          "local_rank=int(os.environ['LOCAL_RANK']); where engines of several groups share a machine, "
                          "or mpirun starts the processes, start each with its own GPU in CUDA_VISIBLE_DEVICES, and "
                          "give local_rank=0"
                          % (_cuda.current(), gpu))
        stream = _cuda.new_stream()
        try:
            check(library.ps_client_use_stream(self.handle, stream.cuda_stream))
        except PatrickStarError as error:
            if error.status != "ENOSYS":  # the processor computes (train.backend)
                raise
            return
        _cuda.work_on(stream)
        self._stream = stream  # lives as long as the client

    def still_has_values_of(self, number: int) -> bool:
        """Are they still in the memory of add()? Before begin(), and after an early failure of it."""
        return not self._has_begun and not self.get_tensor_info(number).is_dropped

    def begin(self) -> None:
        self._is_building = False
        check(library.ps_client_begin(self.handle))
        self._has_begun = True
        self.pin_counts = library.ps_client_get_pin_counts(self.handle)
        self.info = self.get_info()
        self.dtype = TORCH_DTYPES[self.info.dtype]
        self.device = torch.device("cuda", self.info.gpu) if self.info.gpu >= 0 else torch.device("cpu")

    # ---- profile

    def profile_start(self) -> None:
        check(library.ps_client_start_profile(self.handle))

    def profile_stop(self) -> None:
        check(library.ps_client_stop_profile(self.handle))

    def profile_save(self, path: str) -> None:
        check(library.ps_client_save_profile(self.handle, os.fsencode(path)))

    # ---- access

    def export_dlpack(self, number: int, what: int, mode: int) -> torch.Tensor:
        """The tensor at its current address; it stays pinned until the last tensor on that storage is freed."""
        managed = c_void_p()
        status = library.ps_client_export_dlpack(self.handle, number, what, mode, byref(managed))
        if status != 0:
            check(status)
        return from_dlpack(_new_capsule(managed, _CAPSULE_NAME, None))

    def moment(self, phase: int, label: str, framework_bytes: Optional[int] = None) -> None:
        text = self._labels.get(label)
        if text is None:
            text = self._labels[label] = label.encode()
        if framework_bytes is None:
            framework_bytes = (_cuda.counted_bytes(self.device, self._reserved_ratio) if self.info.gpu >= 0
                               else MEASURE)
        status = library.ps_client_moment(self.handle, phase, text, framework_bytes)
        if status != 0:
            check(status)

    # ---- gradients and update

    def give_gradient(self, number: int, gradient: torch.Tensor, is_read_again: bool) -> None:
        check(library.ps_client_give_gradient(self.handle, number, gradient.data_ptr(), DTYPES[gradient.dtype],
                                              is_read_again))

    def begin_last_backward(self) -> None:
        check(library.ps_client_begin_last_backward(self.handle))

    def has_gradient(self, number: int) -> bool:
        return library.ps_client_has_gradient(self.handle, number) != 0

    def drop_gradients(self, number: int = -1) -> None:
        check(library.ps_client_drop_gradients(self.handle, number))

    def get_groups(self) -> List[ClientGroup]:
        groups = []
        for number in range(library.ps_client_get_group_count(self.handle)):
            group = ClientGroup()
            check(library.ps_client_get_group(self.handle, number, byref(group)))
            groups.append(group)
        return groups

    def set_group(self, number: int, group: ClientGroup) -> None:
        check(library.ps_client_set_group(self.handle, number, byref(group)))

    def join_group(self, number: int, group: int) -> None:
        """Moves a tensor to a group; group == their count: creates it."""
        check(library.ps_client_join_group(self.handle, number, group))

    def set_gradient_clipping(self, max_norm: float) -> None:
        """Below 0: as configured."""
        check(library.ps_client_set_gradient_clipping(self.handle, max_norm))

    def get_loss_scale(self) -> float:
        return library.ps_client_get_loss_scale(self.handle)

    def step(self) -> Tuple[ClientStepInfo, Optional[PatrickStarError]]:
        """Information on the step, and an error after which training should end (ENUMERIC: too many skipped steps), or
        None."""
        info = ClientStepInfo()
        try:
            check(library.ps_client_step(self.handle, byref(info)))
        except PatrickStarError as error:
            if error.status != "ENUMERIC":
                raise
            return info, error
        return info, None

    # ---- values and states

    def get_tensor_count(self) -> int:
        return library.ps_client_get_tensor_count(self.handle)

    def get_tensor_info(self, number: int) -> ClientTensorInfo:
        info = ClientTensorInfo()
        check(library.ps_client_get_tensor_info(self.handle, number, byref(info)))
        return info

    def keeps(self, number: int) -> bool:
        """Does this rank own the fp32 value and states of the tensor, or of a part? All ranks own unmanaged ones."""
        info = self.get_tensor_info(number)
        n_ranks = self.info.n_ranks
        if info.chunk < 0:
            return True
        n_chunks = -(-info.elements // self.info.chunk_elements)
        return any((info.chunk + i) % n_ranks == self.info.rank for i in range(min(n_chunks, n_ranks)))

    def get_state_names(self) -> List[str]:
        names: List[str] = []
        while True:
            name = library.ps_client_get_state_name(self.handle, len(names))
            if name is None:
                return names
            names.append(name.decode())

    def read(self, number: int, state: Optional[str], shape: torch.Size) -> torch.Tensor:
        """The fp32 value of a tensor, or a state of it, copied."""
        return self.read_range(number, state, 0, shape.numel()).view(shape)

    def read_range(self, number: int, state: Optional[str], first: int, n: int) -> torch.Tensor:
        """n elements of it, from the first on."""
        out = torch.empty(n, dtype=torch.float32, device="cpu")
        check(library.ps_client_read_state(self.handle, number, _encoded(state), first, n, out.data_ptr()))
        return out

    def announce(self, number: int) -> None:
        """With several ranks, for a tensor in chunks: do all others make this call, too? Otherwise they have
        diverged."""
        check(library.ps_client_read_state(self.handle, number, None, 0, 0, None))

    def write(self, number: int, state: Optional[str], values: torch.Tensor) -> None:
        values = values.detach().to(device="cpu", dtype=torch.float32).contiguous()
        check(library.ps_client_write_state(self.handle, number, state.encode() if state else None, 0, values.numel(),
                                      values.data_ptr()))

    def get_steps(self, number: int = -1) -> int:
        return library.ps_client_get_update_count(self.handle, number)

    def set_steps(self, number: int, steps: int) -> None:
        check(library.ps_client_set_update_count(self.handle, number, steps))

    def get_scaler(self) -> Dict[str, Any]:
        return json.loads(_take_text(library.ps_client_get_scaler, self.handle))

    def set_scaler(self, scaler: Dict[str, Any]) -> None:
        check(library.ps_client_set_scaler(self.handle, json.dumps(scaler).encode()))

    # ---- checkpoints

    def begin_checkpoint(self, folder: str, tag: Optional[str], keep_last: int, config: Optional[str],
                         extra: Optional[bytes]) -> None:
        """extra None: this rank has failed, and the call fails on all."""
        what = ClientCheckpoint(tag=_encoded(tag), keep_last=keep_last, config_json=_encoded(config), extra=extra,
                                extra_bytes=len(extra) if extra is not None else -1)
        check(library.ps_client_begin_checkpoint(self.handle, os.fsencode(folder), byref(what)))

    def checkpoint_is_done(self) -> bool:
        return library.ps_client_checkpoint_is_done(self.handle) != 0

    def finish_checkpoint(self) -> str:
        """The name of its folder."""
        info = CheckpointInfo()
        check(library.ps_client_finish_checkpoint(self.handle, byref(info)))
        return info.name.decode()

    def load_checkpoint(self, path: str) -> "Loaded":
        found = ClientLoaded()
        check(library.ps_client_load_checkpoint(self.handle, os.fsencode(path), byref(found)))
        take_text(found.caller_json)
        return Loaded(found.step, found.n_ranks, take_text(found.path) or path, take_text(found.extra_path))

    def get_info(self) -> ClientInfo:
        info = ClientInfo()
        check(library.ps_client_get_info(self.handle, byref(info)))
        info.why_not_gpu = info.why_not_gpu or self._why_not_gpu
        return info

    def get_memory_use(self) -> List[MemoryUse]:
        """What takes memory now: chunk lists ("PARAM16", "MASTER", ...), the framework, others."""
        uses: List[MemoryUse] = []
        while True:
            use = MemoryUse()
            if library.ps_client_get_memory_use(self.handle, len(uses), byref(use)) != 0:
                return uses
            uses.append(use)

    def __repr__(self) -> str:
        name = type(self).__name__
        return repr(self.get_info()).replace("ClientInfo", name, 1) if self.is_open() else "%s, closed" % name


def _encoded(text: Optional[str]) -> Optional[bytes]:
    return text.encode() if text is not None else None


def _take_text(function: Any, handle: c_void_p) -> str:
    text = c_void_p()
    check(function(handle, byref(text)))
    return take_text(text) or ""
