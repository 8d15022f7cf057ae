#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"

static void test_idle(void **state)
{
    (void)state;
    for (int kind = 0; kind < PS_FAULT_COUNT; kind++) {
        assert_false(ps_fault_hit((ps_fault_kind)kind));
        assert_false(ps_fault_has_struck((ps_fault_kind)kind));
    }
}

static void test_nth_call_once(void **state)
{
    (void)state;
    for (int nth = 0; nth < 5; nth++) {
        ps_fault_arm(PS_FAULT_READ, nth, false);
        for (int call = 0; call < 10; call++) {
            assert_int_equal(ps_fault_hit(PS_FAULT_READ), call == nth);
            assert_int_equal(ps_fault_has_struck(PS_FAULT_READ), call >= nth);
            assert_int_equal(ps_fault_calls(PS_FAULT_READ), call + 1);
            assert_false(ps_fault_hit(PS_FAULT_WRITE));
        }
    }
    ps_fault_arm(PS_FAULT_READ, -1, false);
}

static void test_persistent(void **state)
{
    (void)state;
    ps_fault_arm(PS_FAULT_COPY, 3, true);
    for (int call = 0; call < 10; call++) assert_int_equal(ps_fault_hit(PS_FAULT_COPY), call >= 3);
    ps_fault_arm(PS_FAULT_COPY, -1, false);
    assert_false(ps_fault_hit(PS_FAULT_COPY));
    assert_false(ps_fault_has_struck(PS_FAULT_COPY));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_nth_call_once),
        cmocka_unit_test(test_persistent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
