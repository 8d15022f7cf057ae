/* Grids of cuda_rope.cu. */
#include "kernel/cuda/cuda_operator.h"

/* Sixteen for each multiprocessor of the largest GPU: a block has several positions of one angle or more. */
#define GRID_MAX 2112

static ps_status rope(const ps_cuda_issuer *to, const void *args)
{
    const ps_rope_args *const a = args;
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(rope, a->dtype), ps_min_i64(a->B * a->T, GRID_MAX), a);
}

const ps_cuda_operator ps_cuda_rope = {.run = rope};
