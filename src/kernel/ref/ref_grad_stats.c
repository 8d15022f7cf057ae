#include "kernel/ref/ref.h"

#include <math.h>

/* The squares of floats are exact in double and the largest is far from overflow. */
ps_status ps_ref_grad_stats(ps_stream *s, const ps_grad_stats_args *a)
{
    (void)s;
    double sum = 0.0;
    int64_t n_nonfinite = 0;
    for (int64_t i = 0; i < a->n; i++) {
        const double x = ps_ref_load(a->dtype, a->x, i);
        if (isfinite(x))
            sum += x * x;
        else
            n_nonfinite++;
    }
    *a->sum_squares = sum;
    *a->n_nonfinite = n_nonfinite;
    return PS_OK;
}
