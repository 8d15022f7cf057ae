/* torch_pickle.h - the state_dict in the record data.pkl of a file of torch.save: which tensor lies where.
 *
 * A pickle is a program for a stack machine that may call anything. This machine knows only the opcodes that torch.save
 * writes for tensors, and calls only what makes them:
 *
 *     collections OrderedDict               torch._utils _rebuild_tensor_v2, _rebuild_parameter
 *     torch FloatStorage ... BoolStorage    as the type in a persistent id ('storage', type, key, device, elements)
 *     torch Size, __builtin__ set           beside a state_dict, in what DeepSpeed saves: looked at by nobody
 *
 * Everything else is refused by name; nothing is ever imported or run. Opcodes: Python's Lib/pickletools.py. Memory is
 * bounded by the size of the pickle; nesting costs no stack of ours. */
#ifndef PS_WEIGHTS_TORCH_PICKLE_H
#define PS_WEIGHTS_TORCH_PICKLE_H

#include "weights/safetensors.h"

/* Larger ones are neither read nor written: a tensor takes some 150 bytes of it. */
#define PS_TORCH_PICKLE_BYTES_MAX ((int64_t)16 << 20)

typedef struct ps_torch_tensor {
    ps_safetensor tensor; /* offset: bytes from the start of its storage; elements lie in row order without gaps */
    const char *storage;  /* key: the elements are in the record "data/<key>" */
    int64_t storage_bytes;
} ps_torch_tensor;

typedef struct ps_torch_pickle ps_torch_pickle;

/* Run the n bytes (which are not kept). The result is a dictionary of tensors, or one that holds such a dictionary as
 * "state_dict", "model" or "module". `path` is for messages. PS_EFORMAT names what is damaged or not allowed and its
 * offset in the record, or the tensor, such as one that is no plain array (strides, too many dimensions). */
PS_NODISCARD ps_status ps_torch_pickle_read(const char *path, const char *data, int64_t n, ps_torch_pickle **out);
void ps_torch_pickle_close(ps_torch_pickle *p); /* NULL is accepted */

int ps_torch_pickle_count(const ps_torch_pickle *p);
/* In the order of the dictionary; valid until close. */
const ps_torch_tensor *ps_torch_pickle_get(const ps_torch_pickle *p, int i);

#endif
