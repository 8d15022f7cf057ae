/* weight_writer.h - named arrays into a new file, of the format that its name says:
 *
 *     FILE.pt, FILE.pth, FILE.bin    a state_dict of torch.save (torch_writer.h)
 *     all others                     safetensors, with "format": "pt" as metadata
 *
 * Tensors may share their data, as tied ones do: torch.save has that, safetensors has them twice. All or nothing, as
 * ps_file_writer. A writer belongs to one thread at a time. */
#ifndef PS_WEIGHTS_WEIGHT_WRITER_H
#define PS_WEIGHTS_WEIGHT_WRITER_H

#include <stdbool.h>

#include "weights/safetensors.h"

typedef struct ps_weight_writer ps_weight_writer;

bool ps_weight_writer_is_torch(const char *path); /* by its name */

/* Arguments and errors as ps_torch_writer_open and ps_safetensors_writer_open; same_as (NULL: none) is taken note of by
 * torch.save's format only. */
PS_NODISCARD ps_status ps_weight_writer_open(const char *path, const ps_safetensor *tensors, int n, const int *same_as,
                                             ps_weight_writer **out);

/* Is tensor i to be appended? Not when it shares another's data in the file. */
bool ps_weight_writer_wants(const ps_weight_writer *w, int i);

/* The next n_bytes of tensor i, which is wanted. More than it has are PS_EINVAL. */
PS_NODISCARD ps_status ps_weight_writer_append(ps_weight_writer *w, int i, const void *data, int64_t n_bytes);

/* Make the file durable under its name and free the writer, whether it succeeds or not. A tensor with bytes missing is
 * PS_ESTATE, and no file. */
PS_NODISCARD ps_status ps_weight_writer_commit(ps_weight_writer *w);

void ps_weight_writer_cancel(ps_weight_writer *w); /* no file is left; NULL is accepted */

#endif
