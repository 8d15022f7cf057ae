/* Gradient descent is memory-bound, but where the buffer is compact. The operations are those of the reference, in the
 * same order and without FMA, so that master and momentum have the same bits on every backend, step after step. */
#include "kernel/cpu/cpu_compact.h"

/* A vector from element i on; *m becomes that of this step. */
PS_CPU_INLINE void sgd_vector(ps_dtype param_t, ps_dtype grad_t, bool has_buffer, const ps_sgd_args *a, int64_t i,
                              int64_t n, vf *m)
{
    vf w = vf_get(PS_DTYPE_F32, a->master, i, n);
    const vf g = vf_get(grad_t, a->grad, i, n) * a->grad_scale + a->weight_decay * w;
    vf d = g;
    if (has_buffer) {
        *m = a->momentum * *m + a->one_minus_dampening * g;
        d = a->nesterov ? g + a->momentum * *m : *m;
    }
    w = w - a->lr * d;
    vf_put(PS_DTYPE_F32, a->master, i, n, w);
    vf_put(param_t, a->param, i, n, w);
}

PS_CPU_INLINE void sgd_floats(ps_dtype param_t, ps_dtype grad_t, const ps_sgd_args *a, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i += VF_LANES) {
        vf m = vf_set1(0);
        if (a->buffer != NULL) m = vf_get(PS_DTYPE_F32, a->buffer, i, hi - i);
        sgd_vector(param_t, grad_t, a->buffer != NULL, a, i, hi - i, &m);
        if (a->buffer != NULL) vf_put(PS_DTYPE_F32, a->buffer, i, hi - i, m);
    }
}

PS_CPU_INLINE void sgd_vector_with_momentum(ps_dtype param_t, ps_dtype grad_t, const void *args, int64_t i, int64_t n,
                                            vf *m)
{
    sgd_vector(param_t, grad_t, true, args, i, n, m);
}

PS_CPU_INLINE void sgd_range(ps_dtype param_t, ps_dtype grad_t, const ps_sgd_args *a, int64_t lo, int64_t hi)
{
    if (a->is_compact && a->buffer != NULL)
        update_compact_groups(sgd_vector_with_momentum, param_t, grad_t, a, a->buffer, lo, hi);
    else
        sgd_floats(param_t, grad_t, a, lo, hi);
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
