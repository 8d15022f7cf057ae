/* weight_writer.h - writes named arrays to a new file; its name determines the format:
 *
 *     FILE.pt, FILE.pth, FILE.bin    a state_dict of torch.save (torch_writer.h)
 *     all others                     safetensors, with "format": "pt" as metadata
 *
 * Tensors may share their data, as tied ones do: torch.save stores them once, safetensors twice. Atomic, as
 * ps_file_writer. One thread at a time may use a writer. */
#ifndef PS_WEIGHTS_WEIGHT_WRITER_H
#define PS_WEIGHTS_WEIGHT_WRITER_H

#include <stdbool.h>

#include "weights/safetensors.h"

typedef struct ps_weight_writer ps_weight_writer;

bool ps_weight_writer_is_torch(const char *path); /* by name */

/* Arguments and errors as ps_torch_writer_open and ps_safetensors_writer_open; only torch.save's format uses same_as
 * (NULL: none). */
PS_NODISCARD ps_status ps_weight_writer_open(const char *path, const ps_safetensor *tensors, int n, const int *same_as,
                                             ps_weight_writer **out);

/* Whether tensor i must be appended; false when it shares another tensor's data. */
bool ps_weight_writer_wants(const ps_weight_writer *w, int i);

/* Append n_bytes to tensor i, which must be appended. More bytes than it has are PS_EINVAL. */
PS_NODISCARD ps_status ps_weight_writer_append(ps_weight_writer *w, int i, const void *data, int64_t n_bytes);

/* Make the file durable under its name, and free the writer, also after a failure. PS_ESTATE, and no file, when bytes
 * of a tensor are missing. */
PS_NODISCARD ps_status ps_weight_writer_commit(ps_weight_writer *w);

void ps_weight_writer_cancel(ps_weight_writer *w); /* removes the file; NULL is accepted */

#endif
