#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/mem.h"
#include "config/label_list.h"

static void test_texts_and_back(void **state)
{
    (void)state;
    static const struct {
        const char *text, *again, *last;
        int32_t n;
    } cases[] = {{"no,yes", "no,yes", "yes", 2},
                 {"[\"no\", \"yes\"]", "no,yes", "yes", 2},
                 {"[\"no, never\",\"yes\"]", "[\"no, never\",\"yes\"]", "yes", 2},
                 {"[\"[\",\"yes\"]", "[\"[\",\"yes\"]", "yes", 2},
                 {"[\"null\"]", "[\"null\"]", "null", 1},
                 {"one", "one", "one", 1}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_label_list l;
        char *text = NULL;
        assert_int_equal(ps_label_list_parse(cases[i].text, &l), PS_OK);
        assert_int_equal(l.n, cases[i].n);
        assert_string_equal(l.names[l.n - 1], cases[i].last);
        assert_int_equal(ps_label_list_find(&l, cases[i].last, (int64_t)strlen(cases[i].last)), l.n - 1);
        assert_int_equal(ps_label_list_format(&l, &text), PS_OK);
        assert_string_equal(text, cases[i].again);
        ps_mem_free(text);
        ps_label_list_deinit(&l);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_what_is_no_list(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {{"a,,b", "an empty name"}, {"a,b,a", "'a' twice"},         {"[\"a\",", "no JSON array"},
                 {"[1]", "entry 0"},        {"[\"a\",\"a\"]", "'a' twice"}, {"[\"\"]", "an empty name"}};
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        ps_label_list l;
        assert_int_equal(ps_label_list_parse(cases[i].text, &l), PS_EINVAL);
        if (strstr(ps_last_error(), cases[i].says) == NULL) fail_msg("case %zu: %s", i, ps_last_error());
        assert_int_equal(l.n, 0);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_description_is_cut(void **state)
{
    (void)state;
    ps_label_list l;
    char text[64];
    assert_int_equal(ps_label_list_parse("no,yes", &l), PS_OK);
    assert_string_equal(ps_label_list_describe(&l, text, sizeof text), "0 'no', 1 'yes'");
    assert_string_equal(ps_label_list_describe(&l, text, 34), "0 'no', ...");
    assert_string_equal(ps_label_list_describe(&l, text, 10), "...");
    ps_label_list_deinit(&l);
}

static void test_faults(void **state)
{
    (void)state;
    int n_failures = 0;
    for (bool has_struck = true; has_struck; n_failures += has_struck) {
        ps_label_list l;
        char *text = NULL;
        ps_fault_arm(PS_FAULT_ALLOC, n_failures, false);
        ps_status st = ps_label_list_parse("[\"a\",\"b\"]", &l);
        if (st == PS_OK) st = ps_label_list_format(&l, &text);
        has_struck = ps_fault_has_struck(PS_FAULT_ALLOC);
        ps_fault_arm(PS_FAULT_ALLOC, -1, false);
        assert_int_equal(st, has_struck ? PS_ENOMEM_HOST : PS_OK);
        ps_mem_free(text);
        ps_label_list_deinit(&l);
        assert_int_equal(ps_mem_live_bytes(), 0);
    }
    assert_int_equal(n_failures, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_and_back),
        cmocka_unit_test(test_what_is_no_list),
        cmocka_unit_test(test_description_is_cut),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
