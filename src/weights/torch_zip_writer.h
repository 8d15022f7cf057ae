/* torch_zip_writer.h - records of known sizes into a zip file as torch.save writes it: stored as they are, in the folder
 * "archive", the bytes of each at a multiple of 64, so that torch.load(mmap=True) finds them aligned. Where sizes or
 * offsets do not fit in 32 bits they stand in zip64 fields. The same records make the same file: all dates are 1980. */
#ifndef PS_WEIGHTS_TORCH_ZIP_WRITER_H
#define PS_WEIGHTS_TORCH_ZIP_WRITER_H

#include "base/file.h"

typedef struct ps_torch_zip_writer ps_torch_zip_writer;

typedef struct ps_torch_new_record {
    const char *name; /* without the folder: "data/0"; no two the same */
    int64_t n_bytes;
} ps_torch_new_record;

/* Lays out n records in this order. Nothing of the arguments is kept. PS_EINVAL when sizes overflow, or there are more
 * records than a reader takes; PS_EIO. All or nothing, as ps_file_writer. */
PS_NODISCARD ps_status ps_torch_zip_writer_open(const char *path, const ps_torch_new_record *records, int n,
                                                ps_torch_zip_writer **out);

/* Bytes [at, at + n_bytes) of record i, which has them; in any order. Those never written are zeros. */
PS_NODISCARD ps_status ps_torch_zip_writer_write(const ps_torch_zip_writer *w, int i, int64_t at, const void *data,
                                                 int64_t n_bytes);

/* Headers and directory, with the records' sums [n] (base/crc32.h; PyTorch takes 0 as not computed, other programs do
 * not); then the file is made durable under its name. Frees the writer, whether it succeeds or not. */
PS_NODISCARD ps_status ps_torch_zip_writer_commit(ps_torch_zip_writer *w, const uint32_t *crc32s);

void ps_torch_zip_writer_cancel(ps_torch_zip_writer *w); /* no file is left; NULL is accepted */

#endif
