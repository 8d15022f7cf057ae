/* torch_pickle.h - the state_dict in the record data.pkl of a file of torch.save: names and locations of tensors.
 *
 * A pickle is a program for a stack machine that may call any function. This machine executes only the opcodes that
 * torch.save writes for tensors, and accepts only these names:
 *
 *     collections OrderedDict               torch._utils _rebuild_tensor_v2, _rebuild_parameter
 *     torch FloatStorage ... BoolStorage    as the type in a persistent id ('storage', type, key, device, elements)
 *     torch Size, __builtin__ set           next to a state_dict in files of DeepSpeed: ignored
 *
 * Everything else is refused by name; nothing is ever imported or run. Opcodes: Python's Lib/pickletools.py. Memory is
 * bounded by the size of the pickle; nesting uses no C stack. */
#ifndef PS_WEIGHTS_TORCH_PICKLE_H
#define PS_WEIGHTS_TORCH_PICKLE_H

#include "weights/safetensors.h"

/* Larger pickles are neither read nor written: a tensor needs about 150 bytes. */
#define PS_TORCH_PICKLE_BYTES_MAX ((int64_t)16 << 20)

typedef struct ps_torch_tensor {
    ps_safetensor tensor; /* offset: bytes from the start of its storage; contiguous */
    const char *storage;  /* key: the elements are in the record "data/<key>" */
    int64_t storage_bytes;
} ps_torch_tensor;

typedef struct ps_torch_pickle ps_torch_pickle;

/* Execute the n bytes (which are not kept). The result is a dictionary of tensors, or a dictionary with such an entry
 * "state_dict", "model" or "module". `path` is for messages. PS_EFORMAT names the damage or the refused feature and its
 * offset in the record, or a tensor that is not a dense array (strides, too many dimensions). */
PS_NODISCARD ps_status ps_torch_pickle_read(const char *path, const char *data, int64_t n, ps_torch_pickle **out);
void ps_torch_pickle_close(ps_torch_pickle *p); /* NULL is accepted */

int ps_torch_pickle_count(const ps_torch_pickle *p);
/* In the order of the dictionary; valid until close. */
const ps_torch_tensor *ps_torch_pickle_get(const ps_torch_pickle *p, int i);

#endif
