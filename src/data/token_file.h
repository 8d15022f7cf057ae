/* token_file.h - token ids on disk, memory-mapped.
 *
 * The format is that of llm.c (karpathy/llm.c, dev/data): a header of 256 little-endian int32, then the ids.
 *     header[0] magic      20240520      20240801
 *     header[1] version    1             7
 *     header[2] number of tokens, 1 to 2^31 - 1; header[3..255] are 0 when written, ignored when read
 *     ids                  uint16        uint32
 * The bare format of nanoGPT (karpathy/nanoGPT, data/openwebtext/prepare.py: uint16 ids, no header) is read when the
 * caller asks for it, or from files whose name ends in ".u16", as such a file cannot be distinguished from a damaged
 * file of the other format.
 *
 * Every error names the file and the offset. A file that shrinks while open is PS_EIO at the next read, unless
 * it shrinks during that read (base/file.h, mapping). Pages are released after reading, so a file of any size adds no
 * resident memory.
 *
 * Threads: several threads can read an open file at once; one thread at a time may use a writer. */
#ifndef PS_DATA_TOKEN_FILE_H
#define PS_DATA_TOKEN_FILE_H

#include "base/status.h"

typedef struct ps_token_file ps_token_file;

typedef enum ps_token_format {
    PS_TOKEN_FORMAT_BY_NAME, /* nanoGPT's for "*.u16", else llm.c's */
    PS_TOKEN_FORMAT_LLMC,    /* either version */
    PS_TOKEN_FORMAT_NANOGPT,
} ps_token_format;

/* Open and validate: magic, version, size against the count (truncated or too long), at least one token.
 * PS_EFORMAT with file, offset, expected and found; PS_EIO. */
PS_NODISCARD ps_status ps_token_file_open(const char *path, ps_token_file **out); /* by name */
PS_NODISCARD ps_status ps_token_file_open_as(const char *path, ps_token_format format, ps_token_file **out);
void ps_token_file_close(ps_token_file *f); /* NULL is accepted */

int64_t ps_token_file_count(const ps_token_file *f);

/* Read tokens [first, first + n) into out. The range must be in the file. An id outside of [0, vocab_size) is
 * PS_EFORMAT with its position. */
PS_NODISCARD ps_status ps_token_file_read(const ps_token_file *f, int64_t first, int64_t n, int32_t vocab_size,
                                          int32_t *out);

/* Read the whole file once, and check that all ids are in [0, vocab_size). */
PS_NODISCARD ps_status ps_token_file_check(const ps_token_file *f, int32_t vocab_size);

/* ---- writing: all or nothing, with a header ---- */

typedef struct ps_token_writer ps_token_writer;

/* For ids below vocab_size >= 1: uint16 when vocab_size is at most 65536, else uint32. PS_EIO. */
PS_NODISCARD ps_status ps_token_writer_open(const char *path, int32_t vocab_size, ps_token_writer **out);

/* Append ids. PS_EINVAL for ids outside of the vocabulary, and when the file would have more than 2^31 - 1. */
PS_NODISCARD ps_status ps_token_writer_append(ps_token_writer *w, const int32_t *ids, int64_t n_ids);

/* Make the file durable under its name, and free the writer, also after a failure. PS_EINVAL for a file without ids. */
PS_NODISCARD ps_status ps_token_writer_commit(ps_token_writer *w);
void ps_token_writer_cancel(ps_token_writer *w); /* NULL is accepted */

/* Write n_ids (1 to 2^31 - 1) ids >= 0 with a header: uint16 when all are below 65536, else uint32. */
PS_NODISCARD ps_status ps_token_file_write(const char *path, const int32_t *ids, int64_t n_ids);

#endif
