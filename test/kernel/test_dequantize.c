#include "base/quantized.h"
#include "kernel/op_check.h"

typedef struct dequantize_case {
    int64_t n;
    ps_quant quant;
    ps_dtype dtype;
    double spread;
} dequantize_case;

/* Records of random values; the scale of some groups is 0. */
static void *records(const dequantize_case *c)
{
    const int64_t n = c->n > 0 ? c->n : 1;
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) {
        const float u = ps_rng_unit(ps_rng_u32((ps_rng_key){.seed = 3, .stream = (uint64_t)c->quant}, (uint64_t)i));
        x[i] = i / PS_QUANT_GROUP % 7 == 3 ? 0 : (float)(c->spread * (2 * (double)u - 1));
    }
    void *to = op_alloc((size_t)ps_item_bytes(ps_quant_item(c->quant), n));
    ps_quantize(c->quant, to, x, n);
    op_mark_input();
    free(x);
    return to;
}

/* The product is rounded once: exact. */
static void run_dequantize(ps_backend *k, const void *context, op_result *result)
{
    const dequantize_case *c = context;
    const ps_dequantize_args a = {
        .y = op_output(c->dtype, c->n, false, 0), .x = records(c), .n = c->n, .quant = c->quant, .dtype = c->dtype};
    op_expect_ok(ps_run_dequantize(k, NULL, &a, 0));
    op_record_exact(result, "y", c->dtype, a.y, c->n);
}

static void test_backends(void **state)
{
    (void)state;
    const int64_t sizes[] = {0, 1, 2, 7, 63, 64, 65, 500, 512, 513, 1000, 3 * 512 + 130, 256 * 192 + 5};
    const double spreads[] = {1.0, 1e-5, 1e4, 1e38};
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (ps_quant q = PS_QUANT_INT8; q <= PS_QUANT_NF4; q++)
            for (int t = 0; t < PS_DTYPE_COUNT; t++)
                for (size_t m = 0; m < PS_ARRAY_LEN(spreads); m++) {
                    const dequantize_case c = {.n = sizes[s], .quant = q, .dtype = (ps_dtype)t, .spread = spreads[m]};
                    op_label("n %lld of %s in %s, spread %g", (long long)c.n, q == PS_QUANT_NF4 ? "nf4" : "int8",
                             ps_dtype_name(c.dtype), c.spread);
                    op_check_backends(run_dequantize, &c);
                }
}

/* Every code of both formats, with scales of all bits: 0, subnormal, the largest, infinite, NaN, negative. */
static void test_all_codes(void **state)
{
    (void)state;
    enum { N = 256 * PS_QUANT_RECORD };
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++)
        for (ps_quant q = PS_QUANT_INT8; q <= PS_QUANT_NF4; q++)
            for (int t = 0; t < PS_DTYPE_COUNT; t++) {
                op_label("all codes, %s", name);
                const int64_t bytes = ps_item_bytes(ps_quant_item(q), N);
                uint8_t *x = op_alloc((size_t)bytes);
                for (int64_t j = 0; j < bytes; j++)
                    x[j] = (uint8_t)(ps_rng_u32((ps_rng_key){.seed = 8, .stream = q}, (uint64_t)j) >> 7);
                op_mark_input();
                void *y = op_alloc(N * ps_dtype_bytes((ps_dtype)t)), *want = op_alloc(N * ps_dtype_bytes((ps_dtype)t));
                const ps_dequantize_args a = {.y = y, .x = x, .n = N, .quant = q, .dtype = (ps_dtype)t};
                op_expect_ok(ps_run_dequantize(k, NULL, &a, 0));
                for (int64_t j = 0; j < N; j++) ps_dtype_store((ps_dtype)t, want, j, ps_quant_get(q, x, j));
                for (int64_t j = 0; j < N; j++) {
                    const float u = ps_dtype_load((ps_dtype)t, y, j), v = ps_dtype_load((ps_dtype)t, want, j);
                    if (isnan(v) ? !isnan(u) : memcmp(&u, &v, sizeof u) != 0)
                        fail_msg("%s: element %lld is %g, not %g", name, (long long)j, (double)u, (double)v);
                }
                op_release();
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_all_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
