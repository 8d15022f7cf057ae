"""Ranks over a process group of PyTorch: a model trains by its all-to-all.

usage: torch_ranks.py LIBRARY CONFIG RANK SIZE FILE    (FILE: where the processes meet)
Prints the hash of the weights after some steps. The structures are those of patrickstar.h.
"""
import ctypes as c
import os
import sys

import torch
import torch.distributed as dist

library, config_path, rank, size, meeting = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
ps = c.CDLL(library)
ps.ps_last_error.restype = c.c_char_p


def check(status):
    if status != 0:
        sys.exit(f"rank {rank}: {ps.ps_last_error().decode()}")


CLOSE = c.CFUNCTYPE(None, c.c_void_p, c.c_int32)
BYTES = c.POINTER(c.c_int64)
ALL_TO_ALL = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, BYTES, c.c_void_p, BYTES, c.c_void_p)


class ProcessGroup(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("user", c.c_void_p), ("rank", c.c_int32), ("size", c.c_int32),
                ("name", c.c_char_p), ("trouble", c.c_char_p), ("all_to_all", ALL_TO_ALL), ("close", CLOSE)]


class EngineOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("comm", c.c_void_p), ("purpose", c.c_int), ("is_empty", c.c_int32)]


class Batch(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("tokens", c.c_void_p), ("targets", c.c_void_p),
                ("attention_mask", c.c_void_p), ("token_type_ids", c.c_void_p), ("values", c.c_void_p)]


dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=size)


def tensor_at(address, n_bytes):
    if n_bytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer((c.c_char * n_bytes).from_address(address), dtype=torch.uint8)


@ALL_TO_ALL
def all_to_all(user, send, send_bytes, receive, receive_bytes, error):
    try:
        sent, received = send_bytes[:size], receive_bytes[:size]
        dist.all_to_all_single(tensor_at(receive, sum(received)), tensor_at(send, sum(sent)), received, sent)
        return 0
    except RuntimeError as e:
        text = str(e).encode()[:255]
        c.memmove(error, text + b"\0", len(text) + 1)
        return 1


@CLOSE
def close(user, is_orderly):
    pass


config, comm, engine = c.c_void_p(), c.c_void_p(), c.c_void_p()
check(ps.ps_config_load(config_path.encode(), c.byref(config)))
group = ProcessGroup(c.sizeof(ProcessGroup), None, rank, size, b"torch.distributed (gloo)", None, all_to_all, close)
check(ps.ps_comm_init_process_group(config, c.byref(group), c.byref(comm)))
options = EngineOptions(c.sizeof(EngineOptions), comm, 1, 0)
check(ps.ps_initialize_engine_with(c.cast(ps.ps_model_from_config, c.c_void_p), config, config, c.byref(options),
                                   c.byref(engine)))
B, T, V = c.c_int64(), c.c_int64(), c.c_int64()
ps.ps_engine_get_shape(engine, c.byref(B), c.byref(T), None, c.byref(V))
n = B.value * T.value
for step in range(5):
    tokens = (c.c_int32 * n)(*[(step * 100 + rank + i * 7) % V.value for i in range(n)])
    targets = (c.c_int32 * n)(*[(token + 7) % V.value for token in tokens])
    batch = Batch(c.sizeof(Batch), c.addressof(tokens), c.addressof(targets), None, None)
    check(ps.ps_forward(engine, c.byref(batch), None))
    check(ps.ps_backward(engine))
    check(ps.ps_step(engine))
weights = c.c_uint64()
check(ps.ps_engine_get_weights_xxh3(engine, c.byref(weights)))
ps.ps_engine_destroy(engine)
ps.ps_comm_close(comm)
print(f"{weights.value:016x}", flush=True)
os._exit(0)
