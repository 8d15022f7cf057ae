#include "kernel/op_gradient.h"

typedef struct gelu_case {
    int64_t n;
    ps_gelu_kind kind;
    ps_dtype dtype;
    bool accumulate, in_place;
} gelu_case;

static void label_case(const gelu_case *c)
{
    op_label("n %lld %s %s%s%s", (long long)c->n, c->kind == PS_GELU_TANH ? "tanh" : "erf", ps_dtype_name(c->dtype),
             c->accumulate ? " accumulate" : "", c->in_place ? " in_place" : "");
}

/* Spread 3: values reach 9, where the function is flat. The tails cancel (1 + tanh near -1), so errors are absolute. */
static const double spread = 3.0, fast_error = 16.0 * 0x1p-24;

static void run_fwd(ps_backend *k, const void *context, op_result *result)
{
    const gelu_case *c = context;
    const ps_gelu_fwd_args a = {.y = op_output(c->dtype, c->n, false, 0),
                                .x = op_input(c->dtype, c->n, spread, 1),
                                .n = c->n,
                                .kind = c->kind,
                                .dtype = c->dtype};
    op_expect_ok(ps_run_gelu_fwd(k, NULL, &a, 0));
    op_record(result, "y", c->dtype, a.y, c->n, fast_error * spread);
}

static void run_bwd(ps_backend *k, const void *context, op_result *result)
{
    const gelu_case *c = context;
    void *dy = op_random(c->dtype, c->n, 0.0, 1.0, 2);
    const ps_gelu_bwd_args a = {.dx = c->in_place ? dy : op_output(c->dtype, c->n, c->accumulate, 3),
                                .dy = dy,
                                .x = op_input(c->dtype, c->n, spread, 1),
                                .n = c->n,
                                .kind = c->kind,
                                .dtype = c->dtype,
                                .accumulate_dx = c->accumulate};
    op_expect_ok(ps_run_gelu_bwd(k, NULL, &a, 0));
    op_record(result, "dx", c->dtype, a.dx, c->n, fast_error * 2.0 * spread);
}

static const int64_t sizes[] = {0, 1, 3, 7, 33, 65, 1000, 256 * 192};

static void test_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int flags = 0; flags < 4; flags++) {
                gelu_case c = {.n = sizes[s],
                               .kind = flags & 1 ? PS_GELU_ERF : PS_GELU_TANH,
                               .dtype = (ps_dtype)t,
                               .accumulate = flags & 2};
                label_case(&c);
                op_check_backends(run_fwd, &c);
                op_check_backends(run_bwd, &c);
                if (c.accumulate) continue;
                gelu_case in_place = c;
                in_place.in_place = true;
                label_case(&in_place);
                op_check_same_bits(run_bwd, &c, &in_place, "dx over dy");
            }
}

/* Arguments as large as f16 can hold must neither overflow nor become NaN. */
static void test_flat_ends(void **state)
{
    (void)state;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++)
        for (int kind = 0; kind < 2; kind++) {
            op_label("flat ends, %s", name);
            float *x = op_random(PS_DTYPE_F32, 64, 0.0, 2e4, 1), *dy = op_alloc(64 * sizeof *dy);
            for (int j = 0; j < 64; j++) dy[j] = 1.0f;
            const ps_gelu_fwd_args fwd = {
                .y = op_output(PS_DTYPE_F32, 64, false, 0), .x = x, .n = 64, .kind = (ps_gelu_kind)kind};
            const ps_gelu_bwd_args bwd = {
                .dx = op_output(PS_DTYPE_F32, 64, false, 0), .dy = dy, .x = x, .n = 64, .kind = (ps_gelu_kind)kind};
            op_expect_ok(ps_run_gelu_fwd(k, NULL, &fwd, 0));
            op_expect_ok(ps_run_gelu_bwd(k, NULL, &bwd, 0));
            for (int j = 0; j < 64; j++) {
                const float y = x[j] > 0.0f ? x[j] : 0.0f, slope = x[j] > 0.0f ? 1.0f : 0.0f;
                assert_true(fabsf(((float *)fwd.y)[j] - y) <= 1e-6f * (1.0f + y));
                assert_true(fabsf(((float *)bwd.dx)[j] - slope) <= 1e-6f);
            }
            op_release();
        }
}

static double problem_value(const void *context)
{
    const ps_gelu_fwd_args *a = context;
    ps_backend *ref = op_reference();
    op_expect_ok(ps_run_gelu_fwd(ref, NULL, a, 0));
    double sum = 0.0; /* dy = 1: every element stands alone */
    for (int64_t i = 0; i < a->n; i++) sum += (double)((const float *)a->y)[i];
    return sum;
}

static void test_finite_differences(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            const int64_t n = 65;
            const ps_dtype t = PS_DTYPE_F32;
            op_label("kind %d accumulate %d", kind, accumulate);
            float *x = op_random(t, n, 0, 2, 1), *dy = op_alloc((size_t)n * sizeof *dy);
            for (int64_t i = 0; i < n; i++) dy[i] = 1.0f;
            const ps_gelu_fwd_args fwd = {.y = op_output(t, n, false, 0), .x = x, .n = n, .kind = (ps_gelu_kind)kind};
            const ps_gelu_bwd_args bwd = {.dx = op_output(t, n, accumulate, 3),
                                          .dy = dy,
                                          .x = x,
                                          .n = n,
                                          .kind = (ps_gelu_kind)kind,
                                          .accumulate_dx = accumulate};
            ps_backend *ref = op_reference();
            op_expect_ok(ps_run_gelu_bwd(ref, NULL, &bwd, 0));
            const float *dx0 = accumulate ? op_output(t, n, true, 3) : NULL;
            op_check_gradient("dx", problem_value, &fwd, x, bwd.dx, dx0, n, 0x1p-6f, 2e-4);
            op_release();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_flat_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
