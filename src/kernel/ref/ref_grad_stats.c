#include "kernel/ref/ref.h"

#include <math.h>

/* The squares of floats are exact in double and the largest is far from overflow. */
static ps_status grad_stats(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_grad_stats_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    double sum = 0.0;
    for (int64_t i = 0; i < a->n; i++) {
        const double x = ps_ref_load(a->dtype, a->x, i);
        if (isfinite(x))
            sum += x * x;
        else
            ps_grad_sums_count(a->sums, 1, a->tensor);
        if ((i + 1) % PS_GRAD_STATS_BLOCK != 0 && i + 1 < a->n) continue;
        ps_exact_sum_add(&a->sums->sum_squares, sum);
        sum = 0.0;
    }
    return PS_OK;
}

static ps_cost grad_stats_cost(const void *args)
{
    const ps_grad_stats_args *const a = args;
    return ps_cost_of_stream(a->n, 1, 2, a->dtype);
}

static void grad_stats_uses(const void *args, ps_uses *out)
{
    const ps_grad_stats_args *const a = args;
    PS_REF_WRITES(sums, sizeof *a->sums);
    PS_REF_READS(x, ps_ref_bytes(a->dtype, a->n));
}

const ps_operator ps_operator_grad_stats = {
    .reference = {.run = grad_stats}, .cost = grad_stats_cost, .uses = grad_stats_uses};
