/* gpu_scratch.c - what scratch a GPU's kernels need, by the way in which such kernels are written:
 *
 *   products        the workspace of the library: cuBLASLt picks its algorithms by it. "cuBLAS API Reference",
 *                   cublasSetWorkspace: 32 MiB for Hopper, 4 MiB for others
 *   sums over rows  (gradients of biases and norms) one partial sum a block of rows, added in a second kernel
 *   attention       no [T, T] array: forward has its tile and the running sums in registers (Dao et al., "FlashAttention",
 *                   2022). Backward goes over keys, and adds up dq in f32; and has D = rowsum(dy y) (Dao, "FlashAttention-2",
 *                   2023). Rows are rounded up to tiles
 *   decoding        keys are divided among blocks, each with a partial result and its sum (Dao et al., "Flash-Decoding", 2023)
 *   embeddings      ids are sorted by radix, with their rows, from one array into another, so that sums have an order
 *   head and loss   a slice of the vocabulary at a time, as the contract says; its logits in f32, of backward also rounded
 *
 * Operators that are not listed need none. */
#include "kernel/gpu_scratch.h"

#include "base/base.h"

#define ALIGN 256
/* Of sums over rows. */
#define ROWS_A_BLOCK 64
#define ROW_BLOCKS_MAX 128
/* Of attention. */
#define TILE_ROWS 128
#define TILE_COLS 32
#define KEYS_A_BLOCK 256
#define KEY_BLOCKS_MAX 128
/* Columns of logits at a time: with the rows of a micro-batch, enough for a whole GPU. */
#define SLICE 4096
/* Counters of a radix sort. */
#define SORT_BYTES (64 * PS_KIB)

static int64_t floats(int64_t n)
{
    return ps_round_up(n * (int64_t)sizeof(float), ALIGN);
}

static int64_t row_sums(int64_t rows, int64_t cols)
{
    return floats(ps_min_i64(ps_ceil_div(rows, ROWS_A_BLOCK), ROW_BLOCKS_MAX) * cols);
}

static int64_t linear_bwd_weight(const ps_linear_bwd_weight_args *a, int64_t product_bytes)
{
    return product_bytes + row_sums(a->rows, a->n_out);
}

static int64_t attention_bwd(const ps_attention_bwd_args *a)
{
    const int64_t rows = a->B * a->H * ps_round_up(a->T, TILE_ROWS);
    return floats(rows) + floats(rows * ps_round_up(a->D, TILE_COLS));
}

static int64_t attention_cached(const ps_attention_cached_args *a)
{
    const int64_t blocks = ps_min_i64(ps_ceil_div(a->n_positions, KEYS_A_BLOCK), KEY_BLOCKS_MAX);
    return floats(blocks * a->T * a->H * (a->D + 2));
}

static int64_t embedding_bwd(const ps_embedding_bwd_args *a)
{
    const int64_t ids_and_rows = 2 * a->rows;
    return 2 * floats(ids_and_rows) + SORT_BYTES;
}

/* Running maximum and sum of each row, and its best so far. */
static int64_t lm_loss_fwd(const ps_lm_loss_fwd_args *a, int64_t product_bytes)
{
    const int64_t slice = a->keeps_logits ? 0 : floats(a->rows * ps_min_i64(a->V, SLICE));
    return product_bytes + slice + 3 * floats(a->rows);
}

/* dx is a sum over slices, in f32. */
static int64_t lm_loss_bwd(const ps_lm_loss_bwd_args *a, int64_t product_bytes)
{
    const int64_t n = a->rows * ps_min_i64(a->V, SLICE);
    const int64_t rounded = ps_round_up(n * (int64_t)ps_dtype_bytes(a->dtype), ALIGN);
    return product_bytes + (a->keeps_logits ? 0 : floats(n)) + rounded + floats(a->rows * a->C) +
           row_sums(a->rows, ps_min_i64(a->V, SLICE));
}

int64_t ps_gpu_scratch_bytes(ps_op op, const void *args, int64_t product_bytes)
{
    switch (op) {
    case PS_OP_linear_fwd:
    case PS_OP_linear_bwd_input: return product_bytes;
    case PS_OP_linear_bwd_weight: return linear_bwd_weight(args, product_bytes);
    case PS_OP_layernorm_bwd: {
        const ps_layernorm_bwd_args *const a = args;
        return 2 * row_sums(a->rows, a->cols);
    }
    case PS_OP_rmsnorm_bwd: {
        const ps_rmsnorm_bwd_args *const a = args;
        return row_sums(a->rows, a->cols);
    }
    case PS_OP_attention_bwd: return attention_bwd(args);
    case PS_OP_attention_cached: return attention_cached(args);
    case PS_OP_embedding_bwd: return embedding_bwd(args);
    case PS_OP_lm_loss_fwd: return lm_loss_fwd(args, product_bytes);
    case PS_OP_lm_loss_bwd: return lm_loss_bwd(args, product_bytes);
    default: return 0;
    }
}
