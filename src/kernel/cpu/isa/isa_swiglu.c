/* swiglu: y = gate s up with the sigmoid s of gate. */
#include "kernel/cpu/cpu_vec.h"

/* vf_exp never gives infinity: s would stay near 4e-39 for all large negative x, and x s would not go to zero. */
PS_CPU_INLINE vf swiglu_sigmoid(vf x)
{
    return vf_where(x < -88.0f, vf_set1(0.0f), 1.0f / (1.0f + vf_exp(-x)));
}

PS_CPU_INLINE void swiglu_fwd_range(ps_dtype t, const ps_swiglu_fwd_args *a, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i += VF_LANES) {
        const vf gate = vf_get(t, a->gate, i, hi - i);
        vf_put(t, a->y, i, hi - i, gate * swiglu_sigmoid(gate) * vf_get(t, a->up, i, hi - i));
    }
}

static void swiglu_fwd_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_swiglu_fwd_args *const a = args;
#define CALL(t) swiglu_fwd_range(t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status swiglu_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_swiglu_fwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_blocks(self, a->n, swiglu_fwd_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(swiglu_fwd) = {.run = swiglu_fwd};

PS_CPU_INLINE void swiglu_bwd_range(ps_dtype t, const ps_swiglu_bwd_args *a, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i += VF_LANES) {
        const vf gate = vf_get(t, a->gate, i, hi - i), up = vf_get(t, a->up, i, hi - i);
        const vf dy = vf_get(t, a->dy, i, hi - i), s = swiglu_sigmoid(gate);
        vf dgate = dy * up * s * vf_fma(gate, 1.0f - s, vf_set1(1.0f)), dup = dy * (gate * s);
        if (a->accumulate_dgate) dgate += vf_get(t, a->dgate, i, hi - i);
        if (a->accumulate_dup) dup += vf_get(t, a->dup, i, hi - i);
        vf_put(t, a->dgate, i, hi - i, dgate);
        vf_put(t, a->dup, i, hi - i, dup);
    }
}

static void swiglu_bwd_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_swiglu_bwd_args *const a = args;
#define CALL(t) swiglu_bwd_range(t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status swiglu_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_swiglu_bwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_blocks(self, a->n, swiglu_bwd_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(swiglu_bwd) = {.run = swiglu_bwd};
