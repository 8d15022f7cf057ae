/* torch_zip.h - finds the records of a file of torch.save.
 *
 *     local header, name, padding, record ... | central directory | [zip64 end, its locator] | end of central directory
 *
 * PyTorch (caffe2/serialize/inline_container) stores all records uncompressed, so a record is a range of the file.
 * Format: PKWARE APPNOTE 6.3.10, sections 4.3 and 4.5.3. Opening checks every size and offset against the file, local
 * headers against the directory, that names are unique, and that records do not overlap. */
#ifndef PS_WEIGHTS_TORCH_ZIP_H
#define PS_WEIGHTS_TORCH_ZIP_H

#include "base/file.h"

typedef struct ps_torch_record {
    const char *name; /* without the archive's folder: "data.pkl", "data/0" */
    int64_t offset, n_bytes;
    uint32_t crc32;
} ps_torch_record;

typedef struct ps_torch_zip ps_torch_zip;

/* `file` must outlive the result. PS_EFORMAT with file, record or offset, expected and actual value, also for zip
 * features that PyTorch does not write (compression, encryption, several volumes), and for files older than PyTorch
 * 1.6. */
PS_NODISCARD ps_status ps_torch_zip_open(const ps_file *file, ps_torch_zip **out);
void ps_torch_zip_close(ps_torch_zip *z); /* NULL is accepted */

int ps_torch_zip_count(const ps_torch_zip *z);
const ps_torch_record *ps_torch_zip_get(const ps_torch_zip *z, int i); /* in the order of the file; valid until close */
const ps_torch_record *ps_torch_zip_find(const ps_torch_zip *z, const char *name); /* NULL when there is none */

/* Read a whole small record, and check its CRC-32 (unless 0, as PyTorch can omit it). The caller frees *data by
 * ps_mem_free. Larger than max_bytes is PS_EFORMAT. */
PS_NODISCARD ps_status ps_torch_zip_read(const ps_torch_zip *z, const ps_torch_record *record, int64_t max_bytes,
                                         char **data);

#endif
