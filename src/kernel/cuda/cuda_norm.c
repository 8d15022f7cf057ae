/* Grids and scratch of cuda_norm.cu: a warp a row; gradients of weights as partial sums down blocks of rows. */
#include "kernel/cuda/cuda_operator.h"

#define ROWS_A_BLOCK(kernel) (PS_CUDA_THREADS_##kernel / PS_CUDA_WARP)

static ps_status layernorm_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_layernorm_fwd_args *const a = args;
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(layernorm_fwd, a->dtype),
                          ps_ceil_div(a->rows, ROWS_A_BLOCK(layernorm_fwd)), a);
}

const ps_cuda_operator ps_cuda_layernorm_fwd = {.run = layernorm_fwd};

static ps_status rmsnorm_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_rmsnorm_fwd_args *const a = args;
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(rmsnorm_fwd, a->dtype), ps_ceil_div(a->rows, ROWS_A_BLOCK(rmsnorm_fwd)),
                          a);
}

const ps_cuda_operator ps_cuda_rmsnorm_fwd = {.run = rmsnorm_fwd};

static int64_t layernorm_bwd_bytes(const void *args, int64_t product_bytes)
{
    const ps_layernorm_bwd_args *const a = args;
    (void)product_bytes;
    return 2 * ps_cuda_columns_bytes(a->rows, a->cols);
}

/* Partial sums first, as dx may lie over dy; dw last, as it may lie over w. */
static ps_status layernorm_bwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_layernorm_bwd_args *const a = args;
    char *workspace = a->workspace;
    const int64_t bytes = ps_cuda_columns_bytes(a->rows, a->cols);
    float *const dw = ps_cuda_take(&workspace, bytes), *const db = ps_cuda_take(&workspace, bytes);
    ps_cuda_columns_args c = {.x = a->dy, .rows = a->rows, .cols = a->cols, .stride = a->cols};
    PS_TRY(ps_cuda_column_partials(to, a->dtype, c, db));
    c.normal = a->x, c.mean = a->mean, c.rstd = a->rstd;
    PS_TRY(ps_cuda_column_partials(to, a->dtype, c, dw));
    PS_TRY(PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(layernorm_bwd, a->dtype),
                          ps_ceil_div(a->rows, ROWS_A_BLOCK(layernorm_bwd)), a));
    PS_TRY(ps_cuda_column_sums(to, dw, a->rows, a->cols, a->dw, a->grad_dtype, a->accumulate_grad));
    return ps_cuda_column_sums(to, db, a->rows, a->cols, a->db, a->grad_dtype, a->accumulate_grad);
}

const ps_cuda_operator ps_cuda_layernorm_bwd = {.run = layernorm_bwd, .workspace_bytes = layernorm_bwd_bytes};

static int64_t rmsnorm_bwd_bytes(const void *args, int64_t product_bytes)
{
    const ps_rmsnorm_bwd_args *const a = args;
    (void)product_bytes;
    return ps_cuda_columns_bytes(a->rows, a->cols);
}

/* In this order for the reasons of layernorm_bwd. */
static ps_status rmsnorm_bwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_rmsnorm_bwd_args *const a = args;
    const ps_cuda_columns_args c = {
        .x = a->dy, .rows = a->rows, .cols = a->cols, .stride = a->cols, .normal = a->x, .rstd = a->rstd};
    PS_TRY(ps_cuda_column_partials(to, a->dtype, c, a->workspace));
    PS_TRY(
        PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(rmsnorm_bwd, a->dtype), ps_ceil_div(a->rows, ROWS_A_BLOCK(rmsnorm_bwd)), a));
    return ps_cuda_column_sums(to, a->workspace, a->rows, a->cols, a->dw, a->grad_dtype, a->accumulate_grad);
}

const ps_cuda_operator ps_cuda_rmsnorm_bwd = {.run = rmsnorm_bwd, .workspace_bytes = rmsnorm_bwd_bytes};
