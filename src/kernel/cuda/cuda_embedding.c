/* Grids and scratch of cuda_embedding.cu. */
#include "kernel/cuda/cuda_operator.h"

#define GRID_MAX 65536

static ps_status embedding_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_embedding_fwd_args *const a = args;
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(embedding_fwd, a->dtype), ps_min_i64(a->rows, GRID_MAX), a);
}

const ps_cuda_operator ps_cuda_embedding_fwd = {.run = embedding_fwd};

/* ---- backward ---- */

static int64_t segments(int64_t rows)
{
    return ps_ceil_div(rows, PS_CUDA_SORT_ROWS);
}

/* Two orders of rows, and counts of digits. */
static int64_t embedding_bwd_bytes(const void *args, int64_t gemm_bytes)
{
    const ps_embedding_bwd_args *const a = args;
    (void)gemm_bytes;
    return 2 * ps_cuda_floats(a->rows) + ps_cuda_floats(PS_CUDA_SORT_DIGITS * segments(a->rows));
}

/* *sorted <- the rows in order of their ids, in scratch taken from *workspace. */
static ps_status sort_rows(const ps_cuda_issuer *to, const ps_embedding_bwd_args *a, char **workspace,
                           const int32_t **sorted)
{
    int32_t *const orders[2] = {ps_cuda_take(workspace, ps_cuda_floats(a->rows)),
                                ps_cuda_take(workspace, ps_cuda_floats(a->rows))};
    const int64_t n_segments = segments(a->rows);
    const int64_t n_counts = PS_CUDA_SORT_DIGITS * n_segments;
    const ps_cuda_embedding_scan_args scan = {.n = n_counts,
                                              .counts = ps_cuda_take(workspace, ps_cuda_floats(n_counts))};
    *sorted = NULL;
    for (int shift = 0, i = 0; shift == 0 || (a->V - 1) >> shift > 0; shift += PS_CUDA_SORT_BITS, i = 1 - i) {
        const ps_cuda_embedding_sort_args pass = {
            .ids = a->ids, .from = *sorted, .to = orders[i], .counts = scan.counts, .rows = a->rows, .shift = shift};
        PS_TRY(PS_CUDA_LAUNCH(to, PS_CUDA_embedding_count, n_segments, &pass));
        PS_TRY(PS_CUDA_LAUNCH(to, PS_CUDA_embedding_scan, 1, &scan));
        PS_TRY(PS_CUDA_LAUNCH(to, PS_CUDA_embedding_place, n_segments, &pass));
        *sorted = pass.to;
    }
    return PS_OK;
}

/* Warps of embedding_sum that share a row, where they read vectors and where not. */
static int64_t tiles(const ps_embedding_bwd_args *a)
{
    const int64_t width = PS_CUDA_VECTOR_BYTES / (int64_t)ps_dtype_bytes(a->dtype),
                  a_tile = PS_CUDA_WARP * (a->cols % width == 0 ? width : 1);
    return ps_ceil_div(a->cols, a_tile);
}

static ps_status embedding_bwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_embedding_bwd_args *const a = args;
    char *workspace = a->workspace;
    const int64_t n_warps = a->rows * tiles(a), warps_a_block = PS_CUDA_THREADS_embedding_sum / PS_CUDA_WARP;
    ps_cuda_embedding_sum_args sum = {
        .dw = a->dw, .dy = a->dy, .ids = a->ids, .rows = a->rows, .cols = a->cols, .grad_dtype = a->grad_dtype};
    if (!a->accumulate_grad) PS_TRY(ps_cuda_zero(to, a->dw, a->V * a->cols * (int64_t)ps_dtype_bytes(a->grad_dtype)));
    if (a->rows == 0) return PS_OK;
    PS_TRY(sort_rows(to, a, &workspace, &sum.sorted));
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(embedding_sum, a->dtype),
                          ps_min_i64(ps_ceil_div(n_warps, warps_a_block), GRID_MAX), &sum);
}

const ps_cuda_operator ps_cuda_embedding_bwd = {.run = embedding_bwd, .workspace_bytes = embedding_bwd_bytes};

static ps_status position_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_position_fwd_args *const a = args;
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(position_fwd, a->dtype),
                          ps_cuda_blocks_of(a->B * a->T * a->cols, 4, PS_CUDA_THREADS_position_fwd), a);
}

const ps_cuda_operator ps_cuda_position_fwd = {.run = position_fwd};

static ps_status position_bwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_position_bwd_args *const a = args;
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(position_bwd, a->dtype),
                          ps_cuda_blocks_of(a->n_positions * a->cols, 1, PS_CUDA_THREADS_position_bwd), a);
}

const ps_cuda_operator ps_cuda_position_bwd = {.run = position_bwd};

static ps_status pool_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_pool_fwd_args *const a = args;
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(pool_fwd, a->dtype), a->B, a);
}

const ps_cuda_operator ps_cuda_pool_fwd = {.run = pool_fwd};

static ps_status pool_bwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_pool_bwd_args *const a = args;
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(pool_bwd, a->dtype), a->B * a->T, a);
}

const ps_cuda_operator ps_cuda_pool_bwd = {.run = pool_bwd};
