/* test_name_index.c - names come, are found, and go, in any order: as an array without an index has it. */
#include "base/name_index.h"

#include <stdio.h>

#include "assert_status.h"
#include "base/mem.h"
#include "base/rng.h"

enum { NAMES = 300, TURNS = 20000 };

static void test_any_order(void **state)
{
    (void)state;
    static char names[NAMES][20];
    bool is_there[NAMES] = {false};
    const int64_t live = ps_mem_live_bytes();
    ps_name_index x = {0};
    int64_t n = 0;
    for (int i = 0; i < NAMES; i++) snprintf(names[i], sizeof names[i], "name %d", i);
    assert_int_equal(ps_name_index_find(&x, "name 0"), -1);
    ps_name_index_remove(&x, "name 0");
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        const uint32_t drawn = ps_rng_u32((ps_rng_key){.seed = 5}, turn);
        const int i = (int)(drawn % NAMES);
        if (drawn / NAMES % 2 == 0) {
            assert_ok(ps_name_index_reserve(&x, n + 1));
            assert_int_equal(ps_name_index_add(&x, names[i], i), !is_there[i]);
            n += !is_there[i];
            is_there[i] = true;
        } else {
            ps_name_index_remove(&x, names[i]);
            n -= is_there[i];
            is_there[i] = false;
        }
        for (int k = (int)(turn % 10); k < NAMES; k += 10)
            assert_int_equal(ps_name_index_find(&x, names[k]), is_there[k] ? k : -1);
    }
    ps_name_index_deinit(&x);
    assert_int_equal(ps_mem_live_bytes(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
