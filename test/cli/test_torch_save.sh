#!/bin/sh
# Files of weights that pstar writes as torch.save does: whole to Python's zipfile, a pickle of known names alone, and to PyTorch,
# where it is there, the tensors to the bit, those that are tied in one storage.
set -u
build=$1
. test/cli/cli_lib.sh

expect 0 "$pstar" merge test/golden/torch_old_plain.pt "$work/plain.pt"
expect 0 "$pstar" merge test/golden/gpt2_tiny.safetensors "$work/golden.pth"
python3 -c '
import struct, sys
header = b"""{"none": {"dtype": "F32", "shape": [3, 0, 2], "data_offsets": [0, 0]}}"""
open(sys.argv[1], "wb").write(struct.pack("<Q", len(header)) + header)' "$work/none.safetensors"
expect 0 "$pstar" merge "$work/none.safetensors" "$work/none.bin"
expect 0 "$pstar" train "$work/tiny.json" train.steps=1
expect 0 "$pstar" export "$work/run" "$work/pt" --config "$work/tiny.json" --format pt --dtype bf16
expect 0 "$pstar" export "$work/run" "$work/whole" --config "$work/tiny.json" --dtype bf16

cat >"$work/standard.py" <<'END'
"""Each record's sum; and the pickle, run by Python's own machine with classes that do nothing."""
import io, pickle, sys, zipfile
from collections import OrderedDict

class Machine(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda *a: a
        assert module == "torch" and name.endswith("Storage"), (module, name)
        return name

    def persistent_load(self, pid):
        return pid

for path in sys.argv[1:]:
    archive = zipfile.ZipFile(path)
    assert archive.testzip() is None, path
    names = archive.namelist()
    assert names[0] == "archive/data.pkl" and archive.read("archive/version") == b"3\n", names
    state = Machine(io.BytesIO(archive.read("archive/data.pkl"))).load()
    assert type(state) is OrderedDict and state
    keys = set()
    for storage, offset, size, stride, grad, hooks in state.values():
        assert storage[0] == "storage" and storage[3] == "cpu" and (offset, grad, hooks) == (0, False, OrderedDict())
        elements = 1
        for n, step in zip(reversed(size), reversed(stride)):
            assert step == elements
            elements *= max(n, 1)
        item = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2}.get(storage[1][:-7], 1)
        assert archive.getinfo("archive/data/" + storage[2]).file_size == storage[4] * item
        keys.add(storage[2])
    assert len(names) == len(keys) + 3
    print(path, len(state), len(keys))
END
expect 0 python3 "$work/standard.py" "$work/plain.pt" "$work/golden.pth" "$work/none.bin" "$work/pt/pytorch_model.bin"
says out "plain.pt 14 13"

cat >"$work/with_torch.py" <<'END'
import sys
from collections import OrderedDict
import torch

def load(path):
    state = torch.load(path, weights_only=True)
    assert type(state) is OrderedDict, type(state)
    return state

def same(a, b, name):
    bits = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}
    assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride() and not a.requires_grad, name
    if a.dtype != torch.bool:
        a, b = (x.detach().contiguous().view(bits[x.element_size()]) for x in (a, b)) if a.dim() else (a, b)
    assert torch.equal(a, b), name

work = sys.argv[1]
plain, expected = load(work + "/plain.pt"), torch.load("test/golden/torch_old_plain.pt")
assert list(plain) == sorted(expected)
for name in expected:
    same(plain[name], expected[name], name)
plain["tied"].fill_(3)
assert (plain["float32"] == 3).all() and plain["float32"].data_ptr() == plain["tied"].data_ptr()

def safetensors(path):
    import json, struct
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            begin, end = (8 + n + x for x in t["data_offsets"])
            dtype = {"F32": torch.float32, "BF16": torch.bfloat16, "I32": torch.int32}[t["dtype"]]
            yield name, torch.frombuffer(bytearray(data[begin:end]), dtype=dtype).reshape(t["shape"])

none = load(work + "/none.bin")["none"]
assert none.shape == (3, 0, 2) and none.stride() == torch.empty(3, 0, 2).stride()
golden = load(work + "/golden.pth")
for name, tensor in safetensors("test/golden/gpt2_tiny.safetensors"):
    same(golden.pop(name), tensor, name)
assert not golden
exported = load(work + "/pt/pytorch_model.bin")
tied = exported.pop("lm_head.weight")
assert tied.data_ptr() == exported["transformer.wte.weight"].data_ptr() and tied.data_ptr() % 64 == 0
for name, tensor in safetensors(work + "/whole/model.safetensors"):
    same(exported.pop(name), tensor, name)
assert not exported
END
/usr/bin/python3 -c 'import torch' 2>/dev/null || { untried "PyTorch"; finish; }
expect 0 /usr/bin/python3 -W ignore "$work/with_torch.py" "$work"
