#include "kernel/op_gradient.h"

typedef struct swiglu_case {
    int64_t n;
    ps_dtype dtype;
    bool accumulate_dgate, accumulate_dup, in_place; /* dgate over dy */
} swiglu_case;

static void label_case(const swiglu_case *c)
{
    op_label("n %lld %s%s%s%s", (long long)c->n, ps_dtype_name(c->dtype),
             c->accumulate_dgate ? " accumulate_dgate" : "", c->accumulate_dup ? " accumulate_dup" : "",
             c->in_place ? " in_place" : "");
}

/* Gates reach 9, where the sigmoid is flat; up and dy reach 3. The sigmoid is right within some units of the last
 * place, 1 minus it within as many of one, which gate then multiplies. */
static const double gate_spread = 3.0, fast_error = 8.0 * 0x1p-24;

static void run_fwd(ps_backend *k, const void *context, op_result *result)
{
    const swiglu_case *c = context;
    const ps_swiglu_fwd_args a = {.y = op_output(c->dtype, c->n, false, 0),
                                  .gate = op_input(c->dtype, c->n, gate_spread, 1),
                                  .up = op_input(c->dtype, c->n, 1.0, 2),
                                  .n = c->n,
                                  .dtype = c->dtype};
    op_expect_ok(ps_run_swiglu_fwd(k, NULL, &a, 0));
    op_record(result, "y", c->dtype, a.y, c->n, fast_error * 9.0 * 3.0);
}

static void run_bwd(ps_backend *k, const void *context, op_result *result)
{
    const swiglu_case *c = context;
    void *dy = op_random(c->dtype, c->n, 0.0, 1.0, 3);
    if (!c->in_place) op_mark_input();
    const ps_swiglu_bwd_args a = {.dgate = c->in_place ? dy : op_output(c->dtype, c->n, c->accumulate_dgate, 4),
                                  .dup = op_output(c->dtype, c->n, c->accumulate_dup, 5),
                                  .dy = dy,
                                  .gate = op_input(c->dtype, c->n, gate_spread, 1),
                                  .up = op_input(c->dtype, c->n, 1.0, 2),
                                  .n = c->n,
                                  .dtype = c->dtype,
                                  .accumulate_dgate = c->accumulate_dgate,
                                  .accumulate_dup = c->accumulate_dup};
    op_expect_ok(ps_run_swiglu_bwd(k, NULL, &a, 0));
    op_record(result, "dgate", c->dtype, a.dgate, c->n, fast_error * 9.0 * 3.0);
    op_record(result, "dup", c->dtype, a.dup, c->n, fast_error * 9.0 * 3.0);
}

static const int64_t sizes[] = {0, 1, 3, 7, 33, 65, 1000, 256 * 192 + 5};

static void test_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int flags = 0; flags < 4; flags++) {
                const swiglu_case c = {
                    .n = sizes[s], .dtype = (ps_dtype)t, .accumulate_dgate = flags & 1, .accumulate_dup = flags & 2};
                label_case(&c);
                if (flags == 0) op_check_backends(run_fwd, &c);
                op_check_backends(run_bwd, &c);
                if (c.accumulate_dgate) continue;
                swiglu_case in_place = c;
                in_place.in_place = true;
                label_case(&in_place);
                op_check_same_bits(run_bwd, &c, &in_place, "dgate over dy");
            }
}

/* Gates as large as bf16 holds: below, all is zero; above, y = gate up, dgate = dy up, dup = dy gate. */
static void test_flat_ends(void **state)
{
    (void)state;
    enum { N = 37 };
    static const float ends[] = {-3e38f, 3e38f, -1e4f, 1e4f, -89.0f, 89.0f, -88.0f, 88.0f};
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("flat ends, %s", name);
        float *gate = op_alloc(N * sizeof *gate), *one = op_alloc(N * sizeof *one);
        float *y = op_alloc(N * sizeof *y), *dgate = op_alloc(N * sizeof *dgate), *dup = op_alloc(N * sizeof *dup);
        for (int j = 0; j < N; j++) gate[j] = ends[j % (int)PS_ARRAY_LEN(ends)], one[j] = 1.0f;
        const ps_swiglu_fwd_args fwd = {.y = y, .gate = gate, .up = one, .n = N};
        const ps_swiglu_bwd_args bwd = {.dgate = dgate, .dup = dup, .dy = one, .gate = gate, .up = one, .n = N};
        op_expect_ok(ps_run_swiglu_fwd(k, NULL, &fwd, 0));
        op_expect_ok(ps_run_swiglu_bwd(k, NULL, &bwd, 0));
        for (int j = 0; j < N; j++) {
            const float want = gate[j] > 0.0f ? gate[j] : 0.0f;
            assert_true(fabsf(y[j] - want) <= 1e-30f);
            assert_true(fabsf(dup[j] - want) <= 1e-30f);
            assert_true(fabsf(dgate[j] - (gate[j] > 0.0f ? 1.0f : 0.0f)) <= 1e-30f);
        }
        op_release();
    }
}

/* What is not a number stays so, for the loss scaler to see. */
static void test_not_a_number(void **state)
{
    (void)state;
    enum { N = 21 };
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("not a number, %s", name);
        float *gate = op_random(PS_DTYPE_F32, N, 0.0, 1.0, 1), *y = op_alloc(N * sizeof *y);
        gate[3] = gate[20] = NAN;
        const ps_swiglu_fwd_args a = {.y = y, .gate = gate, .up = op_input(PS_DTYPE_F32, N, 1.0, 2), .n = N};
        op_expect_ok(ps_run_swiglu_fwd(k, NULL, &a, 0));
        for (int j = 0; j < N; j++) assert_true(isnan(y[j]) == (j == 3 || j == 20));
        op_release();
    }
}

static double problem_value(const void *context)
{
    const ps_swiglu_fwd_args *a = context;
    ps_backend *ref = op_reference();
    op_expect_ok(ps_run_swiglu_fwd(ref, NULL, a, 0));
    double sum = 0.0; /* dy = 1: every element stands alone */
    for (int64_t i = 0; i < a->n; i++) sum += (double)((const float *)a->y)[i];
    return sum;
}

static void test_finite_differences(void **state)
{
    (void)state;
    for (int flags = 0; flags < 4; flags++) {
        const int64_t n = 65;
        const ps_dtype t = PS_DTYPE_F32;
        const bool add_gate = flags & 1, add_up = flags & 2;
        op_label("accumulate %d %d", add_gate, add_up);
        float *gate = op_random(t, n, 0, 2, 1), *up = op_random(t, n, 0, 1, 2), *dy = op_alloc((size_t)n * sizeof *dy);
        for (int64_t i = 0; i < n; i++) dy[i] = 1.0f;
        const ps_swiglu_fwd_args fwd = {.y = op_output(t, n, false, 0), .gate = gate, .up = up, .n = n};
        const ps_swiglu_bwd_args bwd = {.dgate = op_output(t, n, add_gate, 3),
                                        .dup = op_output(t, n, add_up, 4),
                                        .dy = dy,
                                        .gate = gate,
                                        .up = up,
                                        .n = n,
                                        .accumulate_dgate = add_gate,
                                        .accumulate_dup = add_up};
        ps_backend *ref = op_reference();
        op_expect_ok(ps_run_swiglu_bwd(ref, NULL, &bwd, 0));
        const float *dgate0 = add_gate ? op_output(t, n, true, 3) : NULL,
                    *dup0 = add_up ? op_output(t, n, true, 4) : NULL;
        op_check_gradient("dgate", problem_value, &fwd, gate, bwd.dgate, dgate0, n, 0x1p-6f, 2e-4);
        op_check_gradient("dup", problem_value, &fwd, up, bwd.dup, dup0, n, 0.5f, 1e-5);
        op_release();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_flat_ends),
        cmocka_unit_test(test_not_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
