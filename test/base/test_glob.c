#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/glob.h"

static void test_matches(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"wte.weight", "wte.weight", true},
        {"wte", "wte.weight", false},
        {"weight", "wte.weight", false},
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "a.b.c", true},
        {"*.weight", "h.0.ln_1.weight", true},
        {"*.weight", "weight", false},
        {"h.*.attn.*", "h.11.attn.c_attn.bias", true},
        {"h.*.attn.*", "h.11.mlp.c_fc.bias", false},
        {"*ab*ab", "aabab", true},
        {"*aab", "aaab", true},
        {"a*b*c", "a.b.b.c.c", true},
        {"a*b*c", "a.b.b.c.d", false},
        {"**", "x", true},
        {"h.?.w", "h.7.w", true},
        {"h.?.w", "h.17.w", false},
        {"h.[0-5].*", "h.5.w", true},
        {"h.[0-5].*", "h.6.w", false},
        {"h.[!0-5].*", "h.6.w", true},
        {"h.[!0-5].*", "h.3.w", false},
        {"h.[024].*", "h.2.w", true},
        {"h.[024].*", "h.3.w", false},
        {"h.1[0-2].w", "h.11.w", true},
        {"[]x]", "]", true},
        {"[]x]", "x", true},
        {"[!]x]", "]", false},
        {"[a-]", "-", true},
        {"[a-]", "b", false},
        {"a[", "a[", true},
        {"a[b", "a[b", true},
        {"a[b", "ab", false},
        {"[\xc3-\xc4]", "\xc3", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (ps_glob_matches(cases[i].pattern, cases[i].name) != cases[i].matches)
            fail_msg("'%s' against '%s'", cases[i].pattern, cases[i].name);
}

/* A pattern that makes a matcher which tries all ways take for ever. */
static void test_takes_no_time(void **state)
{
    (void)state;
    assert_false(ps_glob_matches("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*ab",
                                 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

static void test_lists(void **state)
{
    (void)state;
    int which = -1;
    char pattern[8];
    assert_true(ps_glob_any_matches("wte.*,h.0.*,*", "h.0.w", &which));
    assert_int_equal(which, 1);
    assert_true(ps_glob_any_matches("wte.*,h.0.*,*", "ln_f", &which));
    assert_int_equal(which, 2);
    assert_false(ps_glob_any_matches("wte.*,h.0.*", "ln_f", &which));
    assert_false(ps_glob_any_matches("", "ln_f", NULL));
    assert_true(ps_glob_get("a,bc,d", 1, pattern, sizeof pattern));
    assert_string_equal(pattern, "bc");
    assert_true(ps_glob_get("a,bcdefghij", 1, pattern, sizeof pattern));
    assert_string_equal(pattern, "bcdefgh");
    assert_false(ps_glob_get("a,bc", 2, pattern, sizeof pattern));
    assert_false(ps_glob_get("", 0, pattern, sizeof pattern));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_matches), cmocka_unit_test(test_takes_no_time),
                                       cmocka_unit_test(test_lists)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
