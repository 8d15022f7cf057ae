/* Grids of cuda_head_loss.cu: losses of heads with few outputs; and the sums of losses, of cuda_stats.cu. */
#include "kernel/cuda/cuda_operator.h"

static ps_status values_loss_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_values_loss_fwd_args *const a = args;
    return PS_CUDA_LAUNCH(to, PS_CUDA_values_loss_fwd, ps_cuda_blocks_of(a->n, 1, PS_CUDA_THREADS_values_loss_fwd), a);
}

const ps_cuda_operator ps_cuda_values_loss_fwd = {.run = values_loss_fwd};

static ps_status values_loss_bwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_values_loss_bwd_args *const a = args;
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(values_loss_bwd, a->dtype),
                          ps_cuda_blocks_of(a->n, 1, PS_CUDA_THREADS_values_loss_bwd), a);
}

const ps_cuda_operator ps_cuda_values_loss_bwd = {.run = values_loss_bwd};

/* One warp per column: two of each sequence. */
static int64_t column_blocks(int64_t B, int64_t threads)
{
    return ps_ceil_div(B * 2, threads / PS_CUDA_WARP);
}

static ps_status span_loss_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_span_loss_fwd_args *const a = args;
    return PS_CUDA_LAUNCH(to, PS_CUDA_span_loss_fwd, column_blocks(a->B, PS_CUDA_THREADS_span_loss_fwd), a);
}

const ps_cuda_operator ps_cuda_span_loss_fwd = {.run = span_loss_fwd};

static ps_status span_loss_bwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_span_loss_bwd_args *const a = args;
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(span_loss_bwd, a->dtype),
                          column_blocks(a->B, PS_CUDA_THREADS_span_loss_bwd), a);
}

const ps_cuda_operator ps_cuda_span_loss_bwd = {.run = span_loss_bwd};

static ps_status loss_sums(const ps_cuda_issuer *to, const void *args)
{
    return PS_CUDA_LAUNCH(to, PS_CUDA_loss_sums, 1, (const ps_loss_sums_args *)args);
}

const ps_cuda_operator ps_cuda_loss_sums = {.run = loss_sums};
