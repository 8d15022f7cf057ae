#include "kernel/ref/ref.h"

#include <math.h>

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static ps_status swiglu_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_swiglu_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) {
        const double gate = ps_ref_load(a->dtype, a->gate, i), up = ps_ref_load(a->dtype, a->up, i);
        ps_ref_store(a->dtype, a->y, i, gate * sigmoid(gate) * up, false);
    }
    return PS_OK;
}

static ps_cost swiglu_fwd_cost(const void *args)
{
    const ps_swiglu_fwd_args *const a = args;
    return ps_cost_of_stream(a->n, 3, 15, a->dtype);
}

static void swiglu_fwd_uses(const void *args, ps_uses *out)
{
    const ps_swiglu_fwd_args *const a = args;
    PS_REF_WRITES(y, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(gate, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(up, ps_ref_bytes(a->dtype, a->n));
}

const ps_operator ps_operator_swiglu_fwd = {
    .reference = {.run = swiglu_fwd}, .cost = swiglu_fwd_cost, .uses = swiglu_fwd_uses};

static ps_status swiglu_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_swiglu_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) {
        const double gate = ps_ref_load(a->dtype, a->gate, i), up = ps_ref_load(a->dtype, a->up, i);
        const double dy = ps_ref_load(a->dtype, a->dy, i), sg = sigmoid(gate);
        ps_ref_store(a->dtype, a->dgate, i, dy * up * sg * (1.0 + gate * (1.0 - sg)), a->accumulate_dgate);
        ps_ref_store(a->dtype, a->dup, i, dy * gate * sg, a->accumulate_dup);
    }
    return PS_OK;
}

static ps_cost swiglu_bwd_cost(const void *args)
{
    const ps_swiglu_bwd_args *const a = args;
    return ps_cost_of_stream(a->n, 5, 20, a->dtype);
}

static void swiglu_bwd_uses(const void *args, ps_uses *out)
{
    const ps_swiglu_bwd_args *const a = args;
    PS_REF_WRITES(dgate, ps_ref_bytes(a->dtype, a->n));
    PS_REF_WRITES(dup, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(dy, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(gate, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(up, ps_ref_bytes(a->dtype, a->n));
}

const ps_operator ps_operator_swiglu_bwd = {
    .reference = {.run = swiglu_bwd}, .cost = swiglu_bwd_cost, .uses = swiglu_bwd_uses};
