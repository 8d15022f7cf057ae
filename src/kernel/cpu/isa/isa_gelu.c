/* gelu of both kinds: y = x G(x), with G the normal distribution function or its approximation. */
#include "kernel/cpu/cpu_vec.h"

/* G and its derivative. 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)): no cancellation for large negative u. */
PS_CPU_INLINE vf gelu_gate(ps_gelu_kind kind, vf x, vf *derivative)
{
    if (kind == PS_GELU_TANH) {
        const vf c = vf_set1(-1.5957691216057308f); /* -2 sqrt(2 / pi) */
        const vf x2 = x * x;
        const vf g = 1.0f / (1.0f + vf_exp(c * x * vf_fma(x2, vf_set1(0.044715f), vf_set1(1.0f))));
        *derivative = -c * vf_fma(x2, vf_set1(3 * 0.044715f), vf_set1(1.0f)) * g * (1.0f - g);
        return g;
    }
    *derivative = 0.3989422804014327f * vf_exp(-0.5f * x * x);
    return 0.5f * vf_erfc(-0.7071067811865476f * x);
}

PS_CPU_INLINE void gelu_fwd_range(ps_dtype t, const ps_gelu_fwd_args *a, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i += VF_LANES) {
        const vf x = vf_get(t, a->x, i, hi - i);
        vf unused;
        const vf g = a->kind == PS_GELU_TANH ? gelu_gate(PS_GELU_TANH, x, &unused) : gelu_gate(PS_GELU_ERF, x, &unused);
        vf_put(t, a->y, i, hi - i, x * g);
    }
}

static void gelu_fwd_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_gelu_fwd_args *const a = args;
#define CALL(t) gelu_fwd_range(t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status gelu_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_gelu_fwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_blocks(self, a->n, gelu_fwd_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(gelu_fwd) = {.run = gelu_fwd};

PS_CPU_INLINE void gelu_bwd_range(ps_dtype t, const ps_gelu_bwd_args *a, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i += VF_LANES) {
        const vf x = vf_get(t, a->x, i, hi - i), dy = vf_get(t, a->dy, i, hi - i);
        vf d;
        const vf g = a->kind == PS_GELU_TANH ? gelu_gate(PS_GELU_TANH, x, &d) : gelu_gate(PS_GELU_ERF, x, &d);
        vf dx = dy * vf_fma(x, d, g);
        if (a->accumulate_dx) dx += vf_get(t, a->dx, i, hi - i);
        vf_put(t, a->dx, i, hi - i, dx);
    }
}

static void gelu_bwd_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_gelu_bwd_args *const a = args;
#define CALL(t) gelu_bwd_range(t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status gelu_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_gelu_bwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_blocks(self, a->n, gelu_bwd_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(gelu_bwd) = {.run = gelu_bwd};
