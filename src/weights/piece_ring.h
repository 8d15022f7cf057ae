/* piece_ring.h - pieces of tensors on their way from one thread to another, through a block of memory of fixed size.
 *
 *     | record | data | record | data |      free      | record | data |
 *                                     ^ head (put)     ^ tail (taken)
 *
 * A piece that is too large for what is free goes through as several. One thread puts, one takes. */
#ifndef PS_WEIGHTS_PIECE_RING_H
#define PS_WEIGHTS_PIECE_RING_H

#include <stdbool.h>

#include "base/status.h"

#define PS_PIECE_RING_BYTES_MIN 16384

typedef struct ps_piece_ring ps_piece_ring;

/* A range of the bytes of array number `index`; what the arrays are is the users' business. */
typedef struct ps_ring_piece {
    int32_t index;
    int64_t offset, n_bytes;
    const void *data;
} ps_ring_piece;

/* block: at least PS_PIECE_RING_BYTES_MIN; it must outlive the ring. Pieces are aligned as it is, up to 64 bytes. */
PS_NODISCARD ps_status ps_piece_ring_create(void *block, int64_t bytes, ps_piece_ring **out);
void ps_piece_ring_destroy(ps_piece_ring *r); /* NULL is accepted; nobody may be waiting */

/* Copies the data; waits while the ring is full. Not after close. */
void ps_piece_ring_put(ps_piece_ring *r, const ps_ring_piece *piece);
/* The same in two steps, for bytes that are read from somewhere: room for the next *n_bytes (at least 1, at most what
 * is wanted), then its publication. */
void *ps_piece_ring_reserve(ps_piece_ring *r, int64_t wanted_bytes, int64_t *n_bytes);
void ps_piece_ring_publish(ps_piece_ring *r, int32_t index, int64_t offset, int64_t n_bytes);
void ps_piece_ring_close(ps_piece_ring *r); /* nothing more will come */

/* Waits for the next piece, which may be less than one that was put; data is valid until the next take. False: the ring
 * was closed and is empty. */
bool ps_piece_ring_take(ps_piece_ring *r, ps_ring_piece *out);

#endif
