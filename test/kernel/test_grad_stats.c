#include "kernel/op_check.h"

#define TENSOR 3 /* that the elements belong to */

/* Blocks begin at multiples of PS_GRAD_STATS_BLOCK from x on: as tensors are cut into chunks. */
static void add_piece(ps_backend *k, ps_grad_sums *sums, const void *x, int64_t first, int64_t n, ps_dtype t)
{
    const ps_grad_stats_args a = {
        .sums = sums, .x = (const char *)x + first * (int64_t)ps_dtype_bytes(t), .n = n, .tensor = TENSOR, .dtype = t};
    op_expect_ok(ps_run_grad_stats(k, NULL, &a, 0));
}

static ps_grad_sums *no_sums(void)
{
    ps_grad_sums *sums = op_alloc(sizeof *sums);
    memset(sums, 0, sizeof *sums);
    return sums;
}

/* Squares and sums are in double: 1e-12 leaves room for the order of summation, not for sums in float. Adding the same
 * again doubles; and pieces in any order, with the array elsewhere, are the whole to the bit. */
static void check_stats(ps_backend *k, const void *x, int64_t n, ps_dtype t)
{
    ps_grad_sums *whole = no_sums(), *pieces = no_sums(), *twice = no_sums();
    double want = 0.0;
    int64_t want_bad = 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)ps_dtype_load(t, x, i);
        want += isfinite(v) ? v * v : 0.0;
        want_bad += !isfinite(v);
    }
    add_piece(k, whole, x, 0, n, t);
    for (int time = 0; time < 2; time++) add_piece(k, twice, x, 0, n, t);
    const double sum = ps_exact_sum_value(&whole->sum_squares);
    if (!(fabs(sum - want) <= 1e-12 * want)) fail_msg("%s: sum is %.17g, expected %.17g", op_now.label, sum, want);
    assert_true(ps_exact_sum_value(&twice->sum_squares) == 2 * sum);
    assert_true(whole->n_nonfinite == want_bad && twice->n_nonfinite == 2 * want_bad);
    assert_int_equal(whole->first_nonfinite, want_bad > 0 ? TENSOR : 0);
    char *moved = op_alloc(64 + (size_t)n * ps_dtype_bytes(t));
    if (n > 0) memcpy(moved + 64, x, (size_t)n * ps_dtype_bytes(t));
    const int64_t half = n / 2 / PS_GRAD_STATS_BLOCK * PS_GRAD_STATS_BLOCK;
    add_piece(k, pieces, moved + 64, half, n - half, t);
    add_piece(k, pieces, moved + 64, 0, half, t);
    ps_exact_sum_carry(&pieces->sum_squares);
    assert_memory_equal(pieces, whole, sizeof *whole);
}

static void test_backends(void **state)
{
    (void)state;
    const int64_t sizes[] = {0, 1, 3, 7, 33, 65, 1000, 2048, 2049, 256 * 192 + 5, 513 * 2048 + 1};
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

/* The first of several tensors that has an element which is not finite is named. */
static void test_first_nonfinite(void **state)
{
    (void)state;
    ps_backend *k;
    char name[64];
    for (int i = 0; op_backend(i, &k, name); i++) {
        op_label("first, %s", name);
        float *fine = op_random(PS_DTYPE_F32, 9, 0.0, 1.0, 1), *bad = op_random(PS_DTYPE_F32, 9, 0.0, 1.0, 2);
        bad[4] = NAN, bad[5] = INFINITY;
        ps_grad_sums *sums = no_sums();
        const float *const tensors[] = {fine, fine, bad, fine, bad};
        for (int t = 0; t < (int)PS_ARRAY_LEN(tensors); t++) {
            const ps_grad_stats_args a = {.sums = sums, .x = tensors[t], .n = 9, .tensor = t};
            op_expect_ok(ps_run_grad_stats(k, NULL, &a, 0));
        }
        assert_int_equal(sums->n_nonfinite, 4);
        assert_int_equal(sums->first_nonfinite, 2);
        op_release();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_first_nonfinite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
