"""The files of a checkpoint (doc/checkpoints.md), read without an engine: memory for the requested tensors only.

A tensor whose elements several ranks keep is stored in pieces, one or more in the file of each:
"wte.weight[4096:6144]", and "shape:wte.weight" in the file's metadata. Compact states of the optimizer
(doc/numerics.md) are decoded."""
import json
import os
import re
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch

from ._library import PatrickStarError, check, library


GROUP, GROUP_BYTES = 32, 36  # of compact states: a float, and a code for each element
ITEM_BYTES = {"F32": 4, "BF16": 2}


class Piece(NamedTuple):
    first: int  # element of the tensor
    n: int
    path: str
    offset: int  # in the file
    dtype: str = "F32"  # BF16: states; U8: compact ones
    is_root: bool = False  # compact: the square roots of values

    @property
    def is_compact(self) -> bool:
        return self.dtype == "U8"


class StoredTensor(NamedTuple):
    """A tensor, as fp32."""
    shape: torch.Size
    pieces: List[Piece]  # in ascending order, of all elements

    def read(self, first: int, room: memoryview) -> None:
        """Fills the array with elements from `first` on."""
        last = first + len(room) // 4
        for piece in self.pieces:
            begin, end = max(first, piece.first), min(last, piece.first + piece.n)
            if begin < end:
                try:
                    with open(piece.path, "rb", buffering=0) as file:
                        part = room[4 * (begin - first):4 * (end - first)]
                        if piece.is_compact:
                            _fill_compact(part, file, piece, begin - piece.first)
                        elif piece.dtype == "BF16":
                            _fill_bf16(part, file, piece, begin - piece.first)
                        else:
                            file.seek(piece.offset + 4 * (begin - piece.first))
                            _fill(part, file)
                except OSError as error:  # as files are read while others are written
                    raise PatrickStarError("EIO", "%s: cannot be read: %s" % (piece.path, error.strerror)) from None


class CheckpointFiles:
    """folder: of one checkpoint. PatrickStarError if it is damaged: every byte is compared."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        check(library.ps_checkpoint_check(os.fsencode(folder)))
        with open(os.path.join(folder, "state.json"), "rb") as file:
            self.state: Dict[str, Any] = json.load(file)
        self.values = self._list_tensors("model")
        self.states = self._list_tensors("optimizer")  # "wte.weight.exp_avg"

    def find_extra(self) -> Optional[str]:
        """Data of rank 0 other than tensors: the path of a file of torch.save."""
        given = self.state.get("extra_files") or [None]
        return os.path.join(self.folder, given[0]["name"]) if given[0] is not None else None

    def _list_tensors(self, part: str) -> Dict[str, StoredTensor]:
        found: Dict[str, StoredTensor] = {}
        for rank in range(self.state["ranks"]):
            path = os.path.join(self.folder, "%s-%d-of-%d.safetensors" % (part, rank, self.state["ranks"]))
            for name, shape, piece in _read_header(path):
                found.setdefault(name, StoredTensor(shape, [])).pieces.append(piece)
        for name, tensor in found.items():
            tensor.pieces.sort()
            reached = 0
            for piece in tensor.pieces:
                reached = piece.first + piece.n if piece.first == reached else -1
            if reached != tensor.shape.numel():
                raise PatrickStarError("EFORMAT", "%s: the pieces of %s do not make up the %d elements of it; use "
                                       "another checkpoint" % (self.folder, name, tensor.shape.numel()))
        return found


def _read_header(path: str) -> List[Tuple[str, torch.Size, Piece]]:
    """Names and shapes of tensors, and their pieces in the file."""
    with open(path, "rb") as file:
        n_bytes, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(n_bytes))
    metadata = header.pop("__metadata__", {})
    found = []
    for name, entry in header.items():
        shape, first = torch.Size(entry["shape"]), 0
        part = re.fullmatch(r"(.*)\[(\d+):(\d+)\]", name, re.DOTALL)
        if part is not None and "shape:" + part.group(1) in metadata:
            name, first = part.group(1), int(part.group(2))
            shape = torch.Size(int(n) for n in metadata["shape:" + name].split(",") if n)
        begin, end = entry["data_offsets"]
        dtype = entry["dtype"]
        is_groups = part is not None and dtype == "U8"
        if not is_groups and dtype not in ITEM_BYTES:
            raise PatrickStarError("EFORMAT", "%s: %s is %s; checkpoints have F32, BF16, and groups in U8: it is damaged, "
                                   "or no checkpoint" % (path, name, dtype))
        n = int(part.group(3)) - first if is_groups else (end - begin) // ITEM_BYTES[dtype]
        found.append((name, shape, Piece(first, n, path, 8 + n_bytes + begin, dtype, name.endswith("_sq"))))
    return found


def _fill_compact(room: memoryview, file: Any, piece: Piece, at: int) -> None:
    """Fills the array of fp32 with elements of the piece from `at` on."""
    n, skipped = len(room) // 4, at % GROUP
    file.seek(piece.offset + at // GROUP * GROUP_BYTES)
    raw = bytearray((skipped + n + GROUP - 1) // GROUP * GROUP_BYTES)
    _fill(memoryview(raw), file)
    groups = torch.frombuffer(raw, dtype=torch.uint8).view(-1, GROUP_BYTES)
    scale, codes = groups[:, :4].contiguous().view(torch.float32), groups[:, 4:].contiguous()
    if piece.is_root:
        roots = scale * (codes.float() * (1 / 255))
        values = roots * roots
    else:
        signed = codes.view(torch.int8).float()
        values = scale * (signed / (254 - signed.abs()))
    torch.frombuffer(room, dtype=torch.float32).copy_(values.flatten()[skipped:skipped + n])


def _fill_bf16(room: memoryview, file: Any, piece: Piece, at: int) -> None:
    """As _fill_compact."""
    raw = bytearray(len(room) // 2)
    file.seek(piece.offset + 2 * at)
    _fill(memoryview(raw), file)
    torch.frombuffer(room, dtype=torch.float32).copy_(torch.frombuffer(raw, dtype=torch.bfloat16))


def _fill(room: memoryview, file: Any) -> None:
    while len(room) > 0:
        n = file.readinto(room)
        if not n:
            raise PatrickStarError("EFORMAT", "%s: it was truncated while it was read" % file.name)
        room = room[n:]
