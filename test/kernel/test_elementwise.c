#include "kernel/op_check.h"

typedef struct elementwise_case {
    int64_t n;
    ps_dtype dtype;
    float p, scale;
    bool accumulate;
    int in_place;    /* 1: y over the first operand, 2: over the second */
    bool difference; /* one operator after the other */
} elementwise_case;

static const ps_rng_key key = {.seed = 5, .stream = (uint64_t)1 << 40};

static void label_case(const elementwise_case *c)
{
    op_label("n %lld %s p %.2f scale %.2f%s in_place %d", (long long)c->n, ps_dtype_name(c->dtype), (double)c->p,
             (double)c->scale, c->accumulate ? " accumulate" : "", c->in_place);
}

/* One addition and one rounding: exact. */
static void run_add(ps_backend *k, const void *context, op_result *result)
{
    const elementwise_case *c = context;
    void *a = op_random(c->dtype, c->n, 0.0, 1.0, 1), *b = op_random(c->dtype, c->n, 0.0, 1.0, 2);
    void *y = c->in_place == 0 ? op_output(c->dtype, c->n, false, 0) : c->in_place == 1 ? a : b;
    const ps_add_args args = {.y = y, .a = a, .b = b, .n = c->n, .dtype = c->dtype};
    op_expect_ok(ps_run_add(k, NULL, &args, 0));
    op_record_exact(result, "y", c->dtype, y, c->n);
}

/* 1 / (1 - p) may be rounded before the product, hence one more unit of the last place; when accumulating, of the
 * larger of the terms. */
static void run_dropout(ps_backend *k, const void *context, op_result *result)
{
    const elementwise_case *c = context;
    void *x = op_random(c->dtype, c->n, 0.0, 1.0, 1);
    void *y = c->in_place == 1 ? x : op_output(c->dtype, c->n, c->accumulate, 2);
    const ps_dropout_args args = {.y = y,
                                  .x = x,
                                  .n = c->n,
                                  .p = c->p,
                                  .scale = c->scale,
                                  .key = key,
                                  .dtype = c->dtype,
                                  .accumulate = c->accumulate};
    op_expect_ok(ps_run_dropout(k, NULL, &args, 0));
    op_record(result, "y", c->dtype, y, c->n, op_sum_error((double)c->scale / (1.0 - (double)c->p)));
}

/* What dropout leaves, as it is stored, and the residual, have one sum. apart: by both operators. */
static void run_dropout_add(ps_backend *k, const void *context, op_result *result)
{
    const elementwise_case *c = context;
    void *x = op_random(c->dtype, c->n, 0.0, 1.0, 1), *residual = op_random(c->dtype, c->n, 0.0, 1.0, 2);
    void *y = c->in_place == 1 ? x : c->in_place == 2 ? residual : op_output(c->dtype, c->n, false, 3);
    const ps_dropout_args both = {.y = y,
                                  .x = x,
                                  .residual = residual,
                                  .n = c->n,
                                  .p = c->p,
                                  .scale = 1,
                                  .key = key,
                                  .dtype = c->dtype,
                                  .has_residual = true};
    const ps_dropout_args dropout = {.y = y, .x = x, .n = c->n, .p = c->p, .scale = 1, .key = key, .dtype = c->dtype};
    const ps_add_args add = {.y = y, .a = residual, .b = y, .n = c->n, .dtype = c->dtype};
    if (c->difference) {
        op_expect_ok(ps_run_dropout(k, NULL, &dropout, 0));
        op_expect_ok(ps_run_add(k, NULL, &add, 0));
    } else {
        op_expect_ok(ps_run_dropout(k, NULL, &both, 0));
    }
    op_record(result, "y", c->dtype, y, c->n, (op_sum_error(1.0) + op_ulp(c->dtype) * 3.0) / (1.0 - (double)c->p));
}

static const int64_t sizes[] = {0, 1, 3, 7, 33, 65, 1000, 256 * 192 + 5};

static void test_backends(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++) {
            elementwise_case c = {.n = sizes[s], .dtype = (ps_dtype)t, .scale = 1};
            label_case(&c);
            op_check_backends(run_add, &c);
            for (int flags = 0; flags < 6; flags++) {
                c.p = (float[]){0.0f, 0.1f, 0.9f}[flags % 3], c.accumulate = flags >= 3;
                label_case(&c);
                op_check_backends(run_dropout, &c);
                elementwise_case scaled = c;
                scaled.scale = 1.5f;
                label_case(&scaled);
                op_check_backends(run_dropout, &scaled);
                if (c.accumulate) continue;
                op_check_backends(run_dropout_add, &c);
                elementwise_case difference = c;
                difference.difference = true;
                op_check_same_bits(run_dropout_add, &difference, &c, "dropout, then add");
            }
        }
}

static void test_outputs_over_inputs(void **state)
{
    (void)state;
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT; t++)
            for (int operand = 1; operand <= 2; operand++) {
                const elementwise_case difference = {.n = sizes[s], .dtype = (ps_dtype)t, .p = 0.3f, .scale = 1};
                elementwise_case over = difference;
                over.in_place = operand;
                label_case(&over);
                op_check_same_bits(run_add, &difference, &over, "y over an operand");
                if (operand == 1) op_check_same_bits(run_dropout, &difference, &over, "y over x");
                op_check_same_bits(run_dropout_add, &difference, &over, "y over x or the residual");
            }
}

/* Without dropout it is a product: each element is scaled, and rounded once. */
static void test_scale(void **state)
{
    (void)state;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("scale, %s", name);
        const float *x = op_input(PS_DTYPE_F32, 1001, 1.0, 1);
        const ps_dropout_args args = {
            .y = op_output(PS_DTYPE_F32, 1001, false, 0), .x = x, .n = 1001, .scale = 1.75f, .key = key};
        op_expect_ok(ps_run_dropout(k, NULL, &args, 0));
        for (int j = 0; j < 1001; j++) assert_true(((const float *)args.y)[j] == 1.75f * x[j]);
        op_release();
    }
}

static void test_sums(void **state)
{
    (void)state;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("sums, %s", name);
        const float *a = op_input(PS_DTYPE_F32, 37, 1.0, 1), *b = op_input(PS_DTYPE_F32, 37, 1.0, 2);
        const ps_add_args args = {.y = op_output(PS_DTYPE_F32, 37, false, 0), .a = a, .b = b, .n = 37};
        op_expect_ok(ps_run_add(k, NULL, &args, 0));
        for (int j = 0; j < 37; j++) assert_true(((const float *)args.y)[j] == a[j] + b[j]);
        op_release();
    }
}

/* The documented word decides, the share of dropped elements is near p, and the sum of ones is kept on average. */
static void test_dropout_mask(void **state)
{
    (void)state;
    enum { N = 20000 };
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("dropout mask, %s", name);
        float *x = op_alloc(N * sizeof *x), *y = op_alloc(N * sizeof *y);
        for (int j = 0; j < N; j++) x[j] = 1.0f;
        const ps_dropout_args args = {.y = y, .x = x, .n = N, .p = 0.25f, .scale = 1, .key = key};
        op_expect_ok(ps_run_dropout(k, NULL, &args, 0));
        double sum = 0.0;
        for (int j = 0; j < N; j++) {
            const bool kept = ps_rng_u32(key, (uint64_t)j) >= 0x40000000u;
            const float want = kept ? 4.0f / 3.0f : 0.0f;
            assert_float_equal(y[j], want, 1e-6);
            sum += (double)y[j];
        }
        assert_true(fabs(sum / N - 1.0) < 0.02); /* deviation sqrt(1/3 / N) = 0.004 */
        op_release();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scale),        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_backends),     cmocka_unit_test(test_outputs_over_inputs),
        cmocka_unit_test(test_dropout_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
