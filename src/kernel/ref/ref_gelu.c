#include "kernel/ref/ref.h"

#include <math.h>

static const double sqrt_2_over_pi = 0.79788456080286535588;
static const double cubic = 0.044715;

double ps_ref_gelu(ps_gelu_kind kind, double x)
{
    const double t = kind == PS_GELU_TANH ? tanh(sqrt_2_over_pi * (x + cubic * x * x * x)) : erf(x * M_SQRT1_2);
    return 0.5 * x * (1.0 + t);
}

/* d/dx 0.5 x (1 + t(x)) = 0.5 (1 + t) + 0.5 x t' */
double ps_ref_gelu_derivative(ps_gelu_kind kind, double x)
{
    if (kind == PS_GELU_TANH) {
        const double t = tanh(sqrt_2_over_pi * (x + cubic * x * x * x));
        return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * sqrt_2_over_pi * (1.0 + 3.0 * cubic * x * x);
    }
    return 0.5 * (1.0 + erf(x * M_SQRT1_2)) + 0.5 * x * sqrt_2_over_pi * exp(-0.5 * x * x);
}

static ps_status gelu_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_gelu_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++)
        ps_ref_store(a->dtype, a->y, i, ps_ref_gelu(a->kind, ps_ref_load(a->dtype, a->x, i)), false);
    return PS_OK;
}

static ps_cost gelu_fwd_cost(const void *args)
{
    const ps_gelu_fwd_args *const a = args;
    return ps_cost_of_stream(a->n, 2, 20, a->dtype);
}

static void gelu_fwd_uses(const void *args, ps_uses *out)
{
    const ps_gelu_fwd_args *const a = args;
    PS_REF_WRITES(y, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(x, ps_ref_bytes(a->dtype, a->n));
}

const ps_operator ps_operator_gelu_fwd = {.reference = {.run = gelu_fwd}, .cost = gelu_fwd_cost, .uses = gelu_fwd_uses};

static ps_status gelu_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_gelu_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) {
        const double slope = ps_ref_gelu_derivative(a->kind, ps_ref_load(a->dtype, a->x, i));
        ps_ref_store(a->dtype, a->dx, i, ps_ref_load(a->dtype, a->dy, i) * slope, a->accumulate_dx);
    }
    return PS_OK;
}

static ps_cost gelu_bwd_cost(const void *args)
{
    const ps_gelu_bwd_args *const a = args;
    return ps_cost_of_stream(a->n, 3, 30, a->dtype);
}

static void gelu_bwd_uses(const void *args, ps_uses *out)
{
    const ps_gelu_bwd_args *const a = args;
    PS_REF_WRITES(dx, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(dy, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(x, ps_ref_bytes(a->dtype, a->n));
}

const ps_operator ps_operator_gelu_bwd = {.reference = {.run = gelu_bwd}, .cost = gelu_bwd_cost, .uses = gelu_bwd_uses};
