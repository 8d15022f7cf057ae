/* torch_writer.h - writes named arrays as torch.save(state_dict) does. torch.load, also with weights_only=True, returns
 * an OrderedDict of tensors on the cpu.
 *
 *     data.pkl     a pickle of protocol 2: for each tensor torch._utils._rebuild_tensor_v2 of a storage, the offset 0,
 *                  shape, strides, False (requires_grad), OrderedDict() (hooks)
 *     byteorder    "little"
 *     data/0 ...   the storages, one for each tensor that shares none
 *     version      "3"
 *
 * The writer streams, with memory for names and sizes. One thread at a time may use a writer. */
#ifndef PS_WEIGHTS_TORCH_WRITER_H
#define PS_WEIGHTS_TORCH_WRITER_H

#include <stdbool.h>

#include "weights/safetensors.h"

typedef struct ps_torch_writer ps_torch_writer;

/* Begin a file with n tensors in this order. same_as (NULL: none) has for each tensor the number of an earlier one
 * whose storage it shares, of the same type and number of elements, or its own number. No argument is kept. PS_EINVAL
 * for duplicate names, a name that is not UTF-8, a type without a storage class in PyTorch (U16, U32, U64, F8_*), a
 * negative dimension, or sizes that overflow. Atomic, as ps_file_writer. */
PS_NODISCARD ps_status ps_torch_writer_open(const char *path, const ps_safetensor *tensors, int n, const int *same_as,
                                            ps_torch_writer **out);

/* Whether tensor i must be appended; false when it shares another tensor's storage. */
bool ps_torch_writer_wants(const ps_torch_writer *w, int i);

/* Append n_bytes to tensor i, which must be appended. Pieces of one tensor come in order; different tensors may be
 * interleaved. More bytes than the tensor has are PS_EINVAL. */
PS_NODISCARD ps_status ps_torch_writer_append(ps_torch_writer *w, int i, const void *data, int64_t n_bytes);

/* Make the file durable under its name, and free the writer, also after a failure. PS_ESTATE, and no file, when bytes
 * of a tensor are missing. */
PS_NODISCARD ps_status ps_torch_writer_commit(ps_torch_writer *w);

void ps_torch_writer_cancel(ps_torch_writer *w); /* removes the file; NULL is accepted */

#endif
