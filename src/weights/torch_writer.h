/* torch_writer.h - named arrays into a file as torch.save(state_dict) writes it: what torch.load, also with
 * weights_only=True, gives back as an OrderedDict of tensors on the cpu.
 *
 *     data.pkl     a pickle of protocol 2: for each tensor torch._utils._rebuild_tensor_v2 of a storage, the offset 0,
 *                  shape, strides, False (requires_grad), OrderedDict() (hooks)
 *     byteorder    "little"
 *     data/0 ...   the storages, one a tensor but for those that share
 *     version      "3"
 *
 * Streams: memory for names and sizes. A writer belongs to one thread at a time. */
#ifndef PS_WEIGHTS_TORCH_WRITER_H
#define PS_WEIGHTS_TORCH_WRITER_H

#include <stdbool.h>

#include "weights/safetensors.h"

typedef struct ps_torch_writer ps_torch_writer;

/* n tensors in this order. same_as (NULL: none) has for each the number of one before it whose storage it shares, of
 * the same type and number of elements; its own number: none. Nothing of the arguments is kept. PS_EINVAL for two
 * tensors of one name, a name that is no UTF-8, a type that PyTorch has no class of storage for (U16, U32, U64, F8_*),
 * a negative dimension, or sizes that overflow. All or nothing, as ps_file_writer. */
PS_NODISCARD ps_status ps_torch_writer_open(const char *path, const ps_safetensor *tensors, int n, const int *same_as,
                                            ps_torch_writer **out);

/* Is tensor i to be appended? Not when it shares another's storage. */
bool ps_torch_writer_wants(const ps_torch_writer *w, int i);

/* The next n_bytes of tensor i, which is wanted. Pieces of one tensor come in order; different
 * tensors may be interleaved. More bytes than the tensor has are PS_EINVAL. */
PS_NODISCARD ps_status ps_torch_writer_append(ps_torch_writer *w, int i, const void *data, int64_t n_bytes);

/* Make the file durable under its name and free the writer, whether it succeeds or not. A tensor with bytes missing is
 * PS_ESTATE, and no file. */
PS_NODISCARD ps_status ps_torch_writer_commit(ps_torch_writer *w);

void ps_torch_writer_cancel(ps_torch_writer *w); /* no file is left; NULL is accepted */

#endif
