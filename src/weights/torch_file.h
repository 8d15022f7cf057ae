/* torch_file.h - records of a file of torch.save: the pickle, and the offsets of its tensors. */
#ifndef PS_WEIGHTS_TORCH_FILE_H
#define PS_WEIGHTS_TORCH_FILE_H

#include "weights/torch_pickle.h"
#include "weights/torch_zip.h"

/* Read the record data.pkl, freed by ps_mem_free. PS_EFORMAT when there is none, or the file is a TorchScript program
 * or from a big-endian machine. */
PS_NODISCARD ps_status ps_torch_file_read_pickle(const char *path, const ps_torch_zip *zip, char **data, int64_t *n);

/* Set the offset of t->tensor in the file. PS_EFORMAT when its storage has no record, or one of another size. */
PS_NODISCARD ps_status ps_torch_file_place(const char *path, const ps_torch_zip *zip, const ps_torch_tensor *t,
                                           ps_safetensor *out);

#endif
