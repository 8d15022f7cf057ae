/* Grids and scratch of cuda_embedding.cu. */
#include "kernel/cuda/cuda_operator.h"

#define GRID_MAX 65536

static ps_status embedding_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_embedding_fwd_args *const a = args;
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(embedding_fwd, a->dtype), ps_min_i64(a->rows, GRID_MAX), a);
}

const ps_cuda_operator ps_cuda_embedding_fwd = {.run = embedding_fwd};

/* Rows in order of their ids, another array of them, and counters. */
#define SORT_COUNTS (PS_CUDA_SORT_DIGITS * PS_CUDA_THREADS_embedding_sort)

static int64_t embedding_bwd_bytes(const void *args, int64_t gemm_bytes)
{
    const ps_embedding_bwd_args *const a = args;
    (void)gemm_bytes;
    return 2 * ps_cuda_floats(a->rows) + ps_cuda_floats(SORT_COUNTS);
}

static ps_status embedding_bwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_embedding_bwd_args *const a = args;
    char *workspace = a->workspace;
    if (!a->accumulate_grad) PS_TRY(ps_cuda_zero(to, a->dw, a->V * a->cols * (int64_t)ps_dtype_bytes(a->grad_dtype)));
    if (a->rows == 0) return PS_OK;
    const ps_cuda_embedding_sort_args sort = {.ids = a->ids,
                                              .sorted = ps_cuda_take(&workspace, ps_cuda_floats(a->rows)),
                                              .other = ps_cuda_take(&workspace, ps_cuda_floats(a->rows)),
                                              .counts = ps_cuda_take(&workspace, ps_cuda_floats(SORT_COUNTS)),
                                              .rows = a->rows,
                                              .V = a->V};
    const ps_cuda_embedding_sum_args sum = {.dw = a->dw,
                                            .dy = a->dy,
                                            .ids = a->ids,
                                            .sorted = sort.sorted,
                                            .rows = a->rows,
                                            .cols = a->cols,
                                            .grad_dtype = a->grad_dtype};
    PS_TRY(PS_CUDA_LAUNCH(to, PS_CUDA_embedding_sort, 1, &sort));
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(embedding_sum, a->dtype), ps_min_i64(a->rows, GRID_MAX), &sum);
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
