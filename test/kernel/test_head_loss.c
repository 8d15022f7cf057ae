#include "kernel/op_gradient.h"

/* ---- values ---- */

typedef struct values_case {
    int64_t n;
    ps_values_loss_kind kind;
    ps_dtype dtype;
    float scale;
} values_case;

/* Every fifth takes no part. */
static float *some_values(int64_t n)
{
    float *values = op_random(PS_DTYPE_F32, n, 0.5, 0.25, 2);
    for (int64_t i = 4; i < n; i += 5) values[i] = NAN;
    op_mark_input();
    return values;
}

/* |z| up to 9: a loss up to 90, with a few roundings. */
static void run_values(ps_backend *k, const void *context, op_result *result)
{
    const values_case *c = context;
    const float *z = op_input(PS_DTYPE_F32, c->n, 3.0, 1), *values = some_values(c->n);
    const ps_values_loss_fwd_args f = {.loss = op_output(PS_DTYPE_F32, c->n, false, 0),
                                       .predicted = op_alloc((size_t)c->n * sizeof(int32_t)),
                                       .z = z,
                                       .values = values,
                                       .n = c->n,
                                       .kind = c->kind};
    op_expect_ok(ps_run_values_loss_fwd(k, NULL, &f, 0));
    for (int64_t i = 0; i < c->n; i++)
        assert_int_equal(f.predicted[i], c->kind == PS_VALUES_SQUARED ? -1 : z[i] > 0.0f);
    op_record(result, "loss", PS_DTYPE_F32, f.loss, c->n, 8.0 * 0x1p-24 * 100.0);
    const ps_values_loss_bwd_args b = {.dz = op_output(c->dtype, c->n, false, 0),
                                       .z = z,
                                       .values = values,
                                       .n = c->n,
                                       .scale = c->scale,
                                       .kind = c->kind,
                                       .dtype = c->dtype};
    op_expect_ok(ps_run_values_loss_bwd(k, NULL, &b, 0));
    op_record(result, "dz", c->dtype, b.dz, c->n, (double)c->scale * 8.0 * 0x1p-24 * 20.0);
}

static const int64_t sizes[] = {0, 1, 3, 33, 257, 5000};

static void test_values_on_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int kind = 0; kind < 2; kind++) {
                const values_case c = {
                    .n = sizes[s], .kind = (ps_values_loss_kind)kind, .dtype = (ps_dtype)t, .scale = 0.25f};
                op_label("values, n %lld kind %d %s", (long long)c.n, kind, ps_dtype_name(c.dtype));
                op_check_backends(run_values, &c);
            }
}

/* Far out, where exp overflows or vanishes: log(1 + e^z) is z or e^z there. */
static void test_values_by_hand(void **state)
{
    (void)state;
    static const float z[] = {0.0f, 100.0f, -100.0f, 100.0f, -10.0f, 1e30f, -1e30f, 2.0f};
    static const float t[] = {1.0f, 1.0f, 1.0f, 0.0f, 0.0f, 1.0f, 0.0f, NAN};
    const double loss[] = {log(2.0), 0, 100, 100, log1p(exp(-10.0)), 0, 0, 0};
    const double dz[] = {-0.5, 0, -1, 1, 1 / (1 + exp(10.0)), 0, 0, 0};
    enum { N = (int)PS_ARRAY_LEN(z) };
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("values by hand, %s", name);
        ps_values_loss_fwd_args f = {.loss = op_alloc(sizeof z),
                                     .predicted = op_alloc(sizeof z),
                                     .z = memcpy(op_alloc(sizeof z), z, sizeof z),
                                     .values = memcpy(op_alloc(sizeof z), t, sizeof t),
                                     .n = N,
                                     .kind = PS_VALUES_LOGISTIC};
        float *const got = op_alloc(sizeof z);
        ps_values_loss_bwd_args b = {
            .dz = got, .z = f.z, .values = f.values, .n = N, .scale = 1.0f, .kind = PS_VALUES_LOGISTIC};
        op_expect_ok(ps_run_values_loss_fwd(k, NULL, &f, 0));
        op_expect_ok(ps_run_values_loss_bwd(k, NULL, &b, 0));
        for (int j = 0; j < N; j++) {
            assert_true(fabs((double)f.loss[j] - loss[j]) <= 1e-6 * fmax(loss[j], 1e-3));
            assert_true(fabs((double)got[j] - dz[j]) <= 1e-6);
            assert_int_equal(f.predicted[j], z[j] > 0.0f);
        }
        f.kind = b.kind = PS_VALUES_SQUARED, f.n = b.n = 4;
        op_expect_ok(ps_run_values_loss_fwd(k, NULL, &f, 0));
        op_expect_ok(ps_run_values_loss_bwd(k, NULL, &b, 0));
        assert_true(f.loss[0] == 1.0f && f.loss[1] == 9801.0f && f.loss[2] == 10201.0f && f.loss[3] == 10000.0f);
        assert_true(got[0] == -2.0f && got[1] == 198.0f && got[2] == -202.0f && got[3] == 200.0f);
        assert_int_equal(f.predicted[0], -1);
        op_release();
    }
}

static double values_loss(const void *context)
{
    const ps_values_loss_fwd_args *f = context;
    double sum = 0.0;
    op_expect_ok(ps_run_values_loss_fwd(op_reference(), NULL, f, 0));
    for (int64_t i = 0; i < f->n; i++) sum += (double)f->loss[i];
    return sum;
}

static void test_values_finite_differences(void **state)
{
    (void)state;
    enum { N = 65 };
    for (int kind = 0; kind < 2; kind++) {
        op_label("values, kind %d", kind);
        float *z = op_random(PS_DTYPE_F32, N, 0, 1, 1), *dz = op_output(PS_DTYPE_F32, N, false, 0);
        const ps_values_loss_fwd_args f = {.loss = op_output(PS_DTYPE_F32, N, false, 0),
                                           .predicted = op_alloc(N * sizeof(int32_t)),
                                           .z = z,
                                           .values = some_values(N),
                                           .n = N,
                                           .kind = (ps_values_loss_kind)kind};
        const ps_values_loss_bwd_args b = {.dz = dz, .z = z, .values = f.values, .n = N, .scale = 1.0f, .kind = f.kind};
        op_expect_ok(ps_run_values_loss_bwd(op_reference(), NULL, &b, 0));
        op_check_gradient("dz", values_loss, &f, z, dz, NULL, N, 0x1p-5f, 1e-3);
        op_release();
    }
}

/* ---- spans ---- */

typedef struct span_case {
    int64_t B, T, ignore_every;
    ps_dtype dtype;
} span_case;

/* An error of exp and log, relative; z up to 6. */
static void run_span(ps_backend *k, const void *context, op_result *result)
{
    const span_case *c = context;
    const int64_t n = c->B * c->T * 2;
    const float *z = op_input(PS_DTYPE_F32, n, 2.0, 1);
    const int32_t *targets = op_indices(c->B * 2, c->T, c->ignore_every, 3);
    const ps_span_loss_fwd_args f = {.loss = op_output(PS_DTYPE_F32, c->B * 2, false, 0),
                                     .predicted = op_alloc((size_t)(c->B * 2) * sizeof(int32_t)),
                                     .z = z,
                                     .targets = targets,
                                     .B = c->B,
                                     .T = c->T,
                                     .weight = {0.75f, 1.5f}};
    op_expect_ok(ps_run_span_loss_fwd(k, NULL, &f, 0));
    op_record(result, "loss", PS_DTYPE_F32, f.loss, c->B * 2, 1.5 * 0x1p-20 * 8.0);
    float *best = op_alloc((size_t)(c->B * 2) * sizeof *best);
    for (int64_t i = 0; i < c->B * 2; i++) best[i] = (float)f.predicted[i];
    op_record_exact(result, "predicted", PS_DTYPE_F32, best, c->B * 2);
    const ps_span_loss_bwd_args b = {.dz = op_output(c->dtype, n, false, 0),
                                     .z = z,
                                     .targets = targets,
                                     .B = c->B,
                                     .T = c->T,
                                     .scale = {0.5f, 2.0f},
                                     .dtype = c->dtype};
    op_expect_ok(ps_run_span_loss_bwd(k, NULL, &b, 0));
    op_record(result, "dz", c->dtype, b.dz, n, 2.0 * 0x1p-20);
}

static void test_spans_on_backends(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{0, 5, 0},  {1, 1, 0},  {3, 2, 2},   {2, 31, 0},
                                        {5, 33, 3}, {2, 64, 2}, {3, 500, 4}, {1, 1000, 1}};
    for (size_t s = 0; s < PS_ARRAY_LEN(shapes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++) {
            const span_case c = {
                .B = shapes[s][0], .T = shapes[s][1], .ignore_every = shapes[s][2], .dtype = (ps_dtype)t};
            op_label("spans, B %lld T %lld %s", (long long)c.B, (long long)c.T, ps_dtype_name(c.dtype));
            op_check_backends(run_span, &c);
        }
}

/* Numbers of one value: log T, whatever the target, and the first position is predicted; and of huge ones no infinity. */
static void test_spans_by_hand(void **state)
{
    (void)state;
    enum { T = 40 };
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("spans by hand, %s", name);
        float *z = op_alloc(T * 2 * sizeof *z), *loss = op_alloc(2 * sizeof *loss), *dz = op_alloc(T * 2 * sizeof *dz);
        int32_t *targets = op_alloc(2 * sizeof *targets), *predicted = op_alloc(2 * sizeof *predicted);
        targets[0] = 7, targets[1] = PS_IGNORE_INDEX;
        for (int t = 0; t < T * 2; t++) z[t] = t % 2 == 0 ? 1.5f : 1e30f;
        const ps_span_loss_fwd_args f = {
            .loss = loss, .predicted = predicted, .z = z, .targets = targets, .B = 1, .T = T, .weight = {0.5f, 1.0f}};
        const ps_span_loss_bwd_args b = {.dz = dz, .z = z, .targets = targets, .B = 1, .T = T, .scale = {4.0f, 1.0f}};
        op_expect_ok(ps_run_span_loss_fwd(k, NULL, &f, 0));
        op_expect_ok(ps_run_span_loss_bwd(k, NULL, &b, 0));
        assert_float_equal(loss[0], 0.5f * logf(T), 1e-6f);
        assert_true(loss[1] == 0.0f && predicted[0] == 0 && predicted[1] == 0);
        for (int t = 0; t < T; t++) {
            assert_float_equal(dz[t * 2], 4.0f / T - (t == 7 ? 4.0f : 0.0f), 1e-6f);
            assert_true(dz[t * 2 + 1] == 0.0f);
        }
        z[20 * 2 + 1] = 2e30f, z[38 * 2] = 1.75f, z[39 * 2] = 1.75f, targets[1] = 20;
        op_expect_ok(ps_run_span_loss_fwd(k, NULL, &f, 0));
        op_expect_ok(ps_run_span_loss_bwd(k, NULL, &b, 0));
        assert_true(predicted[0] == 38 && predicted[1] == 20 && loss[1] == 0.0f && dz[20 * 2 + 1] == 0.0f);
        op_release();
    }
}

static double span_loss(const void *context)
{
    const ps_span_loss_fwd_args *f = context;
    double sum = 0.0;
    op_expect_ok(ps_run_span_loss_fwd(op_reference(), NULL, f, 0));
    for (int64_t i = 0; i < f->B * 2; i++) sum += (double)f->loss[i];
    return sum;
}

static void test_spans_finite_differences(void **state)
{
    (void)state;
    enum { B = 3, T = 17 };
    op_label("spans");
    float *z = op_random(PS_DTYPE_F32, B * T * 2, 0, 1, 1), *dz = op_output(PS_DTYPE_F32, B * T * 2, false, 0);
    const ps_span_loss_fwd_args f = {.loss = op_output(PS_DTYPE_F32, B * 2, false, 0),
                                     .predicted = op_alloc(B * 2 * sizeof(int32_t)),
                                     .z = z,
                                     .targets = op_indices(B * 2, T, 3, 3),
                                     .B = B,
                                     .T = T,
                                     .weight = {0.75f, 1.5f}};
    const ps_span_loss_bwd_args b = {.dz = dz, .z = z, .targets = f.targets, .B = B, .T = T, .scale = {0.75f, 1.5f}};
    op_expect_ok(ps_run_span_loss_bwd(op_reference(), NULL, &b, 0));
    op_check_gradient("dz", span_loss, &f, z, dz, NULL, B * T * 2, 0x1p-5f, 1e-3);
    op_release();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_finite_differences),
        cmocka_unit_test(test_values_by_hand),
        cmocka_unit_test(test_values_on_backends),
        cmocka_unit_test(test_spans_finite_differences),
        cmocka_unit_test(test_spans_by_hand),
        cmocka_unit_test(test_spans_on_backends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
