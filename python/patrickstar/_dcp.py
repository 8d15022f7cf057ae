"""Writing by torch.distributed.checkpoint (PyTorch 2.3) while reading: memory for a piece of a tensor, whatever the
model's size."""
import dataclasses
import warnings
from typing import Any, Dict, List, Optional

import torch
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemWriter, save
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType

from ._checkpoint_files import StoredTensor

_PIECE_BYTES = 64 << 20


def promise(source: StoredTensor) -> torch.Tensor:
    """The placeholder of the tensor in a state_dict for `write`."""
    tensor = torch.empty(source.shape, dtype=torch.float32, device="meta")
    tensor._ps_source = source  # type: ignore[attr-defined]
    return tensor


def write(state_dict: Dict[str, Any], folder: str) -> None:
    """As torch.distributed.checkpoint.save of a single process. OSError if the folder cannot be written to."""
    # One thread, which writes each item before it resolves the next.
    writer = FileSystemWriter(folder, thread_count=1, per_thread_copy_ahead=0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is no process group
            save(state_dict, storage_writer=writer, planner=_Planner())
    except CheckpointException as failure:
        error, _ = next(iter(failure.failures.values()))
        raise error from None


class _Planner(DefaultSavePlanner):
    """Large tensors are divided by rows, as shards are, and each shard is read when it is written."""

    def __init__(self) -> None:
        super().__init__()
        # One tensor after the other: PyTorch 2.15 keeps all shards until the file is complete, and reads each once.
        self._room = bytearray()

    def create_local_plan(self) -> SavePlan:
        plan = super().create_local_plan()
        self.plan = dataclasses.replace(plan, items=[part for item in plan.items for part in self._divide(item)])
        return self.plan

    def _source_of(self, item: WriteItem) -> Optional[StoredTensor]:
        return getattr(self.state_dict[item.index.fqn], "_ps_source", None)

    def _divide(self, item: WriteItem) -> List[WriteItem]:
        source = self._source_of(item)
        if source is None or 4 * source.shape.numel() <= _PIECE_BYTES:
            return [item]
        n_rows, row = source.shape[0], source.shape[1:]
        at_once = max(_PIECE_BYTES // (4 * row.numel()), 1)
        items = []
        for first in range(0, n_rows, at_once):
            offsets = torch.Size([first] + [0] * len(row))
            chunk = ChunkStorageMetadata(offsets, torch.Size([min(at_once, n_rows - first), *row]))
            items.append(WriteItem(MetadataIndex(item.index.fqn, offsets), WriteItemType.SHARD,
                                   tensor_data=dataclasses.replace(item.tensor_data, chunk=chunk)))
        return items

    def resolve_data(self, write_item: WriteItem) -> Any:
        source = self._source_of(write_item)
        if source is None:
            return super().resolve_data(write_item)
        chunk = write_item.tensor_data.chunk
        n = torch.Size(chunk.sizes).numel()
        if n == 0:
            return torch.empty(chunk.sizes)
        if len(self._room) < 4 * n:
            self._room = bytearray(4 * n)
        first = chunk.offsets[0] * source.shape[1:].numel() if source.shape else 0
        source.read(first, memoryview(self._room)[:4 * n])
        return torch.frombuffer(self._room, dtype=torch.float32, count=n).view(chunk.sizes)
