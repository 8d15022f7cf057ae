#include "kernel/ref/ref.h"

#include <math.h>

static ps_status add(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_add_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++)
        ps_ref_store(a->dtype, a->y, i, ps_ref_load(a->dtype, a->a, i) + ps_ref_load(a->dtype, a->b, i), false);
    return PS_OK;
}

static ps_cost add_cost(const void *args)
{
    const ps_add_args *const a = args;
    return ps_cost_of_stream(a->n, 3, 1, a->dtype);
}

static void add_uses(const void *args, ps_uses *out)
{
    const ps_add_args *const a = args;
    PS_REF_WRITES(y, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(a, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(b, ps_ref_bytes(a->dtype, a->n));
}

const ps_operator ps_operator_add = {.reference = {.run = add}, .cost = add_cost, .uses = add_uses};

static ps_status dropout(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_dropout_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    PS_ASSERT(a->p >= 0.0f && a->p < 1.0f && !(a->has_residual && a->accumulate));
    const uint32_t threshold = ps_dropout_threshold(a->p);
    for (int64_t i = 0; i < a->n; i++) {
        const bool kept = ps_rng_u32(a->key, (uint64_t)i) >= threshold;
        const double value = kept ? ps_ref_load(a->dtype, a->x, i) * (double)a->scale / (1.0 - (double)a->p) : 0.0;
        if (!a->has_residual)
            ps_ref_store(a->dtype, a->y, i, value, a->accumulate);
        else
            ps_ref_store(a->dtype, a->y, i, ps_ref_load(a->dtype, a->residual, i) + ps_ref_rounded(a->dtype, value),
                         false);
    }
    return PS_OK;
}

static ps_cost dropout_cost(const void *args)
{
    const ps_dropout_args *const a = args;
    return ps_cost_of_stream(a->n, a->has_residual ? 3 : 2, 25, a->dtype);
}

static void dropout_uses(const void *args, ps_uses *out)
{
    const ps_dropout_args *const a = args;
    PS_REF_WRITES(y, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(x, ps_ref_bytes(a->dtype, a->n));
    if (a->has_residual) PS_REF_READS(residual, ps_ref_bytes(a->dtype, a->n));
}

const ps_operator ps_operator_dropout = {.reference = {.run = dropout}, .cost = dropout_cost, .uses = dropout_uses};

static ps_status tanh_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_tanh_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) ps_ref_store(a->dtype, a->y, i, tanh(ps_ref_load(a->dtype, a->x, i)), false);
    return PS_OK;
}

static ps_cost tanh_fwd_cost(const void *args)
{
    const ps_tanh_fwd_args *const a = args;
    return ps_cost_of_stream(a->n, 2, 15, a->dtype);
}

static void tanh_fwd_uses(const void *args, ps_uses *out)
{
    const ps_tanh_fwd_args *const a = args;
    PS_REF_WRITES(y, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(x, ps_ref_bytes(a->dtype, a->n));
}

const ps_operator ps_operator_tanh_fwd = {.reference = {.run = tanh_fwd}, .cost = tanh_fwd_cost, .uses = tanh_fwd_uses};

static ps_status tanh_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_tanh_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) {
        const double y = ps_ref_load(a->dtype, a->y, i);
        ps_ref_store(a->dtype, a->dx, i, ps_ref_load(a->dtype, a->dy, i) * (1.0 - y * y), a->accumulate_dx);
    }
    return PS_OK;
}

static ps_cost tanh_bwd_cost(const void *args)
{
    const ps_tanh_bwd_args *const a = args;
    return ps_cost_of_stream(a->n, 3, 3, a->dtype);
}

static void tanh_bwd_uses(const void *args, ps_uses *out)
{
    const ps_tanh_bwd_args *const a = args;
    PS_REF_WRITES(dx, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(dy, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(y, ps_ref_bytes(a->dtype, a->n));
}

const ps_operator ps_operator_tanh_bwd = {.reference = {.run = tanh_bwd}, .cost = tanh_bwd_cost, .uses = tanh_bwd_uses};

static ps_status relu_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_relu_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) {
        const double x = ps_ref_load(a->dtype, a->x, i);
        ps_ref_store(a->dtype, a->y, i, x <= 0.0 ? 0.0 : x, false);
    }
    return PS_OK;
}

static ps_cost relu_fwd_cost(const void *args)
{
    const ps_relu_fwd_args *const a = args;
    return ps_cost_of_stream(a->n, 2, 1, a->dtype);
}

static void relu_fwd_uses(const void *args, ps_uses *out)
{
    const ps_relu_fwd_args *const a = args;
    PS_REF_WRITES(y, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(x, ps_ref_bytes(a->dtype, a->n));
}

const ps_operator ps_operator_relu_fwd = {.reference = {.run = relu_fwd}, .cost = relu_fwd_cost, .uses = relu_fwd_uses};

static ps_status relu_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_relu_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) {
        const double dy = ps_ref_load(a->dtype, a->dy, i);
        ps_ref_store(a->dtype, a->dx, i, ps_ref_load(a->dtype, a->y, i) <= 0.0 ? 0.0 : dy, a->accumulate_dx);
    }
    return PS_OK;
}

static ps_cost relu_bwd_cost(const void *args)
{
    const ps_relu_bwd_args *const a = args;
    return ps_cost_of_stream(a->n, 3, 1, a->dtype);
}

static void relu_bwd_uses(const void *args, ps_uses *out)
{
    const ps_relu_bwd_args *const a = args;
    PS_REF_WRITES(dx, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(dy, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(y, ps_ref_bytes(a->dtype, a->n));
}

const ps_operator ps_operator_relu_bwd = {.reference = {.run = relu_bwd}, .cost = relu_bwd_cost, .uses = relu_bwd_uses};
