/* piece_ring.h - a ring buffer for pieces of tensors, from one producer thread to one consumer thread.
 *
 *     | record | data | record | data |      free      | record | data |
 *                                     ^ head (put)     ^ tail (taken)
 *
 * A piece that is larger than the free space is transferred as several pieces. */
#ifndef PS_WEIGHTS_PIECE_RING_H
#define PS_WEIGHTS_PIECE_RING_H

#include <stdbool.h>

#include "base/status.h"

#define PS_PIECE_RING_BYTES_MIN 16384

typedef struct ps_piece_ring ps_piece_ring;

/* A byte range of array number `index`; the users define the arrays. */
typedef struct ps_ring_piece {
    int32_t index;
    int64_t offset, n_bytes;
    const void *data;
} ps_ring_piece;

/* block: at least PS_PIECE_RING_BYTES_MIN; it must outlive the ring. Pieces are aligned as it is, up to 64 bytes. */
PS_NODISCARD ps_status ps_piece_ring_create(void *block, int64_t bytes, ps_piece_ring **out);
void ps_piece_ring_destroy(ps_piece_ring *r); /* NULL is accepted; no thread may be waiting */

/* Copy the data; blocks while the ring is full. Not after close. */
void ps_piece_ring_put(ps_piece_ring *r, const ps_ring_piece *piece);
/* The same in two steps, for a producer that reads data into the ring: reserve the next *n_bytes (at least 1, at most
 * the requested number), then publish them. */
void *ps_piece_ring_reserve(ps_piece_ring *r, int64_t wanted_bytes, int64_t *n_bytes);
void ps_piece_ring_publish(ps_piece_ring *r, int32_t index, int64_t offset, int64_t n_bytes);
void ps_piece_ring_close(ps_piece_ring *r); /* end of data */

/* Wait for the next piece, which may be a part of one that was put. Its data is valid until the next take. False: the
 * ring is closed and empty. */
bool ps_piece_ring_take(ps_piece_ring *r, ps_ring_piece *out);

#endif
