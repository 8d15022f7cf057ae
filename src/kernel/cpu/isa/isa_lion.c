/* Lion is memory-bound, but where m is compact. The operations are those of the reference, in the same order and
 * without FMA, so that master and m have the same bits on every backend, step after step. */
#include "kernel/cpu/cpu_compact.h"

/* A vector from element i on; *m becomes that of this step. */
PS_CPU_INLINE void lion_vector(ps_dtype param_t, ps_dtype grad_t, const void *args, int64_t i, int64_t n, vf *m)
{
    const ps_lion_args *const a = args;
    const float decay = a->lr * a->weight_decay;
    const vf lr = vf_set1(a->lr), zero = vf_set1(0);
    const vf g = vf_get(grad_t, a->grad, i, n) * a->grad_scale;
    vf w = vf_get(PS_DTYPE_F32, a->master, i, n);
    const vf u = a->beta1 * *m + a->one_minus_beta1 * g;
    w = w - decay * w;
    w = w - vf_where(u > zero, lr, vf_where(u < zero, -lr, zero));
    *m = a->beta2 * *m + a->one_minus_beta2 * g;
    vf_put(PS_DTYPE_F32, a->master, i, n, w);
    vf_put(param_t, a->param, i, n, w);
}

PS_CPU_INLINE void lion_floats(ps_dtype param_t, ps_dtype grad_t, const ps_lion_args *a, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i += VF_LANES) {
        vf m = vf_get(PS_DTYPE_F32, a->m, i, hi - i);
        lion_vector(param_t, grad_t, a, i, hi - i, &m);
        vf_put(PS_DTYPE_F32, a->m, i, hi - i, m);
    }
}

PS_CPU_INLINE void lion_range(ps_dtype param_t, ps_dtype grad_t, const ps_lion_args *a, int64_t lo, int64_t hi)
{
    if (a->is_compact)
        update_compact_groups(lion_vector, param_t, grad_t, a, a->m, lo, hi);
    else
        lion_floats(param_t, grad_t, a, lo, hi);
}

PS_CPU_INLINE void lion_param(ps_dtype param_t, const ps_lion_args *a, int64_t lo, int64_t hi)
{
#define CALL(t) lion_range(param_t, t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->grad_dtype, CALL);
#undef CALL
}

static void lion_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_lion_args *const a = args;
#define CALL(t) lion_param(t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->param_dtype, CALL);
#undef CALL
}

static ps_status lion(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_lion_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_blocks(self, a->n, lion_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(lion) = {.run = lion};
