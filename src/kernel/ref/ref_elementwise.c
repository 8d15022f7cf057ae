#include "kernel/ref/ref.h"

#include <math.h>

ps_status ps_ref_add(ps_backend *self, ps_stream *queue, const void *args, size_t workspace_bytes)
{
    const ps_add_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++)
        ps_ref_store(a->dtype, a->y, i, ps_ref_load(a->dtype, a->a, i) + ps_ref_load(a->dtype, a->b, i), false);
    return PS_OK;
}

ps_status ps_ref_dropout(ps_backend *self, ps_stream *queue, const void *args, size_t workspace_bytes)
{
    const ps_dropout_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    PS_ASSERT(a->p >= 0.0f && a->p < 1.0f);
    const uint32_t threshold = ps_dropout_threshold(a->p);
    for (int64_t i = 0; i < a->n; i++) {
        const bool kept = ps_rng_u32(a->key, (uint64_t)i) >= threshold;
        const double value = kept ? ps_ref_load(a->dtype, a->x, i) / (1.0 - (double)a->p) : 0.0;
        ps_ref_store(a->dtype, a->y, i, value, a->accumulate);
    }
    return PS_OK;
}

ps_status ps_ref_tanh_fwd(ps_backend *self, ps_stream *queue, const void *args, size_t workspace_bytes)
{
    const ps_tanh_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) ps_ref_store(a->dtype, a->y, i, tanh(ps_ref_load(a->dtype, a->x, i)), false);
    return PS_OK;
}

ps_status ps_ref_tanh_bwd(ps_backend *self, ps_stream *queue, const void *args, size_t workspace_bytes)
{
    const ps_tanh_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) {
        const double y = ps_ref_load(a->dtype, a->y, i);
        ps_ref_store(a->dtype, a->dx, i, ps_ref_load(a->dtype, a->dy, i) * (1.0 - y * y), a->accumulate_dx);
    }
    return PS_OK;
}
