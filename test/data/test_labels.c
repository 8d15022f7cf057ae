#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/mem.h"
#include "data/labels.h"

static void test_list(void **state)
{
    (void)state;
    ps_labels l;
    assert_int_equal(ps_labels_init(&l, "no,yes,not sure", 3), PS_OK);
    assert_true(l.is_fixed);
    assert_int_equal(l.list.n, 3);
    assert_int_equal(ps_labels_find(&l, "not sure", 8), 2);
    assert_int_equal(ps_labels_find(&l, "no", 2), 0);
    assert_int_equal(ps_labels_find(&l, "n", 1), -1);
    assert_int_equal(ps_labels_find(&l, "", 0), -1);
    assert_int_equal(ps_labels_find(&l, "yes!", 3), 1);
    ps_labels_deinit(&l);
    static const struct {
        const char *list, *message;
    } bad[] = {
        {"a,b,a", "'a' twice"}, {"a,,b", "an empty name"}, {"a,", "an empty name"}, {"a,b,c,d", "model's 3 classes"}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ps_labels_init(&l, bad[i].list, 3), PS_EINVAL);
        assert_non_null(strstr(ps_last_error(), bad[i].message));
        assert_int_equal(l.list.n, 0);
    }
    assert_int_equal(ps_labels_init(&l, "", 3), PS_OK);
    assert_false(l.is_fixed);
    ps_labels_deinit(&l);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_found_names_are_sorted(void **state)
{
    (void)state;
    ps_labels l;
    int32_t new_id[3];
    assert_int_equal(ps_labels_init(&l, NULL, 5), PS_OK);
    assert_int_equal(ps_labels_add(&l, "b", 1), PS_OK);
    assert_int_equal(ps_labels_add(&l, "cat", 2), PS_OK);
    assert_int_equal(ps_labels_add(&l, "Z", 1), PS_OK);
    ps_labels_fix(&l, new_id);
    assert_true(l.is_fixed);
    assert_string_equal(l.list.names[0], "Z");
    assert_string_equal(l.list.names[1], "b");
    assert_string_equal(l.list.names[2], "ca");
    assert_memory_equal(new_id, ((int32_t[]){1, 2, 0}), sizeof new_id);
    ps_labels_deinit(&l);
}

static void test_faults(void **state)
{
    (void)state;
    int n_failures = 0;
    for (bool has_struck = true; has_struck; n_failures += has_struck) {
        ps_labels l;
        ps_fault_arm(PS_FAULT_ALLOC, n_failures, false);
        const ps_status st = ps_labels_init(&l, "a,b", 2);
        has_struck = ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_int_equal(st, has_struck ? PS_ENOMEM_HOST : PS_OK);
        ps_labels_deinit(&l);
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
    assert_int_equal(n_failures, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_found_names_are_sorted),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
