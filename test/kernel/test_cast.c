#include "kernel/op_check.h"

typedef struct cast_case {
    int64_t n;
    ps_dtype dst_dtype, src_dtype;
    double spread; /* large and small ones overflow and underflow 16 bits */
} cast_case;

/* The rounding is defined: exact. */
static void run_cast(ps_backend *k, const void *context, op_result *result)
{
    const cast_case *c = context;
    const ps_cast_args a = {.dst = op_output(c->dst_dtype, c->n, false, 0),
                            .src = op_input(c->src_dtype, c->n, c->spread, 1),
                            .n = c->n,
                            .dst_dtype = c->dst_dtype,
                            .src_dtype = c->src_dtype};
    op_expect_ok(ps_run_cast(k, NULL, &a, 0));
    op_record_exact(result, "dst", c->dst_dtype, a.dst, c->n);
}

static void test_backends(void **state)
{
    (void)state;
    const int64_t sizes[] = {0, 1, 3, 7, 33, 65, 1000, 256 * 192 + 5};
    const double spreads[] = {1.0, 1e4, 1e38, 1e-5, 1e-39};
    for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
        for (int t = 0; t < PS_DTYPE_COUNT * PS_DTYPE_COUNT; t++)
            for (size_t m = 0; m < PS_ARRAY_LEN(spreads); m++) {
                const cast_case c = {.n = sizes[s],
                                     .dst_dtype = (ps_dtype)(t / PS_DTYPE_COUNT),
                                     .src_dtype = (ps_dtype)(t % PS_DTYPE_COUNT),
                                     .spread = spreads[m]};
                op_label("n %lld %s <- %s spread %g", (long long)c.n, ps_dtype_name(c.dst_dtype),
                         ps_dtype_name(c.src_dtype), c.spread);
                op_check_backends(run_cast, &c);
            }
}

/* Every pattern of 16 bits to float, and every float halfway, just below and just above two neighbours back. */
static void test_all_patterns(void **state)
{
    (void)state;
    enum { N = 65536 };
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++)
        for (int t = PS_DTYPE_BF16; t < PS_DTYPE_COUNT; t++) {
            op_label("all patterns of %s, %s", ps_dtype_name((ps_dtype)t), name);
            uint16_t *narrow = op_alloc(N * sizeof *narrow), *back = op_alloc(N * sizeof *back);
            float *wide = op_alloc(N * sizeof *wide);
            for (int j = 0; j < N; j++) narrow[j] = (uint16_t)j;
            const ps_cast_args widen = {.dst = wide, .src = narrow, .n = N, .src_dtype = (ps_dtype)t};
            const ps_cast_args shorten = {.dst = back, .src = wide, .n = N, .dst_dtype = (ps_dtype)t};
            op_expect_ok(ps_run_cast(k, NULL, &widen, 0));
            for (int j = 0; j < N; j++) {
                const float want = ps_dtype_load((ps_dtype)t, narrow, j);
                assert_true(isnan(want) ? isnan(wide[j]) : memcmp(&want, &wide[j], 4) == 0);
            }
            for (int offset = -2; offset <= 2; offset++) {
                for (int j = 0; j < N; j++) {
                    const double a = (double)ps_dtype_load((ps_dtype)t, narrow, j);
                    const double b = (double)ps_dtype_load((ps_dtype)t, narrow, j == N - 1 ? j : j + 1);
                    wide[j] = offset == -2 ? (float)a : (float)((a + b) / 2.0);
                    if (offset == -1) wide[j] = nextafterf(wide[j], -INFINITY);
                    if (offset == 1) wide[j] = nextafterf(wide[j], INFINITY);
                }
                op_expect_ok(ps_run_cast(k, NULL, &shorten, 0));
                for (int j = 0; j < N; j++) {
                    uint16_t want;
                    ps_dtype_store((ps_dtype)t, &want, 0, wide[j]);
                    if (isnan(wide[j]))
                        assert_true(isnan(ps_dtype_load((ps_dtype)t, back, j)));
                    else
                        assert_int_equal(back[j], want);
                }
            }
            op_release();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_all_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
