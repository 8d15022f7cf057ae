/* op_gradient.h - gradients against central differences of a scalar function. */
#ifndef TEST_OP_OP_GRADIENT_H
#define TEST_OP_OP_GRADIENT_H

#include "kernel/op_check.h"

/* The scalar: sum dy y after a forward run on what `context` describes. */
typedef double (*op_scalar_fn)(const void *context);

static inline double op_dot(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static inline void op_check_slope(const char *name, int64_t i, double slope, double gradient, double tolerance)
{
    if (fabs(slope - gradient) <= tolerance * fmax(1.0, fabs(gradient))) return;
    print_error("%s: %s[%lld] is %.9g, finite differences give %.9g\n", op_now.label, name, (long long)i, gradient,
                slope);
    fail();
}

/* d f / d x[i] = (f(x + h) - f(x - h)) / 2h for about 24 elements spread over x, then along one random direction (where
 * i is printed as -1), which sees every element. gradient = what the kernel made, minus `before` when it accumulated
 * onto that. `tolerance` is relative above 1, absolute below: h^2 f''' / 6 plus float noise / h. */
static inline void op_check_gradient(const char *name, op_scalar_fn f, const void *context, float *x,
                                     const float *gradient, const float *before, int64_t n, float h, double tolerance)
{
    const int64_t stride = n / 24 + 1;
    float *saved = malloc((size_t)n * sizeof *x + 1);
    assert_non_null(saved);
    memcpy(saved, x, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i += stride) {
        const float up = saved[i] + h, down = saved[i] - h;
        x[i] = up;
        const double f_up = f(context);
        x[i] = down;
        const double f_down = f(context);
        x[i] = saved[i];
        const double got = (double)gradient[i] - (before != NULL ? (double)before[i] : 0.0);
        op_check_slope(name, i, (f_up - f_down) / ((double)up - (double)down), got, tolerance);
    }
    const float small = h / 4.0f;
    double along = 0.0, f_end[2];
    for (int end = 0; end < 2; end++) {
        for (int64_t i = 0; i < n; i++) {
            const float sign = ps_rng_u32((ps_rng_key){.seed = 3}, (uint64_t)i) & 1 ? 1.0f : -1.0f;
            const double got = (double)gradient[i] - (before != NULL ? (double)before[i] : 0.0);
            x[i] = saved[i] + (end == 0 ? small : -small) * sign;
            along += ((double)x[i] - (double)saved[i]) * got * (end == 0 ? 1.0 : -1.0);
        }
        f_end[end] = f(context);
    }
    memcpy(x, saved, (size_t)n * sizeof *x);
    free(saved);
    const double width = 2.0 * (double)small;
    op_check_slope(name, -1, (f_end[0] - f_end[1]) / width, along / width, 4.0 * tolerance * sqrt((double)n + 1.0));
}

#endif
