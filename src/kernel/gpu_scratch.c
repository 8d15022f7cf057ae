/* gpu_scratch.c - what scratch a GPU's kernels need, by the way in which such kernels are written:
 *
 *   products        the workspace of the library: cuBLASLt picks its algorithms by it. "cuBLAS API Reference",
 *                   cublasSetWorkspace: 32 MiB for Hopper, 4 MiB for others
 *   sums over rows  (gradients of biases and norms) one partial sum a block of rows, added in a second kernel
 * attention no [T, T] array: forward has its tile and the running sums in registers (Dao et al., "FlashAttention",
 * 2022). Backward goes over keys, and adds up dq in f32; and has D = rowsum(dy y) (Dao, "FlashAttention-2",
 *                   2023). Rows are rounded up to tiles
 * decoding keys are divided among blocks, each with a partial result and its sum (Dao et al., "Flash-Decoding", 2023)
 *   embeddings      ids are sorted by radix, with their rows, from one array into another, so that sums have an order
 * head and loss a slice of the vocabulary at a time, as the contract says; its logits in f32, of backward also rounded
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

static int64_t product(const void *args, int64_t product_bytes)
{
    (void)args;
    return product_bytes;
}

static int64_t linear_bwd_weight(const void *args, int64_t product_bytes)
{
    const ps_linear_bwd_weight_args *const a = args;
    return product_bytes + row_sums(a->rows, a->n_out);
}

static int64_t layernorm_bwd(const void *args, int64_t product_bytes)
{
    const ps_layernorm_bwd_args *const a = args;
    (void)product_bytes;
    return 2 * row_sums(a->rows, a->cols);
}

static int64_t rmsnorm_bwd(const void *args, int64_t product_bytes)
{
    const ps_rmsnorm_bwd_args *const a = args;
    (void)product_bytes;
    return row_sums(a->rows, a->cols);
}

static int64_t attention_bwd(const void *args, int64_t product_bytes)
{
    const ps_attention_bwd_args *const a = args;
    (void)product_bytes;
    const int64_t rows = a->B * a->H * ps_round_up(a->T, TILE_ROWS);
    return floats(rows) + floats(rows * ps_round_up(a->D, TILE_COLS));
}

static int64_t attention_cached(const void *args, int64_t product_bytes)
{
    const ps_attention_cached_args *const a = args;
    (void)product_bytes;
    const int64_t blocks = ps_min_i64(ps_ceil_div(a->n_positions, KEYS_A_BLOCK), KEY_BLOCKS_MAX);
    return floats(blocks * a->T * a->H * (a->D + 2));
}

static int64_t embedding_bwd(const void *args, int64_t product_bytes)
{
    const ps_embedding_bwd_args *const a = args;
    (void)product_bytes;
    const int64_t ids_and_rows = 2 * a->rows;
    return 2 * floats(ids_and_rows) + SORT_BYTES;
}

/* Running maximum and sum of each row, and its best so far. */
static int64_t lm_loss_fwd(const void *args, int64_t product_bytes)
{
    const ps_lm_loss_fwd_args *const a = args;
    const int64_t slice = a->keeps_logits ? 0 : floats(a->rows * ps_min_i64(a->V, SLICE));
    return product_bytes + slice + 3 * floats(a->rows);
}

/* dx is a sum over slices, in f32. */
static int64_t lm_loss_bwd(const void *args, int64_t product_bytes)
{
    const ps_lm_loss_bwd_args *const a = args;
    const int64_t cols = ps_min_i64(a->V, SLICE), n = a->rows * cols;
    const int64_t rounded = ps_round_up(n * (int64_t)ps_dtype_bytes(a->dtype), ALIGN);
    return product_bytes + (a->keeps_logits ? 0 : floats(n)) + rounded + floats(a->rows * a->C) +
           row_sums(a->rows, cols);
}

static int64_t (*const needs[PS_OP_COUNT])(const void *args, int64_t product_bytes) = {
    [PS_OP_linear_fwd] = product,
    [PS_OP_linear_bwd_input] = product,
    [PS_OP_linear_bwd_weight] = linear_bwd_weight,
    [PS_OP_layernorm_bwd] = layernorm_bwd,
    [PS_OP_rmsnorm_bwd] = rmsnorm_bwd,
    [PS_OP_attention_bwd] = attention_bwd,
    [PS_OP_attention_cached] = attention_cached,
    [PS_OP_embedding_bwd] = embedding_bwd,
    [PS_OP_lm_loss_fwd] = lm_loss_fwd,
    [PS_OP_lm_loss_bwd] = lm_loss_bwd,
};

int64_t ps_gpu_scratch_bytes(ps_op op, const void *args, int64_t product_bytes)
{
    return needs[op] != NULL ? needs[op](args, product_bytes) : 0;
}
