/* read_stream.h - ranges of files, read in order by a thread, ahead of the one who uses them: the disk works
 * meanwhile.
 *
 * Threads: one takes. The files must stay open and the array of ranges must stay valid until the stream is closed. */
#ifndef PS_WEIGHTS_READ_STREAM_H
#define PS_WEIGHTS_READ_STREAM_H

#include "base/file.h"
#include "weights/piece_ring.h"

/* Memory between the two threads. */
#define PS_READ_STREAM_BYTES (8 * PS_MIB)

/* Bytes that lie one after the other in a file. */
typedef struct ps_read_range {
    const ps_file *file;
    int64_t offset, n_bytes;
} ps_read_range;

typedef struct ps_read_stream ps_read_stream;

/* Begin to read n ranges. PS_ENOMEM_HOST, or PS_EIO when no thread can be started. */
PS_NODISCARD ps_status ps_read_stream_open(const ps_read_range *ranges, int n, ps_read_stream **out);

/* Waits for the next piece: `index` is its range, `offset` counts in its file; the data is valid until the next call.
 * False at the end, or after a failure, which closing reports. Pieces of at most 1 MiB. */
bool ps_read_stream_take(ps_read_stream *s, ps_ring_piece *out);

/* Exactly n_bytes into dst, from where the last taking ended. PS_EIO: what the reading thread failed with. */
PS_NODISCARD ps_status ps_read_stream_read(ps_read_stream *s, void *dst, int64_t n_bytes);

/* Stop reading and free all. What reading failed with, PS_OK when it did not. NULL is accepted. */
PS_NODISCARD ps_status ps_read_stream_close(ps_read_stream *s);

#endif
