/* read_stream.h - a thread that reads ranges of files in order, ahead of the consumer.
 *
 * Threads: one consumer. Files must stay open and the array of ranges valid until the stream is closed. */
#ifndef PS_WEIGHTS_READ_STREAM_H
#define PS_WEIGHTS_READ_STREAM_H

#include "base/file.h"
#include "weights/piece_ring.h"

/* Memory between the two threads. */
#define PS_READ_STREAM_BYTES (8 * PS_MIB)

/* A byte range of a file. */
typedef struct ps_read_range {
    const ps_file *file;
    int64_t offset, n_bytes;
} ps_read_range;

typedef struct ps_read_stream ps_read_stream;

/* Begin to read n ranges. PS_ENOMEM_HOST, or PS_EIO when no thread can be started. */
PS_NODISCARD ps_status ps_read_stream_open(const ps_read_range *ranges, int n, ps_read_stream **out);

/* Wait for the next piece of at most 1 MiB: `index` is its range, `offset` is in its file; the data is valid until the
 * next call. False at the end, or after a failure, which close reports. */
bool ps_read_stream_take(ps_read_stream *s, ps_ring_piece *out);

/* Read exactly the next n_bytes into dst. PS_EIO: failure of the reading thread. */
PS_NODISCARD ps_status ps_read_stream_read(ps_read_stream *s, void *dst, int64_t n_bytes);

/* Stop reading, and free everything. Returns the failure of the reading thread, or PS_OK. NULL is accepted. */
PS_NODISCARD ps_status ps_read_stream_close(ps_read_stream *s);

#endif
