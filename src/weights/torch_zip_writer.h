/* torch_zip_writer.h - writes records of known sizes to a zip file as torch.save does: uncompressed, in the folder
 * "archive", each at a multiple of 64 bytes, so that torch.load(mmap=True) finds them aligned. Sizes and offsets above
 * 32 bits are in zip64 fields. Equal records make equal files, as all dates are 1980. */
#ifndef PS_WEIGHTS_TORCH_ZIP_WRITER_H
#define PS_WEIGHTS_TORCH_ZIP_WRITER_H

#include "base/file.h"

typedef struct ps_torch_zip_writer ps_torch_zip_writer;

typedef struct ps_torch_new_record {
    const char *name; /* without the folder: "data/0"; unique */
    int64_t n_bytes;
} ps_torch_new_record;

/* Lay out n records in this order. No argument is kept. PS_EINVAL when sizes overflow, or there are more records than
 * readers accept; PS_EIO. Atomic, as ps_file_writer. */
PS_NODISCARD ps_status ps_torch_zip_writer_open(const char *path, const ps_torch_new_record *records, int n,
                                                ps_torch_zip_writer **out);

/* Write bytes [at, at + n_bytes) of record i, in any order. Bytes that are not written are zeros. */
PS_NODISCARD ps_status ps_torch_zip_writer_write(const ps_torch_zip_writer *w, int i, int64_t at, const void *data,
                                                 int64_t n_bytes);

/* Write headers and directory with the records' CRCs [n] (base/crc32.h; for PyTorch 0 means not computed, for other
 * programs it does not), and make the file durable under its name. Frees the writer, also after a failure. */
PS_NODISCARD ps_status ps_torch_zip_writer_commit(ps_torch_zip_writer *w, const uint32_t *crc32s);

void ps_torch_zip_writer_cancel(ps_torch_zip_writer *w); /* no file is left; NULL is accepted */

#endif
