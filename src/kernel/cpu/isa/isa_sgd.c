/* Gradient descent is memory-bound. The operations are those of the reference, in the same order and without FMA, so
 * that master and momentum have the same bits on every backend, step after step. */
#include "kernel/cpu/cpu_vec.h"

PS_CPU_INLINE void sgd_range(ps_dtype param_t, ps_dtype grad_t, const ps_sgd_args *a, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i += VF_LANES) {
        const int64_t n = hi - i;
        vf w = vf_get(PS_DTYPE_F32, a->master, i, n);
        const vf g = vf_get(grad_t, a->grad, i, n) * a->grad_scale + a->weight_decay * w;
        vf d = g;
        if (a->buffer != NULL) {
            const vf m = a->momentum * vf_get(PS_DTYPE_F32, a->buffer, i, n) + a->one_minus_dampening * g;
            vf_put(PS_DTYPE_F32, a->buffer, i, n, m);
            d = a->nesterov ? g + a->momentum * m : m;
        }
        w = w - a->lr * d;
        vf_put(PS_DTYPE_F32, a->master, i, n, w);
        vf_put(param_t, a->param, i, n, w);
    }
}

PS_CPU_INLINE void sgd_param(ps_dtype param_t, const ps_sgd_args *a, int64_t lo, int64_t hi)
{
#define CALL(t) sgd_range(param_t, t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->grad_dtype, CALL);
#undef CALL
}

static void sgd_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_sgd_args *const a = args;
#define CALL(t) sgd_param(t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->param_dtype, CALL);
#undef CALL
}

static ps_status sgd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_sgd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_blocks(self, a->n, sgd_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(sgd) = {.run = sgd};
