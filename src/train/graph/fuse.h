/* fuse.h - which two operators run as one instruction: because the second is an epilogue of the first one's matrix
 * multiplication, or because one kernel computes both (kernel.h).
 *
 *     forward     linear, gelu     x W + b and gelu of it; x W + b itself is written where backward reads it
 *                 linear, add      x W + b + residual
 *                 rms_norm, rope   each head normalised and rotated
 *                 dropout, add     dropout(x) + residual
 *     backward    gelu, linear     (dy W) gelu'(x), then the gradients of the linear layer
 *                 rms_norm, rope   dy rotated back, then the gradients of the norm
 *
 * The two are neighbours in the program, and only the second reads the output of the first. The result has the bits of
 * both run one after another, except for epilogues that a backend lists as unrounded (kernel.h); operators that it does
 * not list are not fused. For one program and backend the same nodes are fused with and without activation
 * checkpointing, where the bits depend on it. */
#ifndef PS_GRAPH_FUSE_H
#define PS_GRAPH_FUSE_H

#include "train/graph/program.h"

typedef enum ps_fuse_direction { PS_FUSE_FORWARD, PS_FUSE_BACKWARD } ps_fuse_direction;

typedef enum ps_fusion {
    PS_FUSION_NONE,
    PS_FUSION_EPILOGUE, /* the instruction is that of the linear node: first in forward, second in backward */
    PS_FUSION_PAIR,     /* the instruction is the first node's */
} ps_fusion;

/* Do nodes `first` and first + 1 run as one on this backend? The caller checks that both run at all, in one segment. */
ps_fusion ps_fuse(const ps_program *p, const ps_backend *backend, ps_fuse_direction direction, int32_t first);

#endif
