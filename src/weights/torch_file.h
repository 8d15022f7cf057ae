/* torch_file.h - what is in the records of a file of torch.save: the pickle, and where its tensors lie in the file. */
#ifndef PS_WEIGHTS_TORCH_FILE_H
#define PS_WEIGHTS_TORCH_FILE_H

#include "weights/torch_pickle.h"
#include "weights/torch_zip.h"

/* The record data.pkl, freed by ps_mem_free. PS_EFORMAT when there is none, or the file is a TorchScript program or of a
 * big-endian machine. */
PS_NODISCARD ps_status ps_torch_file_read_pickle(const char *path, const ps_torch_zip *zip, char **data, int64_t *n);

/* t->tensor with its offset in the file. PS_EFORMAT when its storage is in no record, or in one of another size. */
PS_NODISCARD ps_status ps_torch_file_place(const char *path, const ps_torch_zip *zip, const ps_torch_tensor *t,
                                           ps_safetensor *out);

#endif
