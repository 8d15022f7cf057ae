/* Grids and scratch of cuda_rope.cu. Heads that are not 2, 4, ... 32 vectors of 16 bytes are normalised and rotated by
 * separate kernels. */
#include "kernel/cuda/cuda_operator.h"

/* Sixteen for each multiprocessor of the largest GPU: a block has several positions of one angle or more. */
#define GRID_MAX 2112

static ps_status rope(const ps_cuda_issuer *to, const void *args)
{
    const ps_rope_args *const a = args;
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(rope, a->dtype), ps_min_i64(a->B * a->T, GRID_MAX), a);
}

const ps_cuda_operator ps_cuda_rope = {.run = rope};

/* ---- with the norm of each head ---- */

static bool is_one_pass(int64_t D, ps_dtype t)
{
    const int64_t vector = PS_CUDA_VECTOR_BYTES / (int64_t)ps_dtype_bytes(t), n = D / vector;
    return D % vector == 0 && n >= 2 && n <= PS_CUDA_WARP && (n & (n - 1)) == 0 && D / 2 <= PS_CUDA_THREADS_rope;
}

static ps_status rmsnorm_rope_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_rmsnorm_rope_fwd_args *const a = args;
    const ps_rmsnorm_fwd_args norm = {.y = a->y,
                                      .rstd = a->rstd,
                                      .x = a->x,
                                      .w = a->w,
                                      .rows = a->B * a->T * a->H,
                                      .cols = a->D,
                                      .eps = a->eps,
                                      .dtype = a->dtype};
    const ps_rope_args turned = {.y = a->y,
                                 .x = a->y,
                                 .inv_freq = a->inv_freq,
                                 .B = a->B,
                                 .T = a->T,
                                 .H = a->H,
                                 .D = a->D,
                                 .first = a->first,
                                 .scale = a->scale,
                                 .dtype = a->dtype};
    if (is_one_pass(a->D, a->dtype))
        return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(rmsnorm_rope_fwd, a->dtype), ps_min_i64(a->B * a->T, GRID_MAX), a);
    PS_TRY(ps_cuda_rmsnorm_fwd.run(to, &norm));
    return rope(to, &turned);
}

const ps_cuda_operator ps_cuda_rmsnorm_rope_fwd = {.run = rmsnorm_rope_fwd};

/* In backward each block has a partial sum, so no more blocks than are resident on an H100. */
#define BWD_BLOCKS_MAX 528

static int64_t bwd_blocks(const ps_rmsnorm_rope_bwd_args *a)
{
    return ps_min_i64(a->B * a->T, BWD_BLOCKS_MAX);
}

/* dx has the intermediate gradient. */
static ps_rmsnorm_bwd_args norm_of_bwd(const ps_rmsnorm_rope_bwd_args *a)
{
    return (ps_rmsnorm_bwd_args){.dx = a->dx,
                                 .dw = a->dw,
                                 .dy = a->dx,
                                 .x = a->x,
                                 .w = a->w,
                                 .rstd = a->rstd,
                                 .rows = a->B * a->T * a->H,
                                 .cols = a->D,
                                 .dtype = a->dtype,
                                 .grad_dtype = a->grad_dtype,
                                 .accumulate_grad = a->accumulate_grad,
                                 .workspace = a->workspace};
}

static int64_t rmsnorm_rope_bwd_bytes(const void *args, int64_t gemm_bytes)
{
    const ps_rmsnorm_rope_bwd_args *const a = args;
    const ps_rmsnorm_bwd_args norm = norm_of_bwd(a);
    if (is_one_pass(a->D, a->dtype)) return ps_cuda_floats(bwd_blocks(a) * a->D);
    return ps_cuda_rmsnorm_bwd.workspace_bytes(&norm, gemm_bytes);
}

static ps_status rmsnorm_rope_bwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_rmsnorm_rope_bwd_args *const a = args;
    const ps_rmsnorm_bwd_args norm = norm_of_bwd(a);
    const ps_cuda_rmsnorm_rope_bwd_args both = {.a = *a, .partial = a->workspace};
    const ps_rope_args back = {.y = a->dx,
                               .x = a->dy,
                               .inv_freq = a->inv_freq,
                               .B = a->B,
                               .T = a->T,
                               .H = a->H,
                               .D = a->D,
                               .first = a->first,
                               .scale = a->scale,
                               .inverse = true,
                               .dtype = a->dtype};
    if (!is_one_pass(a->D, a->dtype)) {
        PS_TRY(rope(to, &back));
        return ps_cuda_rmsnorm_bwd.run(to, &norm);
    }
    PS_TRY(PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(rmsnorm_rope_bwd, a->dtype), bwd_blocks(a), &both));
    return ps_cuda_add_partials(to, &(ps_cuda_partials_args){.y = a->dw,
                                                             .partial = both.partial,
                                                             .n_partials = bwd_blocks(a),
                                                             .cols = a->D,
                                                             .n_arrays = 1,
                                                             .dtype = a->grad_dtype,
                                                             .accumulate = a->accumulate_grad});
}

const ps_cuda_operator ps_cuda_rmsnorm_rope_bwd = {.run = rmsnorm_rope_bwd, .workspace_bytes = rmsnorm_rope_bwd_bytes};
