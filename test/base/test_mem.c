#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/mem.h"

static void test_alloc_is_zeroed_and_counted(void **state)
{
    (void)state;
    const int64_t before = ps_mem_live_bytes();
    unsigned char *p = NULL;
    assert_int_equal(ps_mem_alloc(100, 3, &p), PS_OK);
    for (int i = 0; i < 300; i++) assert_int_equal(p[i], 0);
    assert_int_equal((uintptr_t)p % 16, 0);
    assert_int_equal(ps_mem_live_bytes() - before, 300);
    ps_mem_free(p);
    assert_int_equal(ps_mem_live_bytes(), before);
    ps_mem_free(NULL);
    assert_int_equal(ps_mem_alloc(0, 8, &p), PS_OK);
    assert_non_null(p);
    ps_mem_free(p);
    assert_int_equal(ps_mem_live_bytes(), before);
}

static void test_overflow(void **state)
{
    (void)state;
    void *p = &p;
    assert_int_equal(ps_mem_alloc(SIZE_MAX / 2, 4, &p), PS_ENOMEM_HOST);
    assert_null(p);
    p = &p;
    assert_int_equal(ps_mem_alloc(SIZE_MAX, 1, &p), PS_ENOMEM_HOST);
    assert_null(p);
}

static void test_grow(void **state)
{
    (void)state;
    const int64_t before = ps_mem_live_bytes();
    int *p = NULL;
    assert_int_equal(ps_mem_bytes(p), 0);
    assert_int_equal(ps_mem_reserve(&p, 4, sizeof *p), PS_OK);
    const size_t room = ps_mem_bytes(p) / sizeof *p;
    assert_true(room >= 4);
    for (size_t i = 0; i < room; i++) p[i] = (int)i + 1;
    int *const unchanged = p;
    assert_int_equal(ps_mem_reserve(&p, room, sizeof *p), PS_OK);
    assert_ptr_equal(p, unchanged);
    assert_int_equal(ps_mem_reserve(&p, room + 1, sizeof *p), PS_OK);
    assert_true(ps_mem_bytes(p) >= (room + room / 2) * sizeof *p);
    for (size_t i = 0; i < ps_mem_bytes(p) / sizeof *p; i++) assert_int_equal(p[i], i < room ? (int)i + 1 : 0);
    assert_int_equal(ps_mem_live_bytes() - before, ps_mem_bytes(p));
    assert_int_equal(ps_mem_reserve(&p, 1000, sizeof *p), PS_OK);
    assert_int_equal(ps_mem_bytes(p), 1000 * sizeof *p);
    int *const last = p;
    ps_fault_arm(PS_FAULT_ALLOC, 0, false);
    assert_int_equal(ps_mem_reserve(&p, 9999, sizeof *p), PS_ENOMEM_HOST);
    ps_fault_arm(PS_FAULT_ALLOC, -1, false);
    assert_ptr_equal(p, last);
    assert_int_equal(p[3], 4);
    ps_mem_free(p);
    assert_int_equal(ps_mem_live_bytes(), before);
}

static void test_strdup(void **state)
{
    (void)state;
    char source[] = "chunk", *copy = NULL;
    assert_int_equal(ps_mem_strdup(source, &copy), PS_OK);
    source[0] = 'x';
    assert_string_equal(copy, "chunk");
    ps_mem_free(copy);
    ps_fault_arm(PS_FAULT_ALLOC, 0, false);
    assert_int_equal(ps_mem_strdup(source, &copy), PS_ENOMEM_HOST);
    ps_fault_arm(PS_FAULT_ALLOC, -1, false);
    assert_null(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_is_zeroed_and_counted),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_grow),
        cmocka_unit_test(test_strdup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
