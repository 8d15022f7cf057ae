/* test_item.c - bytes and offsets of elements by themselves and in groups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/item.h"

static void test_single_elements(void **state)
{
    (void)state;
    const ps_item f32 = {4, 1};
    assert_int_equal(ps_item_bytes(f32, 0), 0);
    assert_int_equal(ps_item_bytes(f32, 33), 132);
    assert_int_equal(ps_item_offset(f32, 33), 132);
    assert_int_equal(ps_item_elements(f32, 100), 25);
}

static void test_groups(void **state)
{
    (void)state;
    const ps_item compact = {36, 32};
    assert_int_equal(ps_item_bytes(compact, 0), 0);
    assert_int_equal(ps_item_bytes(compact, 1), 36);
    assert_int_equal(ps_item_bytes(compact, 32), 36);
    assert_int_equal(ps_item_bytes(compact, 33), 72);
    assert_int_equal(ps_item_offset(compact, 64), 72);
    assert_int_equal(ps_item_elements(compact, 107), 64);
    assert_int_equal(ps_item_bytes(compact, (int64_t)1 << 40), ((int64_t)1 << 35) * 36);
}

static void test_no_array(void **state)
{
    (void)state;
    assert_int_equal(ps_item_bytes((ps_item){0}, 100), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_single_elements),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_no_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
