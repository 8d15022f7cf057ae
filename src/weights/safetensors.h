/* safetensors.h - named arrays in a file (huggingface/safetensors).
 *
 *     u64 N | N bytes of JSON, padded with spaces to a multiple of 8 | data
 *     {"__metadata__": {text: text}, name: {"dtype": "BF16", "shape": [..], "data_offsets": [begin, end]}, ...}
 *
 * Offsets count from the start of the data. All little-endian. Opening checks the whole header: its length, names,
 * dtypes, shapes against sizes (without overflow), and that the tensors cover the data without holes or overlap.
 *
 * Threads: several threads can read an open file at once; one thread at a time may use a writer. */
#ifndef PS_WEIGHTS_SAFETENSORS_H
#define PS_WEIGHTS_SAFETENSORS_H

#include "base/file.h"
#include "base/status.h"

#define PS_SAFETENSORS_DIMS_MAX 8

/* name in the file, bytes of an element */
#define PS_SAFETENSORS_DTYPE_MAP(XX)                                                                                   \
    XX(F64, 8)                                                                                                         \
    XX(I64, 8)                                                                                                         \
    XX(U64, 8)                                                                                                         \
    XX(F32, 4)                                                                                                         \
    XX(I32, 4)                                                                                                         \
    XX(U32, 4)                                                                                                         \
    XX(BF16, 2)                                                                                                        \
    XX(F16, 2)                                                                                                         \
    XX(I16, 2)                                                                                                         \
    XX(U16, 2)                                                                                                         \
    XX(F8_E4M3, 1)                                                                                                     \
    XX(F8_E5M2, 1)                                                                                                     \
    XX(I8, 1)                                                                                                          \
    XX(U8, 1)                                                                                                          \
    XX(BOOL, 1)

typedef enum ps_safetensors_dtype {
#define XX(name, bytes) PS_SAFETENSORS_##name,
    PS_SAFETENSORS_DTYPE_MAP(XX)
#undef XX
        PS_SAFETENSORS_DTYPE_COUNT,
} ps_safetensors_dtype;

const char *ps_safetensors_dtype_name(ps_safetensors_dtype t); /* "BF16" */
int64_t ps_safetensors_dtype_bytes(ps_safetensors_dtype t);

typedef struct ps_safetensor {
    const char *name;
    ps_safetensors_dtype dtype;
    int n_dims; /* 0 to PS_SAFETENSORS_DIMS_MAX; 0 is a scalar */
    int64_t shape[PS_SAFETENSORS_DIMS_MAX];
    int64_t n_bytes; /* set by the reader; the writer computes it */
    int64_t offset;  /* of the first byte in the file; likewise */
} ps_safetensor;

typedef struct ps_safetensors_metadata {
    const char *key, *value;
} ps_safetensors_metadata;

/* ---- reading ---- */

typedef struct ps_safetensors ps_safetensors;

/* PS_EIO; PS_EFORMAT with file, tensor or offset, expected and actual value, also for an unknown dtype or too many
 * dimensions. */
PS_NODISCARD ps_status ps_safetensors_open(const char *path, ps_safetensors **out);
void ps_safetensors_close(ps_safetensors *s); /* NULL is accepted */

/* Tensor i in [0, count), in the order of their data; valid until close. */
int ps_safetensors_count(const ps_safetensors *s);
const ps_safetensor *ps_safetensors_get(const ps_safetensors *s, int i);
const ps_safetensor *ps_safetensors_find(const ps_safetensors *s, const char *name); /* NULL when there is none */

/* Value of a __metadata__ key, NULL when there is none; valid until close. */
const char *ps_safetensors_metadata_value(const ps_safetensors *s, const char *key);

/* Read bytes [offset, offset + n_bytes) of the tensor's data into dst; the range must be in the tensor. */
PS_NODISCARD ps_status ps_safetensors_read(const ps_safetensors *s, const ps_safetensor *tensor, int64_t offset,
                                           void *dst, int64_t n_bytes);

const ps_file *ps_safetensors_file(const ps_safetensors *s); /* open until close */

/* ---- writing: all or nothing, as ps_file_writer ---- */

typedef struct ps_safetensors_writer ps_safetensors_writer;

/* Write the header for n tensors. Data are ordered by element size, largest first, then in the given order, so that
 * each tensor is aligned to its elements. No argument is kept. PS_EINVAL for duplicate names, a name or text that is
 * not UTF-8, a negative dimension, or sizes that overflow. */
PS_NODISCARD ps_status ps_safetensors_writer_open(const char *path, const ps_safetensor *tensors, int n,
                                                  const ps_safetensors_metadata *metadata, int n_metadata,
                                                  ps_safetensors_writer **out);

/* Append n_bytes to tensor i (index in the array given to open). The pieces of one tensor come in order; different
 * tensors may be interleaved. More bytes than the tensor has are PS_EINVAL. */
PS_NODISCARD ps_status ps_safetensors_writer_append(ps_safetensors_writer *w, int i, const void *data, int64_t n_bytes);

/* Write bytes [offset, offset + n_bytes) of tensor i, in any order, each byte once. A tensor is written either so or by
 * appending. */
PS_NODISCARD ps_status ps_safetensors_writer_put(ps_safetensors_writer *w, int i, int64_t offset, const void *data,
                                                 int64_t n_bytes);

/* xxh3 (64 bit, seed 0: `xxhsum -H3`) and size of the whole file; all tensors must be written. Data that are written in
 * the order of the file are hashed while writing; the rest is read back. */
PS_NODISCARD ps_status ps_safetensors_writer_xxh3(ps_safetensors_writer *w, uint64_t *xxh3, int64_t *n_bytes);

/* Make the file durable under its name, and free the writer, also after a failure. PS_ESTATE, and no file, when bytes
 * of a tensor are missing. */
PS_NODISCARD ps_status ps_safetensors_writer_commit(ps_safetensors_writer *w);

/* Abort: remove the file, and free the writer. NULL is accepted. */
void ps_safetensors_writer_cancel(ps_safetensors_writer *w);

#endif
