/* Grids of cuda_elementwise.cu and cuda_optim.cu, for operators that are one kernel with no scratch. */
#include "kernel/cuda/cuda_operator.h"

static int64_t blocks(int64_t n, ps_dtype t, int64_t threads)
{
    return ps_cuda_blocks_of(n, 16 / (int64_t)ps_dtype_bytes(t), threads);
}

#define ELEMENTWISE(op)                                                                                                \
    static ps_status op(const ps_cuda_issuer *to, const void *args)                                                    \
    {                                                                                                                  \
        const ps_##op##_args *const a = args;                                                                          \
        return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(op, a->dtype), blocks(a->n, a->dtype, PS_CUDA_THREADS_##op), a);     \
    }                                                                                                                  \
    const ps_cuda_operator ps_cuda_##op = {.run = op};

ELEMENTWISE(gelu_fwd)
ELEMENTWISE(gelu_bwd)
ELEMENTWISE(swiglu_fwd)
ELEMENTWISE(swiglu_bwd)
ELEMENTWISE(tanh_fwd)
ELEMENTWISE(tanh_bwd)
ELEMENTWISE(relu_fwd)
ELEMENTWISE(relu_bwd)
ELEMENTWISE(add)
ELEMENTWISE(dropout)
ELEMENTWISE(dequantize)

#define PAIRED(op, first, second)                                                                                      \
    static ps_status op(const ps_cuda_issuer *to, const void *args)                                                    \
    {                                                                                                                  \
        const ps_##op##_args *const a = args;                                                                          \
        return PS_CUDA_LAUNCH(to, PS_CUDA_OF_PAIR(op, a->first, a->second),                                            \
                              ps_cuda_blocks_of(a->n, 4, PS_CUDA_THREADS_##op), a);                                    \
    }                                                                                                                  \
    const ps_cuda_operator ps_cuda_##op = {.run = op};

PAIRED(cast, dst_dtype, src_dtype)

static ps_status sgd(const ps_cuda_issuer *to, const void *args)
{
    const ps_sgd_args *const a = args;
    const bool is_compact = a->is_compact && a->buffer != NULL;
    const ps_cuda_kernel kernel = is_compact ? PS_CUDA_OF_PAIR(sgd_compact, a->param_dtype, a->grad_dtype)
                                             : PS_CUDA_OF_PAIR(sgd, a->param_dtype, a->grad_dtype);
    return PS_CUDA_LAUNCH(to, kernel, ps_cuda_blocks_of(a->n, is_compact ? 1 : 4, PS_CUDA_THREADS_sgd), a);
}

const ps_cuda_operator ps_cuda_sgd = {.run = sgd};

static ps_status lion(const ps_cuda_issuer *to, const void *args)
{
    const ps_lion_args *const a = args;
    const ps_cuda_kernel kernel = a->is_compact ? PS_CUDA_OF_PAIR(lion_compact, a->param_dtype, a->grad_dtype)
                                                : PS_CUDA_OF_PAIR(lion, a->param_dtype, a->grad_dtype);
    return PS_CUDA_LAUNCH(to, kernel, ps_cuda_blocks_of(a->n, a->is_compact ? 1 : 4, PS_CUDA_THREADS_lion), a);
}

const ps_cuda_operator ps_cuda_lion = {.run = lion};

static ps_status adam(const ps_cuda_issuer *to, const void *args)
{
    const ps_adam_args *const a = args;
    const ps_cuda_kernel kernel = a->is_stochastic ? PS_CUDA_OF_TYPE(adam_stochastic, a->grad_dtype)
                                  : a->is_compact  ? PS_CUDA_OF_PAIR(adam_compact, a->param_dtype, a->grad_dtype)
                                                   : PS_CUDA_OF_PAIR(adam, a->param_dtype, a->grad_dtype);
    return PS_CUDA_LAUNCH(to, kernel, ps_cuda_blocks_of(a->n, a->is_compact ? 1 : 4, PS_CUDA_THREADS_adam), a);
}

const ps_cuda_operator ps_cuda_adam = {.run = adam};

/* Two words give a pair of normal numbers. */
static ps_status fill(const ps_cuda_issuer *to, const void *args)
{
    const ps_fill_args *const a = args;
    return PS_CUDA_LAUNCH(to, PS_CUDA_fill, ps_cuda_blocks_of(a->n, 1, PS_CUDA_THREADS_fill), a);
}

const ps_cuda_operator ps_cuda_fill = {.run = fill};

/* Several blocks of elements each; all add to one sum at the end. */
static ps_status grad_stats(const ps_cuda_issuer *to, const void *args)
{
    const ps_grad_stats_args *const a = args;
    const int64_t n = ps_min_i64(ps_ceil_div(a->n, 4 * PS_GRAD_STATS_BLOCK), 1024);
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(grad_stats, a->dtype), n, a);
}

const ps_cuda_operator ps_cuda_grad_stats = {.run = grad_stats};
