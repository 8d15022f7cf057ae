/* The tree of maxima against a walk over the numbers. */
#include "chunk/chunk_fixture.h"
#include "chunk/max_tree.h"

enum { MAX_N = 70 };

static int32_t walk_most(const int64_t *numbers, int32_t n)
{
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++)
        if (numbers[i] > (best < 0 ? 0 : numbers[best])) best = i;
    return best;
}

static int32_t walk_above(const int64_t *numbers, int32_t n, int32_t begin, int64_t bound)
{
    for (int32_t i = begin; i < n; i++)
        if (numbers[i] > bound) return i;
    return -1;
}

static int64_t walk_greatest(const int64_t *numbers, int32_t begin, int32_t end)
{
    int64_t most = 0;
    for (int32_t i = begin; i < end; i++) most = ps_max_i64(most, numbers[i]);
    return most;
}

static void test_random_numbers(void **state)
{
    (void)state;
    const int64_t live = ps_mem_live_bytes();
    for (int32_t n = 0; n <= MAX_N; n++) {
        dice d = dice_of((uint64_t)n);
        int64_t numbers[MAX_N] = {0};
        ps_max_tree t;
        assert_ok(ps_max_tree_init(&t, n));
        assert_int_equal(ps_max_tree_most(&t), -1);
        assert_int_equal(ps_max_tree_next_above(&t, 0, 0), -1);
        for (int32_t turn = 0; turn < 200 && n > 0; turn++) {
            const int32_t i = roll(&d, n);
            numbers[i] = roll(&d, 3) == 0 ? 0 : roll(&d, 50) == 0 ? INT64_MAX : roll(&d, 20); /* many are equal */
            ps_max_tree_set(&t, i, numbers[i]);
            assert_int_equal(ps_max_tree_get(&t, i), numbers[i]);
            assert_int_equal(ps_max_tree_most(&t), walk_most(numbers, n));
            for (int32_t begin = 0; begin <= n; begin++) {
                const int32_t end = begin + roll(&d, n - begin + 1);
                assert_int_equal(ps_max_tree_greatest(&t, begin, end), walk_greatest(numbers, begin, end));
                const int64_t bound = roll(&d, 10) == 0 ? INT64_MAX - 1 : roll(&d, 21);
                assert_int_equal(ps_max_tree_next_above(&t, begin, bound), walk_above(numbers, n, begin, bound));
            }
        }
        ps_max_tree_deinit(&t);
    }
    ps_max_tree empty = {.nodes = NULL};
    ps_max_tree_deinit(&empty);
    assert_int_equal(ps_mem_live_bytes(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
