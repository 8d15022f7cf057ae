#include "kernel/op_gradient.h"

typedef struct relu_case {
    int64_t n;
    ps_dtype dtype;
    bool accumulate, in_place; /* y over x; dx over dy */
} relu_case;

static void label_case(const relu_case *c)
{
    op_label("n %lld %s%s", (long long)c->n, ps_dtype_name(c->dtype), c->accumulate ? " accumulate" : "");
}

static void run_fwd(ps_backend *k, const void *context, op_result *result)
{
    const relu_case *c = context;
    void *x = op_random(c->dtype, c->n, 0.0, 1.0, 1);
    if (!c->in_place) op_mark_input();
    const ps_relu_fwd_args a = {
        .y = c->in_place ? x : op_output(c->dtype, c->n, false, 0), .x = x, .n = c->n, .dtype = c->dtype};
    op_expect_ok(ps_run_relu_fwd(k, NULL, &a, 0));
    op_record_exact(result, "y", c->dtype, a.y, c->n);
}

/* One addition, in float or double, then one rounding. */
static void run_bwd(ps_backend *k, const void *context, op_result *result)
{
    const relu_case *c = context;
    void *dy = op_random(c->dtype, c->n, 0.0, 1.0, 2);
    if (!c->in_place) op_mark_input();
    const ps_relu_bwd_args a = {.dx = c->in_place ? dy : op_output(c->dtype, c->n, c->accumulate, 3),
                                .dy = dy,
                                .y = op_input(c->dtype, c->n, 1.0, 1),
                                .n = c->n,
                                .dtype = c->dtype,
                                .accumulate_dx = c->accumulate};
    op_expect_ok(ps_run_relu_bwd(k, NULL, &a, 0));
    op_record(result, "dx", c->dtype, a.dx, c->n, 2.0 * 0x1p-24 * 6.0);
}

static const int64_t sizes[] = {0, 1, 3, 7, 33, 65, 1000, 256 * 192 + 5};

static void test_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++) {
            const relu_case c = {.n = sizes[s], .dtype = (ps_dtype)t};
            relu_case in_place = c, accumulate = c;
            in_place.in_place = accumulate.accumulate = true;
            label_case(&c);
            op_check_backends(run_fwd, &c);
            op_check_backends(run_bwd, &c);
            op_check_backends(run_bwd, &accumulate);
            op_check_same_bits(run_fwd, &c, &in_place, "y over x");
            op_check_same_bits(run_bwd, &c, &in_place, "dx over dy");
        }
}

/* Worked out: what is negative, zero or not a number. */
static void test_values(void **state)
{
    (void)state;
    const float x[] = {0.0f, -0.0f, 1e-40f, -1e-40f, 2.5f, -2.5f, 3e38f, -3e38f, INFINITY, -INFINITY, NAN};
    const float y[] = {0.0f, 0.0f, 1e-40f, 0.0f, 2.5f, 0.0f, 3e38f, 0.0f, INFINITY, 0.0f, NAN};
    const float dx[] = {0, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3};
    const int n = (int)PS_ARRAY_LEN(x);
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("values, %s", name);
        float *got = op_alloc(sizeof x), *dy = op_alloc(sizeof x), *got_dx = op_alloc(sizeof x);
        for (int j = 0; j < n; j++) dy[j] = 3;
        const ps_relu_fwd_args fwd = {.y = got, .x = memcpy(op_alloc(sizeof x), x, sizeof x), .n = n};
        const ps_relu_bwd_args bwd = {.dx = got_dx, .dy = dy, .y = got, .n = n};
        op_expect_ok(ps_run_relu_fwd(k, NULL, &fwd, 0));
        op_expect_ok(ps_run_relu_bwd(k, NULL, &bwd, 0));
        for (int j = 0; j < n; j++) {
            assert_true(isnan(y[j]) ? isnan(got[j]) : got[j] == y[j]);
            assert_true(got_dx[j] == dx[j]);
        }
        op_release();
    }
}

static double problem_value(const void *context)
{
    const ps_relu_fwd_args *a = context;
    op_expect_ok(ps_run_relu_fwd(op_reference(), NULL, a, 0));
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
        float *x = op_random(t, n, 0, 1, 1), *dy = op_alloc((size_t)n * sizeof *dy), *y = op_output(t, n, false, 0);
        for (int64_t i = 0; i < n; i++) dy[i] = 1.0f, x[i] += copysignf(0.1f, x[i]); /* away from the corner */
        const ps_relu_fwd_args fwd = {.y = op_output(t, n, false, 0), .x = x, .n = n};
        (void)problem_value(&fwd);
        memcpy(y, fwd.y, (size_t)n * sizeof *y);
        const ps_relu_bwd_args bwd = {
            .dx = op_output(t, n, accumulate, 3), .dy = dy, .y = y, .n = n, .accumulate_dx = accumulate};
        op_expect_ok(ps_run_relu_bwd(op_reference(), NULL, &bwd, 0));
        const float *dx0 = accumulate ? op_output(t, n, true, 3) : NULL;
        op_check_gradient("dx", problem_value, &fwd, x, bwd.dx, dx0, n, 0x1p-6f, 2e-4);
        op_release();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_backends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
