#!/usr/bin/env python3
"""Writes torch_*.pt: files of torch.save for the reader of state_dicts (test/weights/test_torch_files.c).

usage: python3 make_torch_files.py NAME [FOLDER]       NAME is "old" (PyTorch 1.13) or "new" (2.x); it is part of the names

Values are small integers, exact in every format, so the test needs no second file: element i of the tensor with number k
is (7 * k + i) % 64 - 32, for booleans i % 2.
"""
import os
import sys
from collections import OrderedDict

import torch

NAME = sys.argv[1]
FOLDER = sys.argv[2] if len(sys.argv) > 2 else os.path.dirname(os.path.abspath(__file__))


def values(k, shape, dtype):
    n = torch.Size(shape).numel()
    return ((7 * k + torch.arange(n)) % 64 - 32).to(dtype).reshape(shape)


def save(kind, value, **options):
    path = os.path.join(FOLDER, f"torch_{NAME}_{kind}.pt")
    torch.save(value, path, **options)
    print(os.path.basename(path), os.path.getsize(path))


class Model(torch.nn.Module):
    """state_dict() gives an OrderedDict with the attribute _metadata."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(values(0, (3, 5), torch.float32))
        self.register_buffer("mask", values(1, (4,), torch.float16))


plain = OrderedDict()
for number, dtype in enumerate([torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32,
                                torch.int16, torch.int8]):
    plain[str(dtype).split(".")[1]] = values(number, (2, 3), dtype)
plain["bool"] = torch.tensor([False, True, False])
plain["tied"] = plain["float32"]
plain["parameter"] = torch.nn.Parameter(values(9, (4,), torch.bfloat16))
plain["scalar"] = values(10, (), torch.float32)
plain["empty"] = values(11, (0, 7), torch.float32)
plain["row"] = values(12, (4, 3), torch.float32)[2]  # a part of its storage: elements 6 to 8
save("plain", plain)
save("module", Model().state_dict())
# an epoch beside it, of more than 16 bits, and one of more than 31
save("wrapped", {"epoch": 70000, "seed": 1 << 40, "loss": 0.5, "ids": [1, 300], "state_dict": Model().state_dict()})
parts = values(0, (60,), torch.float32)  # enough of them for memo numbers above 255
save("many", {f"p.{i}": parts[i:i + 1] for i in range(60)})
save("view", {"w": values(0, (3, 5), torch.float32).t()})
save("program", {"w": values(0, (2,), torch.float32), "model": Model})
if NAME == "new":
    save("protocol4", {"w": values(0, (3, 5), torch.float32)}, pickle_protocol=4)
else:
    save("legacy", {"w": values(0, (2,), torch.float32)}, _use_new_zipfile_serialization=False)

# What PatrickStar's ranks write (runtime/checkpoint.py): parameters of their own chunks, as views of them, and what every rank
# has. Tensor w.k is number 20 + k.
chunks = [torch.cat([values(20 + k, (6,), torch.float32) for k in (2 * rank, 2 * rank + 1)]) for rank in range(2)]
for rank, chunk in enumerate(chunks):
    own = OrderedDict((f"w.{2 * rank + k}", chunk[6 * k:6 * k + 6].view(2, 3)) for k in range(2))
    own["shared"] = values(30, (4,), torch.float32)
    own._metadata = {"": {"version": 1}}
    save(f"rank-{rank}", own)

# DeepSpeed's mp_rank_00_model_states.pt (runtime/engine.py: _save_checkpoint), of a module in DistributedDataParallel
module = OrderedDict(("module." + n, v) for n, v in Model().half().state_dict().items())
save("deepspeed", {
    "module": module, "buffer_names": ["mask"], "optimizer": None,
    "param_shapes": [OrderedDict((n, v.shape) for n, v in module.items())], "frozen_param_shapes": None,
    "shared_params": {}, "lr_scheduler": {"last_epoch": 3, "_last_lr": [1e-3]}, "sparse_tensor_module_names": set(),
    "skipped_steps": 0, "global_steps": 3, "global_samples": 12, "dp_world_size": 2, "mp_world_size": 1,
    "ds_config": {"train_batch_size": 4, "fp16": {"enabled": True}}, "ds_version": "0.14.4"})
