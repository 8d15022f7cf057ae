#include "kernel/ref/ref.h"

#include <math.h>

/* The squares of floats are exact in double and the largest is far from overflow. */
static ps_status grad_stats(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_grad_stats_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    *a->n_nonfinite = 0;
    for (int64_t i = 0; i < a->n; i++) {
        const double x = ps_ref_load(a->dtype, a->x, i);
        double *sum = &a->sum_squares[i / PS_GRAD_STATS_BLOCK];
        if (i % PS_GRAD_STATS_BLOCK == 0) *sum = 0.0;
        if (isfinite(x))
            *sum += x * x;
        else
            ++*a->n_nonfinite;
    }
    return PS_OK;
}

static ps_cost grad_stats_cost(const void *args)
{
    const ps_grad_stats_args *const a = args;
    return ps_cost_of_stream(a->n, 1, 2, a->dtype);
}

const ps_operator ps_operator_grad_stats = {.reference = {.run = grad_stats}, .cost = grad_stats_cost};
