/* Adam is memory-bound. The operations are those of the reference, in the same order and without FMA, so that master, m
 * and v have the same bits on every backend, step after step. */
#include "kernel/cpu/cpu_vec.h"

/* Prefetch distance in elements of each array. A square root and a division delay later instructions for longer than
 * the reorder window of a core (bench/notes.md). */
#define ADAM_AHEAD 512

/* Prefetching past the end of an array is harmless. */
PS_CPU_INLINE void adam_ask(ps_dtype t, const void *array, int64_t i)
{
    __builtin_prefetch((const void *)((uintptr_t)array + (uintptr_t)(i + ADAM_AHEAD) * ps_dtype_bytes(t)));
}

PS_CPU_INLINE void adam_range(ps_dtype param_t, ps_dtype grad_t, const ps_adam_args *a, int64_t lo, int64_t hi)
{
    const float step = a->lr / a->bias1, shrink = 1.0f / sqrtf(a->bias2), decay = a->lr * a->weight_decay;
    for (int64_t i = lo; i < hi; i += VF_LANES) {
        const int64_t n = hi - i;
        adam_ask(PS_DTYPE_F32, a->master, i);
        adam_ask(PS_DTYPE_F32, a->m, i);
        adam_ask(PS_DTYPE_F32, a->v, i);
        adam_ask(grad_t, a->grad, i);
        vf w = vf_get(PS_DTYPE_F32, a->master, i, n);
        vf g = vf_get(grad_t, a->grad, i, n) * a->grad_scale;
        if (a->decoupled_decay)
            w = w - decay * w;
        else
            g = g + a->weight_decay * w;
        const vf m = a->beta1 * vf_get(PS_DTYPE_F32, a->m, i, n) + a->one_minus_beta1 * g;
        const vf v = a->beta2 * vf_get(PS_DTYPE_F32, a->v, i, n) + a->one_minus_beta2 * (g * g);
        w = w - (step * m) / (vf_sqrt(v) * shrink + a->eps);
        vf_put(PS_DTYPE_F32, a->m, i, n, m);
        vf_put(PS_DTYPE_F32, a->v, i, n, v);
        vf_put(PS_DTYPE_F32, a->master, i, n, w);
        vf_put(param_t, a->param, i, n, w);
    }
}

PS_CPU_INLINE void adam_param(ps_dtype param_t, const ps_adam_args *a, int64_t lo, int64_t hi)
{
#define CALL(t) adam_range(param_t, t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->grad_dtype, CALL);
#undef CALL
}

static void adam_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_adam_args *const a = args;
#define CALL(t) adam_param(t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->param_dtype, CALL);
#undef CALL
}

static ps_status adam(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_adam_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_blocks(self, a->n, adam_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(adam) = {.run = adam};
