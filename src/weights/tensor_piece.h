/* tensor_piece.h - a tensor whose chunks belong to several ranks is stored in pieces, each in its owner's file:
 *
 *     "wte.weight[0:2097152]"          F32 [2097152]     elements 0 to 2097151 of the tensor, row after row
 *     __metadata__ "shape:wte.weight"  "50257,768"       of the whole tensor
 *
 * A name of this form without such metadata is a tensor's own. Every element is in exactly one piece: the union of all
 * ranks' files is the whole. */
#ifndef PS_WEIGHTS_TENSOR_PIECE_H
#define PS_WEIGHTS_TENSOR_PIECE_H

#include <stdbool.h>

#include "weights/safetensors.h"

#define PS_TENSOR_PIECE_NAME_MAX 320

typedef struct ps_tensor_piece {
    char name[PS_TENSOR_PIECE_NAME_MAX]; /* of the whole tensor */
    int n_dims;                          /* of the whole tensor, as shape */
    int64_t shape[PS_SAFETENSORS_DIMS_MAX];
    int64_t elements; /* of the whole tensor */
    int64_t first, n; /* the piece is elements [first, first + n) of it */
} ps_tensor_piece;

/* Name of the piece [first, first + n), and key and value of the metadata. PS_EINVAL when the tensor's name is too
 * long. */
PS_NODISCARD ps_status ps_tensor_piece_name(const char *tensor, int64_t first, int64_t n,
                                            char name[PS_TENSOR_PIECE_NAME_MAX]);
PS_NODISCARD ps_status ps_tensor_piece_key(const char *tensor, char key[PS_TENSOR_PIECE_NAME_MAX]);
void ps_tensor_piece_shape(int n_dims, const int64_t *shape, char value[PS_TENSOR_PIECE_NAME_MAX]);

/* What tensor number i of a file is a piece of; *is_piece is false when it is a tensor of its own. PS_EFORMAT when
 * range, size or shape cannot be. */
PS_NODISCARD ps_status ps_tensor_piece_read(const char *path, const ps_safetensors *file, int i, ps_tensor_piece *out,
                                            bool *is_piece);

/* Whether the elements [first, first + n) come right after those before: *reached, 0 to begin with, is then the end of
 * theirs. Pieces in ascending order make up their tensor when each follows and the last one reaches its number of
 * elements. */
bool ps_tensor_piece_follows(int64_t *reached, int64_t first, int64_t n);

#endif
