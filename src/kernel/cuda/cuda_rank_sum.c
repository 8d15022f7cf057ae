/* cuda_rank_sum.c - sums over ranks, used by collectives; not an operator of a model. */
#include "kernel/cuda/cuda_operator.h"

ps_status ps_cuda_rank_sum(const ps_cuda_issuer *to, ps_dtype dtype, const ps_cuda_rank_sum_args *a)
{
    const int64_t width = 16 / (int64_t)ps_dtype_bytes(dtype); /* elements of a thread per access */
    const int64_t blocks = ps_cuda_blocks_of(a->n, width, PS_CUDA_THREADS_rank_sum);
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(rank_sum, dtype), blocks, a);
}
