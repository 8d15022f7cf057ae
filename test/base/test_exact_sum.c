/* test_exact_sum.c - no rounding, whatever the order; range; carries. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/exact_sum.h"

static double sum_of(const double *x, int n)
{
    ps_exact_sum s = {{0}};
    for (int i = 0; i < n; i++) ps_exact_sum_add(&s, x[i]);
    return ps_exact_sum_value(&s);
}

static void test_small_and_large(void **state)
{
    (void)state;
    /* in doubles each 1 would vanish next to 2^53 */
    double x[65];
    for (int i = 1; i < 65; i++) x[i] = 1.0;
    x[0] = 0x1p53;
    assert_true(sum_of(x, 65) == 0x1p53 + 64);
    assert_true(sum_of(x, 0) == 0.0);
    assert_true(sum_of(&(double){0.1}, 1) == 0.1);
}

/* Squares of the smallest and the largest fp32 values, and sums of blocks of these. */
static void test_range(void **state)
{
    (void)state;
    const double tiny = 0x1p-149 * 0x1p-149, big = (double)0x1.fffffep127f * (double)0x1.fffffep127f * 2048;
    assert_true(sum_of(&tiny, 1) == tiny);
    assert_true(sum_of(&big, 1) == big);
    ps_exact_sum s = {{0}};
    ps_exact_sum_add(&s, big);
    ps_exact_sum_add(&s, tiny);
    assert_true(ps_exact_sum_value(&s) == big);
    for (int i = 0; i + 1 < PS_EXACT_SUM_DIGITS; i++) assert_in_range(s.digit[i], 0, UINT32_MAX);
    ps_exact_sum other = {{0}};
    ps_exact_sum_add(&other, big);
    ps_exact_sum_carry(&other);
    int n_differ = 0; /* the tiny one is not lost, only rounded in the end */
    for (int i = 0; i < PS_EXACT_SUM_DIGITS; i++) n_differ += s.digit[i] != other.digit[i];
    assert_true(n_differ > 0);
}

static double random_square(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    const double v = (double)(*seed >> 40) * ldexp(1.0, (int)(*seed >> 33 & 127) - 80);
    return v * v;
}

/* Any order, and sums of parts on "ranks" whose carried digits are added as doubles, end in the same digits. */
static void test_order_and_parts(void **state)
{
    (void)state;
    enum { N = 5000, RANKS = 3 };
    static double x[N];
    uint64_t seed = 1;
    for (int i = 0; i < N; i++) x[i] = random_square(&seed);
    ps_exact_sum forth = {{0}}, back = {{0}}, part[RANKS] = {{{0}}}, whole = {{0}};
    for (int i = 0; i < N; i++) {
        ps_exact_sum_add(&forth, x[i]);
        ps_exact_sum_add(&back, x[N - 1 - i]);
        ps_exact_sum_add(&part[i % RANKS], x[i]);
    }
    double digit[PS_EXACT_SUM_DIGITS] = {0};
    for (int r = 0; r < RANKS; r++) {
        ps_exact_sum_carry(&part[r]);
        for (int i = 0; i < PS_EXACT_SUM_DIGITS; i++) digit[i] += (double)part[r].digit[i];
    }
    for (int i = 0; i < PS_EXACT_SUM_DIGITS; i++) whole.digit[i] = (int64_t)digit[i];
    const double value = ps_exact_sum_value(&forth);
    assert_true(ps_exact_sum_value(&back) == value);
    assert_true(ps_exact_sum_value(&whole) == value);
    assert_memory_equal(&forth, &back, sizeof forth);
    assert_memory_equal(&forth, &whole, sizeof forth);
    ps_exact_sum joined = {{0}};
    for (int r = 0; r < RANKS; r++) ps_exact_sum_join(&joined, &part[r]);
    assert_memory_equal(&forth, &joined, sizeof forth);
    long double about = 0;
    for (int i = 0; i < N; i++) about += (long double)x[i];
    assert_true(fabsl((long double)value - about) <= 1e-15L * about);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_and_large),
        cmocka_unit_test(test_range),
        cmocka_unit_test(test_order_and_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
