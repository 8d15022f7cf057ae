#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/kernel.h"

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(ps_op_name(PS_OP_linear_fwd), "linear_fwd");
    assert_string_equal(ps_op_name(PS_OP_fill), "fill");
    assert_string_equal(ps_op_name(PS_OP_COUNT), "?");
    assert_string_equal(ps_op_name((ps_op)-1), "?");
}

static void check_full(const ps_kernels *k)
{
    assert_non_null(k->name);
    assert_non_null(k->workspace_bytes);
#define XX(op, args) assert_true(k->op != NULL);
#include "kernel/op.def"
#undef XX
}

static void test_every_slot_is_filled(void **state)
{
    (void)state;
    ps_kernels k = {0};
    ps_kernels_init_ref(&k);
    check_full(&k);
    assert_string_equal(k.name, "ref");
    for (int isa = 0; isa <= (int)ps_cpu_isa_detect(); isa++) {
        k = (ps_kernels){0};
        ps_kernels_init_cpu(&k, (ps_cpu_isa)isa);
        check_full(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_every_slot_is_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
