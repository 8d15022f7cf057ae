#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "data/mlm.h"

enum { N = 200000, V = 1000, CLS = 1, SEP = 2, MASK = 3, PAD = 0 };

static const ps_specials specials = {CLS, SEP, MASK, PAD, -1};
static int32_t before[N], tokens[N], targets[N], again[N], again_targets[N];

static void fill(void)
{
    for (int i = 0; i < N; i++) before[i] = i % 10 == 0 ? i / 10 % 4 : 4 + i % (V - 4);
    memcpy(tokens, before, sizeof tokens);
    memcpy(again, before, sizeof again);
}

/* n of total successes at rate p: within 4 standard deviations (one such test in 16000 fails by chance; the draw is
 * fixed). */
static void assert_rate(int64_t n, int64_t total, double p)
{
    const double expected = (double)total * p, deviation = sqrt(expected * (1 - p));
    if (fabs((double)n - expected) > 4 * deviation)
        fail_msg("%lld of %lld, expected %g", (long long)n, (long long)total, expected);
}

static void test_throughput(void **state)
{
    (void)state;
    int64_t n_text = 0, n_chosen = 0, n_mask = 0, n_same = 0, n_random = 0;
    double sum = 0;
    fill();
    ps_mlm_mask(&specials, V, 0.15, (ps_rng_key){7, 1}, N, tokens, targets);
    for (int i = 0; i < N; i++) {
        const bool is_special = before[i] < 4;
        n_text += !is_special;
        if (targets[i] == -100) {
            assert_int_equal(tokens[i], before[i]);
            continue;
        }
        assert_false(is_special);
        assert_int_equal(targets[i], before[i]);
        assert_in_range(tokens[i], 0, V - 1);
        n_chosen++;
        if (tokens[i] == MASK)
            n_mask++;
        else if (tokens[i] == before[i])
            n_same++;
        else
            n_random++, sum += tokens[i];
    }
    assert_rate(n_chosen, n_text, 0.15);
    assert_rate(n_mask, n_chosen, 0.8);
    assert_rate(n_same, n_chosen, 0.1);
    assert_rate(n_random, n_chosen, 0.1);
    /* uniform: mean (V - 1) / 2, deviation V / sqrt(12 n) */
    assert_true(fabs(sum / (double)n_random - (V - 1) / 2.0) < 4 * V / sqrt(12.0 * (double)n_random));
}

/* The same key gives the same; another stream or seed differs; a row's beginning does not depend on its length. */
static void test_pure_function(void **state)
{
    (void)state;
    fill();
    ps_mlm_mask(&specials, V, 0.15, (ps_rng_key){7, 1}, N, tokens, targets);
    ps_mlm_mask(&specials, V, 0.15, (ps_rng_key){7, 1}, N / 2, again, again_targets);
    assert_memory_equal(tokens, again, N / 2 * sizeof *tokens);
    assert_memory_equal(targets, again_targets, N / 2 * sizeof *targets);
    for (uint64_t other = 0; other < 2; other++) {
        int64_t n_both = 0, n_text = 0;
        fill();
        ps_mlm_mask(&specials, V, 0.15, (ps_rng_key){7 + other, 2 - other}, N, again, again_targets);
        for (int i = 0; i < N; i++) {
            n_text += before[i] >= 4;
            n_both += targets[i] != -100 && again_targets[i] != -100;
        }
        assert_rate(n_both, n_text, 0.15 * 0.15);
    }
}

static void test_each_row_has_a_target(void **state)
{
    (void)state;
    int counts[5] = {0};
    for (uint64_t row = 0; row < 3000; row++) {
        int32_t t[] = {CLS, 10, 11, 12, SEP}, target[5];
        ps_mlm_mask(&specials, V, 1e-9, (ps_rng_key){1, row}, 5, t, target);
        int n = 0;
        for (int i = 0; i < 5; i++) {
            if (target[i] == -100) continue;
            n++;
            counts[i]++;
        }
        assert_int_equal(n, 1);
    }
    for (int i = 1; i < 4; i++) assert_rate(counts[i], 3000, 1.0 / 3);
    assert_int_equal(counts[0] + counts[4], 0);
    int32_t none[] = {CLS, PAD, SEP}, target[3];
    ps_mlm_mask(&specials, V, 1, (ps_rng_key){1, 1}, 3, none, target);
    for (int i = 0; i < 3; i++) assert_int_equal(target[i], -100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_throughput),
        cmocka_unit_test(test_pure_function),
        cmocka_unit_test(test_each_row_has_a_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
