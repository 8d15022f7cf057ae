/* pieces.h - tensors cut at chunk borders. A piece is the part of one tensor in one chunk: the unit of updates, of
 * checkpoints, and of collectives. */
#ifndef PS_STATE_PIECES_H
#define PS_STATE_PIECES_H

#include "base/status.h"
#include "chunk/layout.h"

typedef struct ps_piece {
    int32_t tensor, chunk;
    int64_t chunk_offset, tensor_offset, n; /* elements */
} ps_piece;

typedef struct ps_pieces {
    ps_piece *all;            /* [n] by chunk: those of chunk i are [first[i], first[i + 1]), as they lie there */
    int32_t *first;           /* [n_chunks + 1] */
    int32_t *by_tensor;       /* [n] indices into all: those of tensor i of the layout, in order, are
                                [first_of_tensor[i], first_of_tensor[i + 1]) */
    int32_t *first_of_tensor; /* [n_tensors + 1] */
    int32_t n;
} ps_pieces;

/* tensors: [layout->n_tensors] the number used in pieces for each tensor of the layout; NULL: the layout's own.
 * PS_ENOMEM_HOST; then *p is empty. */
PS_NODISCARD ps_status ps_pieces_cut(const ps_layout *layout, const int32_t *tensors, ps_pieces *p);
void ps_pieces_deinit(ps_pieces *p); /* an empty one is accepted */

/* The piece with element `at` of a tensor of the layout, from that element on, of at most n elements. `tensor` is the
 * layout's number. */
ps_piece ps_piece_from(const ps_layout *layout, int32_t tensor, int64_t at, int64_t n);

#endif
