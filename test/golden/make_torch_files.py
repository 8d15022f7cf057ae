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
