"""Weights of a module in chunks as safetensors files, tensor by tensor: memory for a few MiB, whatever the size.

The format (https://huggingface.co/docs/safetensors): eight bytes with the length of a header, the header, which is
JSON, and the tensors' bytes in its order."""
import copy
import ctypes
import glob
import json
import os
import re
import struct
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import torch
import torch.nn as nn

from ._front import Front
from ._library import PatrickStarError
from ._slot import Slot

_AT_ONCE = 1 << 22  # elements
_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64", torch.int64: "I64",
          torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


class _Entry(NamedTuple):
    name: str
    shape: Tuple[int, ...]
    dtype: torch.dtype
    source: Union[Slot, torch.Tensor]
    n_bytes: int


def parse_size(size: Union[int, str]) -> int:
    """Bytes of "5GB", "500MiB" or a number."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", str(size))
    if found is None or found.group(2).upper() not in _UNITS:
        raise PatrickStarError("EINVAL", "max_shard_size is %r; it must be a number of bytes, or a text such as '5GB'"
                               % (size,))
    n_bytes = int(float(found.group(1)) * _UNITS[found.group(2).upper()])
    if n_bytes < 1:
        raise PatrickStarError("EINVAL", "max_shard_size is %r; it must be at least one byte" % (size,))
    return n_bytes


def config_of(module: nn.Module) -> Any:
    """The configuration of a model of transformers, a copy of it for fp32 values, of which save_pretrained makes
    config.json; None of another module."""
    config = getattr(module, "config", None)
    if not hasattr(config, "save_pretrained") or not hasattr(config, "to_json_string"):
        return None
    config = copy.deepcopy(config)
    config.architectures = [type(module).__name__]
    setattr(config, "dtype" if hasattr(config, "dtype") else "torch_dtype", torch.float32)  # its name since 4.56
    return config


def save(front: Front, module: nn.Module, path: str, max_shard_size: Union[int, str], dtype: Optional[torch.dtype],
         is_writer: bool) -> List[str]:
    """The module's parameters and persistent buffers, by their names; tied ones once. One file, or where that would be
    larger than max_shard_size several, with an index next to them. All ranks call; one writes. Names of the files."""
    folder, name = os.path.split(path)
    stem, suffix = os.path.splitext(name)
    if suffix != ".safetensors":
        raise PatrickStarError("EINVAL", "%s: weights are written as safetensors: give a name that ends with "
                               ".safetensors" % path)
    shards = _divide(list(_entries(front, module, dtype)), parse_size(max_shard_size))
    names = [name] if len(shards) == 1 else [
        "%s-%05d-of-%05d%s" % (stem, i + 1, len(shards), suffix) for i in range(len(shards))]
    writer = _Writer(folder, is_writer)
    try:
        for file, entries in zip(names, shards):
            writer.open(file)
            writer.put(_header(entries))
            for entry in entries:
                for values in _blocks(front, entry):
                    writer.put(values)
            writer.close()
        if len(shards) > 1:
            writer.open(name + ".index.json")
            writer.put(_index(names, shards))
            writer.close()
            names.append(name + ".index.json")
        writer.commit(names, os.path.join(glob.escape(folder), glob.escape(stem)), suffix)
    finally:
        writer.cancel()
    return names


def _entries(front: Front, module: nn.Module, dtype: Optional[torch.dtype]) -> Iterator[_Entry]:
    for slot in front.slots:
        yield _entry(slot.name, slot.shape, dtype or torch.float32, slot)
    seen = set()
    for prefix, part in module.named_modules():
        for name, buffer in part._buffers.items():
            if buffer is None or name in part._non_persistent_buffers_set or id(buffer) in seen:
                continue
            seen.add(id(buffer))
            rounded = dtype if dtype is not None and buffer.is_floating_point() else buffer.dtype
            yield _entry(prefix + "." + name if prefix else name, buffer.shape, rounded, buffer)


def _entry(name: str, shape: Tuple[int, ...], dtype: torch.dtype, source: Any) -> _Entry:
    if dtype not in _NAMES:
        raise PatrickStarError("EINVAL", "%s: safetensors has no %s" % (name, dtype))
    n_bytes = torch.Size(shape).numel() * torch.empty((), dtype=dtype).element_size()
    return _Entry(name, tuple(shape), dtype, source, n_bytes)


def _divide(entries: List[_Entry], most: int) -> List[List[_Entry]]:
    shards: List[List[_Entry]] = [[]]
    room = most
    for entry in entries:
        if shards[-1] and entry.n_bytes > room:
            shards.append([])
            room = most
        shards[-1].append(entry)
        room -= entry.n_bytes
    return shards


def _header(entries: List[_Entry]) -> bytes:
    header: Dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for entry in entries:
        header[entry.name] = {"dtype": _NAMES[entry.dtype], "shape": list(entry.shape),
                              "data_offsets": [at, at + entry.n_bytes]}
        at += entry.n_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _index(names: List[str], shards: List[List[_Entry]]) -> bytes:
    weight_map = {entry.name: name for name, entries in zip(names, shards) for entry in entries}
    total = sum(entry.n_bytes for entries in shards for entry in entries)
    return json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2).encode()


def _blocks(front: Front, entry: _Entry) -> Iterator[bytes]:
    source = entry.source
    n = torch.Size(entry.shape).numel()
    for first in range(0, n, _AT_ONCE):
        if isinstance(source, Slot):
            values = front.client.read_range(source.number, None, first, min(_AT_ONCE, n - first))
        else:
            values = source.detach().reshape(-1)[first:first + _AT_ONCE].cpu()
        values = values.to(entry.dtype).contiguous()
        yield ctypes.string_at(values.data_ptr(), values.numel() * values.element_size())  # numpy may be missing


class _Writer:
    """Files that get their names when all of them are complete. A failure is raised in commit: several ranks read
    values together until then."""

    def __init__(self, folder: str, is_writer: bool) -> None:
        self._folder, self._is_writer = folder, is_writer
        self._file: Any = None
        self._error: Optional[OSError] = None
        self._temporary: Dict[str, str] = {}

    def open(self, name: str) -> None:
        if not self._is_writer or self._error is not None:
            return
        path = os.path.join(self._folder, "%s.tmp-%d" % (name, os.getpid()))
        try:
            self._file = open(path, "wb")
            self._temporary[name] = path
        except OSError as error:
            self._error = error

    def put(self, data: bytes) -> None:
        if self._file is None or self._error is not None:
            return
        try:
            self._file.write(data)
        except OSError as error:
            self._error = error

    def close(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        try:
            with file:
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self._error = self._error or error

    def commit(self, names: List[str], stem: str, suffix: str) -> None:
        if self._error is not None:
            raise self._error
        if not self._is_writer:
            return
        for name in names:
            os.replace(self._temporary.pop(name), os.path.join(self._folder, name))
        for path in _files_of(stem, suffix):
            if os.path.basename(path) not in names:  # of an earlier save with more or fewer files
                os.remove(path)

    def cancel(self) -> None:
        self.close()
        for path in self._temporary.values():
            os.remove(path)
        self._temporary.clear()


def _files_of(stem: str, suffix: str) -> List[str]:
    shards = glob.glob(stem + "-" + "[0-9]" * 5 + "-of-" + "[0-9]" * 5 + suffix)
    return shards + glob.glob(stem + suffix) + glob.glob(stem + suffix + ".index.json")
