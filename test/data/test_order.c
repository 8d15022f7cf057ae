#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/order.h"

enum { N_MAX = 1003 };

/* Each epoch visits each number once, in an order of its own. */
static void test_epochs_are_permutations(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= N_MAX; n = n * 3 / 2 + 1) {
        int64_t n_moved = 0, n_in_place = 0;
        for (uint64_t epoch = 0; epoch < 8; epoch++) {
            bool is_seen[N_MAX] = {false};
            for (int64_t i = 0; i < n; i++) {
                const int64_t w = ps_order_at(42, epoch, n, i);
                assert_in_range(w, 0, n - 1);
                assert_false(is_seen[w]);
                is_seen[w] = true;
                n_moved += w != ps_order_at(42, epoch + 1, n, i);
                n_in_place += w == i;
            }
        }
        if (n > 10) { /* a random permutation has 1 fixed point and agrees with another in 1 place on average */
            assert_true(n_moved > 8 * (n - 5));
            assert_true(n_in_place < 8 * 5);
        }
    }
}

static void test_seed_decides(void **state)
{
    (void)state;
    int n_equal = 0;
    for (int64_t i = 0; i < N_MAX; i++) {
        assert_int_equal(ps_order_at(1, 0, N_MAX, i), ps_order_at(1, 0, N_MAX, i));
        n_equal += ps_order_at(1, 0, N_MAX, i) == ps_order_at(2, 0, N_MAX, i);
    }
    assert_true(n_equal < 10);
}

/* The numbers at place 0 over many epochs are spread evenly: chi square of 50 numbers, 49 degrees of freedom. */
static void test_order_is_uniform(void **state)
{
    (void)state;
    int counts[50] = {0};
    for (uint64_t epoch = 0; epoch < 5000; epoch++) counts[ps_order_at(3, epoch, 50, 0)]++;
    double chi_square = 0;
    for (int i = 0; i < 50; i++) chi_square += (counts[i] - 100.0) * (counts[i] - 100.0) / 100.0;
    assert_true(chi_square > 23.9 && chi_square < 85.4); /* 0.1 % on either side */
}

static void test_large_n(void **state)
{
    (void)state;
    const int64_t n = ((int64_t)1 << 40) + 1;
    for (int64_t i = n - 100; i < n; i++) assert_in_range(ps_order_at(1, 0, n, i), 0, n - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs_are_permutations),
        cmocka_unit_test(test_seed_decides),
        cmocka_unit_test(test_order_is_uniform),
        cmocka_unit_test(test_large_n),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
