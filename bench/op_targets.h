/* op_targets.h - the share of its roofline that each operator should reach on an H100, written down before any of it was
 * measured: of max(FLOP / rate of large bf16 products, bytes / rate of y = a + b over large arrays), both as `pstar info --measure` finds
 * them, with the FLOP and bytes of kernel/cost.h. */
#ifndef PS_BENCH_OP_TARGETS_H
#define PS_BENCH_OP_TARGETS_H

#include <string.h>

#include "base/base.h"
#include "kernel/kernel.h"

typedef struct op_target_entry {
    const char *name; /* of the operator, or how the names of several begin; the first that fits counts */
    double share;
    const char *why;
} op_target_entry;

static const op_target_entry op_targets[] = {
    {"linear_bwd_weight", 0.70,
     "cuBLASLt; few tiles of the result, so sums are split among blocks and added; the bias's gradient is another "
     "pass"},
    {"linear", 0.75, "cuBLASLt; 768 columns are 6 tiles of 128, and a wave of 132 multiprocessors is not always full"},
    {"attention_bwd", 0.30,
     "mma.sync m16n8k16 reaches 300 to 350 of 788 TFLOP/s in FlashAttention-2; two passes for fixed sums compute "
     "scores twice (7 products for 5). The tiles in f32, which other head sizes take: 0.03"},
    {"attention", 0.35,
     "mma.sync m16n8k16 reaches 300 to 350 of 788 TFLOP/s in FlashAttention-2, less with heads of 64; cuDNN by wgmma "
     "0.75. "
     "The tiles in f32, which other head sizes take: 0.04"},
    {"lm_loss", 0.60,
     "products in slices of 4096 tokens of the vocabulary, whose logits are written in f32 and read again"},
    {"layernorm_bwd", 0.75,
     "rows in registers; gradients of weight and bias are summed in the same pass, and added over blocks at the end"},
    {"rmsnorm_bwd", 0.75,
     "rows in registers; the weight's gradient is summed in the same pass, and added over blocks at the end"},
    {"layernorm", 0.85, "a row stays in registers between its sums and its result"},
    {"rmsnorm", 0.85, "a row stays in registers between its sum and its result"},
    {"embedding_bwd", 0.35,
     "rows are sorted by token in six or nine small kernels, then a warp adds those of a token in order; a table is "
     "cleared first"},
    {"embedding", 0.70, "rows of 1.5 KB from all over the table"},
    {"position_bwd", 0.50, "a position is added over the batch by one thread a column"},
    {"position", 0.85, "a stream, and a table that the caches hold"},
    {"dropout", 0.80, "random numbers by counter cost as much as the traffic"},
    {"fill", 0.30, "normal numbers: logarithm, root and cosine in integers and f32, not memory"},
    {"gelu", 0.90, "a stream with one exponential an element"},
    {"swiglu", 0.90, "a stream with one exponential an element"},
    {"rope", 0.80, "a stream in place; sines of a position are computed once a block"},
    {"adam", 0.90, "a stream of 28 bytes an element over six arrays; square root and division hide behind it"},
    {"grad_stats", 0.85, "one array is read; sums of blocks are added in order at the end"},
    {"dequantize", 0.80, "a stream of 4 or 8 bits that becomes one of 16: most of it is written"},
    {"cast", 0.92, "a stream"},
    {"add", 0.95, "a stream of 16 bits, beside the one of 32 bits that the rate was measured by"},
};

enum { OP_TARGETS = PS_ARRAY_LEN(op_targets) };

/* Every operator that bench_op runs has one. */
static inline const op_target_entry *op_target(ps_op op)
{
    for (size_t i = 0; i < OP_TARGETS; i++)
        if (strncmp(ps_op_name(op), op_targets[i].name, strlen(op_targets[i].name)) == 0) return &op_targets[i];
    fprintf(stderr, "op_targets.h: no share of the roofline for %s\n", ps_op_name(op));
    exit(1);
}

#endif
