/* tensor_piece.h - pieces of tensors in checkpoints. A tensor whose chunks belong to several ranks is stored in pieces,
 * each in its owner's file:
 *
 *     "wte.weight[0:2097152]"          F32 [2097152]     elements 0 to 2097151 of the tensor, row after row
 *     __metadata__ "shape:wte.weight"  "50257,768"       of the whole tensor
 *
 * Of compact states a piece is groups (base/compact.h):
 *
 *     "wte.weight.exp_avg[0:2097152]"   U8 [65536, 36]    of 32 elements each
 *
 * A name of this form without such metadata is an ordinary name. Every element is in exactly one piece, so the files of
 * all ranks together have the whole tensor. */
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

/* Parse tensor number i of a file as a piece; *is_piece is false for a whole tensor. PS_EFORMAT when range, size or
 * shape are invalid. */
PS_NODISCARD ps_status ps_tensor_piece_read(const char *path, const ps_safetensors *file, int i, ps_tensor_piece *out,
                                            bool *is_piece);

/* Whether the elements [first, first + n) begin at *reached (initially 0), which is then set to their end. Pieces in
 * ascending order are complete when each one follows, and *reached is at last the tensor's number of elements. */
bool ps_tensor_piece_follows(int64_t *reached, int64_t first, int64_t n);

#endif
