/* byte_source.h - reads a file from its begin to its end; what gzip or zstd has compressed is decompressed, whatever
 * its name: the first bytes tell (RFC 1952, RFC 8878). Several members or frames in one file are one text,
 * and zeros after the last member of gzip are padding.
 *
 * Memory: 64 KiB, and for zstd the window of the frame, at most 128 MiB (as of zstd -22); frames with a larger one
 * (zstd --long=28 and up) are refused. One thread at a time. */
#ifndef PS_DATA_BYTE_SOURCE_H
#define PS_DATA_BYTE_SOURCE_H

#include <stdbool.h>

#include "base/status.h"

typedef struct ps_byte_source ps_byte_source;

typedef enum ps_compression {
    PS_COMPRESSION_NONE,
    PS_COMPRESSION_GZIP,
    PS_COMPRESSION_ZSTD,
} ps_compression;

/* PS_EIO; errors of ps_file_open. */
PS_NODISCARD ps_status ps_byte_source_open(const char *path, ps_byte_source **out);
void ps_byte_source_close(ps_byte_source *s); /* NULL is accepted */

/* Read up to n_max bytes, n_max > 0; *n = 0 at the end only. PS_EFORMAT for damaged or truncated compressed bytes, with
 * their offset in the file; PS_EIO. */
PS_NODISCARD ps_status ps_byte_source_read(ps_byte_source *s, char *out, int64_t n_max, int64_t *n);

ps_compression ps_byte_source_compression(const ps_byte_source *s);
const char *ps_byte_source_path(const ps_byte_source *s);

/* Bytes of the file if they are not compressed, else -1: known at the end only. */
int64_t ps_byte_source_bytes(const ps_byte_source *s);

/* Read all, with a terminating zero byte, into memory of just this size; freed by ps_mem_free. More than max_bytes is
 * PS_EFORMAT, found before there is memory for them; the message ends with `limit`. */
PS_NODISCARD ps_status ps_byte_source_read_all(const char *path, int64_t max_bytes, const char *limit, char **out,
                                               int64_t *n_bytes);

#endif
