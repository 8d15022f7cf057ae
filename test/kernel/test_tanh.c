#include "kernel/op_gradient.h"

typedef struct tanh_case {
    int64_t n;
    ps_dtype dtype;
    double spread;
    bool accumulate, in_place; /* y over x; dx over dy */
} tanh_case;

static void label_case(const tanh_case *c)
{
    op_label("n %lld %s spread %g%s%s", (long long)c->n, ps_dtype_name(c->dtype), c->spread,
             c->accumulate ? " accumulate" : "", c->in_place ? " in_place" : "");
}

/* Arguments reach three times the spread, and the error is relative to them where they are small: tanh x is about x. */
static double tanh_error(const tanh_case *c)
{
    return 4.0 * 0x1p-24 * fmin(1.0, c->spread);
}

static void run_fwd(ps_backend *k, const void *context, op_result *result)
{
    const tanh_case *c = context;
    void *x = op_random(c->dtype, c->n, 0.0, c->spread, 1);
    if (!c->in_place) op_mark_input();
    const ps_tanh_fwd_args a = {
        .y = c->in_place ? x : op_output(c->dtype, c->n, false, 0), .x = x, .n = c->n, .dtype = c->dtype};
    op_expect_ok(ps_run_tanh_fwd(k, NULL, &a, 0));
    op_record(result, "y", c->dtype, a.y, c->n, tanh_error(c));
}

/* y is any number in [-1, 1]: values reach three times their spread, as those of dy. */
static void run_bwd(ps_backend *k, const void *context, op_result *result)
{
    const tanh_case *c = context;
    void *dy = op_random(c->dtype, c->n, 0.0, 1.0, 2);
    if (!c->in_place) op_mark_input();
    const ps_tanh_bwd_args a = {.dx = c->in_place ? dy : op_output(c->dtype, c->n, c->accumulate, 3),
                                .dy = dy,
                                .y = op_input(c->dtype, c->n, 1.0 / 3.0, 1),
                                .n = c->n,
                                .dtype = c->dtype,
                                .accumulate_dx = c->accumulate};
    op_expect_ok(ps_run_tanh_bwd(k, NULL, &a, 0));
    op_record(result, "dx", c->dtype, a.dx, c->n, 4.0 * 0x1p-24 * 3.0);
}

static const int64_t sizes[] = {0, 1, 3, 7, 33, 65, 1000, 256 * 192 + 5};
static const double spreads[] = {3.0, 0.3, 1e-4}; /* flat; where polynomial and exponential meet; y = x */

static void test_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++) {
            tanh_case c = {.n = sizes[s], .dtype = (ps_dtype)t};
            for (size_t i = 0; i < PS_ARRAY_LEN(spreads); i++) {
                c.spread = spreads[i];
                label_case(&c);
                op_check_backends(run_fwd, &c);
            }
            tanh_case in_place = c, accumulate = c;
            in_place.in_place = accumulate.accumulate = true;
            label_case(&c);
            op_check_backends(run_bwd, &c);
            op_check_backends(run_bwd, &accumulate);
            op_check_same_bits(run_fwd, &c, &in_place, "y over x");
            op_check_same_bits(run_bwd, &c, &in_place, "dx over dy");
        }
}

/* Relative error against the library's tanh, from the smallest normal numbers to where the function is one. */
static void test_relative_error(void **state)
{
    (void)state;
    enum { N = 4000 };
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("relative error, %s", name);
        float *x = op_alloc(N * sizeof *x), *y = op_alloc(N * sizeof *y);
        for (int j = 0; j < N; j++) x[j] = ldexpf(j & 1 ? -1.0f : 1.0f, -126) * exp2f(130.0f * (float)j / N);
        const ps_tanh_fwd_args a = {.y = y, .x = x, .n = N};
        op_expect_ok(ps_run_tanh_fwd(k, NULL, &a, 0));
        for (int j = 0; j < N; j++) {
            const double want = tanh((double)x[j]), error = fabs((double)y[j] - want);
            if (error <= 4.0 * 0x1p-24 * fabs(want)) continue;
            print_error("%s: tanh(%.9g) is %.9g, not %.9g\n", op_now.label, (double)x[j], (double)y[j], want);
            fail();
        }
        op_release();
    }
}

static void test_ends(void **state)
{
    (void)state;
    const float x[] = {0.0f, -0.0f, 20.0f, -20.0f, 3e38f, -3e38f, INFINITY, -INFINITY, NAN, 1e-40f};
    const float want[] = {0.0f, -0.0f, 1.0f, -1.0f, 1.0f, -1.0f, 1.0f, -1.0f, NAN, 1e-40f};
    const int n = (int)PS_ARRAY_LEN(x);
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("ends, %s", name);
        float *y = op_alloc(sizeof x);
        const ps_tanh_fwd_args a = {.y = y, .x = memcpy(op_alloc(sizeof x), x, sizeof x), .n = n};
        op_expect_ok(ps_run_tanh_fwd(k, NULL, &a, 0));
        for (int j = 0; j < n; j++) {
            assert_true(y[j] == want[j] || (isnan(y[j]) && isnan(want[j])));
            if (!isnan(want[j])) assert_true(!signbit(y[j]) == !signbit(want[j]));
        }
        op_release();
    }
}

static double problem_value(const void *context)
{
    const ps_tanh_fwd_args *a = context;
    ps_backend *ref = op_reference();
    op_expect_ok(ps_run_tanh_fwd(ref, NULL, a, 0));
    double sum = 0.0; /* dy = 1: every element stands alone */
    for (int64_t i = 0; i < a->n; i++) sum += (double)((const float *)a->y)[i];
    return sum;
}

static void test_finite_differences(void **state)
{
    (void)state;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        const int64_t n = 65;
        const ps_dtype t = PS_DTYPE_F32;
        op_label("accumulate %d", accumulate);
        float *x = op_random(t, n, 0, 1, 1), *dy = op_alloc((size_t)n * sizeof *dy);
        float *y = op_output(t, n, false, 0);
        for (int64_t i = 0; i < n; i++) dy[i] = 1.0f;
        const ps_tanh_fwd_args fwd = {.y = op_output(t, n, false, 0), .x = x, .n = n};
        (void)problem_value(&fwd);
        memcpy(y, fwd.y, (size_t)n * sizeof *y);
        const ps_tanh_bwd_args bwd = {
            .dx = op_output(t, n, accumulate, 3), .dy = dy, .y = y, .n = n, .accumulate_dx = accumulate};
        ps_backend *ref = op_reference();
        op_expect_ok(ps_run_tanh_bwd(ref, NULL, &bwd, 0));
        const float *dx0 = accumulate ? op_output(t, n, true, 3) : NULL;
        op_check_gradient("dx", problem_value, &fwd, x, bwd.dx, dx0, n, 0x1p-6f, 2e-4);
        op_release();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_relative_error),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_backends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
