#include "kernel/op_check.h"

/* Squares and sums are in double: 1e-12 leaves room for the order of summation, not for sums in float. */
static void check_stats(ps_backend *k, const void *x, int64_t n, ps_dtype t)
{
    const size_t n_blocks = (size_t)ps_ceil_div(n, PS_GRAD_STATS_BLOCK), bytes = n_blocks * sizeof(double);
    double *sum = op_alloc(bytes + 1), *want = op_alloc(bytes + 1), *again = op_alloc(bytes + 1);
    int64_t *bad = op_alloc(sizeof *bad), want_bad = 0;
    memset(want, 0, bytes);
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)ps_dtype_load(t, x, i);
        want[i / PS_GRAD_STATS_BLOCK] += isfinite(v) ? v * v : 0.0;
        want_bad += !isfinite(v);
    }
    const ps_grad_stats_args a = {.sum_squares = sum, .n_nonfinite = bad, .x = x, .n = n, .dtype = t};
    op_expect_ok(ps_run_grad_stats(k, NULL, &a, 0));
    for (size_t b = 0; b < n_blocks; b++)
        if (!(fabs(sum[b] - want[b]) <= 1e-12 * want[b]))
            fail_msg("%s: sum of block %zu is %.17g, expected %.17g", op_now.label, b, sum[b], want[b]);
    assert_true(*bad == want_bad);
    memcpy(again, sum, bytes);
    void *moved = op_alloc(64 + (size_t)n * ps_dtype_bytes(t));
    memcpy((char *)moved + 64, x, (size_t)n * ps_dtype_bytes(t));
    ps_grad_stats_args b = a;
    b.x = (char *)moved + 64;
    op_expect_ok(ps_run_grad_stats(k, NULL, &b, 0));
    assert_memory_equal(again, sum, bytes);
}

static void test_backends(void **state)
{
    (void)state;
    const int64_t sizes[] = {0, 1, 3, 7, 33, 65, 1000, 2048, 2049, 256 * 192 + 5};
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++)
        for (size_t s = 0; s < PS_ARRAY_LEN(sizes); s++)
            for (int t = 0; t < PS_DTYPE_COUNT; t++)
                for (int with_bad = 0; with_bad < 2; with_bad++) {
                    op_label("n %lld %s %s", (long long)sizes[s], ps_dtype_name((ps_dtype)t), name);
                    void *x = op_random((ps_dtype)t, sizes[s], 0.0, 2.0, 1);
                    for (int64_t j = 0; with_bad && j < sizes[s]; j += 29)
                        ps_dtype_store((ps_dtype)t, x, j, (float[]){NAN, INFINITY, -INFINITY}[j % 3]);
                    check_stats(k, x, sizes[s], (ps_dtype)t);
                    op_release();
                }
}

/* Squares that a float cannot hold. */
static void test_extremes(void **state)
{
    (void)state;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("extremes, %s", name);
        float *x = op_random(PS_DTYPE_F32, 100, 0.0, 1e38, 1);
        check_stats(k, x, 100, PS_DTYPE_F32);
        for (int j = 0; j < 100; j++) x[j] = 1e-30f;
        check_stats(k, x, 100, PS_DTYPE_F32);
        op_release();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
