/* test_unified_memory.c - two devices of one memory: what one has becomes the other's, where it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "device_fixture.h"

/* A block goes from budget to budget where it is; two change places where neither has room for more. */
static void test_blocks_move_zero_copy(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(all_ops); i++) {
        ps_device *a = device_new(all_ops[i], 4 * PAGE), *b = device_new(all_ops[i], 3 * PAGE);
        char *p = block_new(a, 2 * PAGE - 1), *q = block_new(b, 3 * PAGE), *r = block_new(a, PAGE);
        if (ps_device_has_memory(a)) p[0] = 1, q[0] = 2;
        ps_device_let_go(a, 2 * PAGE - 1);
        ps_device_let_go(b, 3 * PAGE);
        ps_device_adopt_pages(a, b, 3 * PAGE);
        ps_device_adopt_pages(b, a, 2 * PAGE - 1);
        check_stats(a, 4 * PAGE, 0, 4 * PAGE);
        check_stats(b, 2 * PAGE, 0, 3 * PAGE);
        if (ps_device_has_memory(a)) assert_true(p[0] == 1 && q[0] == 2);
        ps_device_free(b, p, 2 * PAGE - 1, NULL);
        ps_device_free(a, q, 3 * PAGE, NULL);
        ps_device_free(a, r, PAGE, NULL);
        ps_device_destroy(a);
        ps_device_destroy(b);
    }
}

/* Kept pages that are in the way go to the device that has let go of as many, and are found there again. */
static void test_kept_blocks_go_the_other_way(void **state)
{
    (void)state;
    ps_device *a = device_new(&ps_device_cpu_ops, 2 * PAGE), *b = device_new(&ps_device_cpu_ops, 2 * PAGE);
    void *p = block_new(a, PAGE), *q = block_new(b, PAGE), *r = block_new(b, PAGE);
    ps_device_free(b, q, PAGE, NULL);
    ps_device_let_go(a, PAGE);
    ps_device_adopt_pages(b, a, PAGE);
    check_stats(a, 0, PAGE, PAGE);
    check_stats(b, 2 * PAGE, 0, 2 * PAGE);
    assert_ptr_equal(block_new(a, PAGE), q);
    ps_device_free(b, r, PAGE, NULL); /* without keeping they go back to the system */
    ps_device_set_keep(a, false);
    ps_device_let_go(a, PAGE);
    ps_device_adopt_pages(b, a, PAGE);
    check_stats(a, 0, 0, PAGE);
    check_stats(b, 2 * PAGE, 0, 2 * PAGE);
    ps_device_free(b, p, PAGE, NULL);
    ps_device_free(b, q, PAGE, NULL);
    ps_device_destroy(a);
    ps_device_destroy(b);
}

/* Two regions of the same addresses: a page is committed in one of them. */
static void test_regions_move_zero_copy(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(all_ops); i++) {
        ps_device *a = device_new(all_ops[i], 2 * PAGE), *b = device_new(all_ops[i], 4 * PAGE);
        ps_region *x, *y;
        assert_int_equal(ps_region_create(a, 8 * PAGE, &x), PS_OK);
        assert_int_equal(ps_region_create_paired(b, x, &y), PS_OK);
        char *base = ps_region_base(x);
        assert_ptr_equal(ps_region_base(y), base);
        assert_int_equal(ps_region_commit(x, 2 * PAGE, 2 * PAGE), PS_OK);
        if (ps_device_has_memory(a)) memset(base + 2 * PAGE, 7, (size_t)(2 * PAGE));
        ps_region_let_go(x, 2 * PAGE, 2 * PAGE);
        ps_region_adopt_pages(y, x, 2 * PAGE, 2 * PAGE);
        check_stats(a, 0, 0, 2 * PAGE);
        check_stats(b, 2 * PAGE, 0, 2 * PAGE);
        assert_int_equal(ps_region_commit(x, 0, 2 * PAGE), PS_OK); /* where the other one has nothing */
        if (ps_device_has_memory(a)) {
            memset(base, 9, (size_t)(2 * PAGE));
            for (int64_t k = 2 * PAGE; k < 4 * PAGE; k++) assert_int_equal(base[k], 7);
        }
        ps_region_decommit(y, 2 * PAGE, 2 * PAGE, NULL);
        ps_region_decommit(x, 0, 2 * PAGE, NULL);
        ps_region_destroy(y);
        assert_int_equal(ps_region_commit(x, 0, PAGE), PS_OK); /* the addresses are x's still */
        if (ps_device_has_memory(a)) base[0] = 1;
        ps_region_decommit(x, 0, PAGE, NULL);
        ps_region_destroy(x);
        ps_device_destroy(a);
        ps_device_destroy(b);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_move_zero_copy),
        cmocka_unit_test(test_kept_blocks_go_the_other_way),
        cmocka_unit_test(test_regions_move_zero_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
