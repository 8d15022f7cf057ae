#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/base.h"
#include "base/machine.h"
#include "base/mem.h"
#include "data/regex.h"

static char *repeat(char c, int64_t n)
{
    char *text = NULL;
    assert_int_equal(ps_mem_alloc((size_t)n + 1, 1, &text), PS_OK);
    memset(text, c, (size_t)n);
    return text;
}

static ps_status find(const char *pattern, const char *text, int64_t n, int64_t *begin, int64_t *end)
{
    ps_regex *r = NULL;
    PS_TRY(ps_regex_create(pattern, false, "t.json", &r));
    const ps_status st = ps_regex_find(r, text, n, 0, begin, end);
    ps_regex_destroy(r);
    return st;
}

static int64_t peak_bytes(void)
{
    ps_machine_rss_info info;
    assert_int_equal(ps_machine_rss(NULL, &info), PS_OK);
    return info.peak_bytes;
}

/* Something to go back to for each of millions of characters: an error, and not gigabytes. */
static void test_memory_is_limited(void **state)
{
    (void)state;
    enum { N = 8 << 20 };
    int64_t begin, end;
    char *text = repeat('a', N);
    const int64_t before = peak_bytes();
    const ps_status st = find("(?:a|b)*c", text, N, &begin, &end);
    const int64_t taken = peak_bytes() - before;
    if (taken > 256 * PS_MIB)
        fail_msg("it took %lld MB", (long long)(taken / 1000000)); /* sanitizers keep what is freed */
    assert_int_equal(st, PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "byte 0"));
    assert_non_null(strstr(ps_last_error(), "64 MiB"));
    ps_mem_free(text);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Exponentially many ways to try: an error, and not a night. */
static void test_time_is_limited(void **state)
{
    (void)state;
    int64_t begin, end;
    char *text = repeat('a', 64);
    text[63] = '!';
    assert_int_equal(find("(?:a+)+b", text, 64, &begin, &end), PS_OK); /* there is no b at all */
    assert_int_equal(find("(?:a|a)+$", text, 64, &begin, &end), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "steps"));
    ps_mem_free(text);
}

/* Words and spaces of any length need no memory of that kind: what real tokenizers have. */
static void test_long_words(void **state)
{
    (void)state;
    enum { N = 8 << 20 };
    static const char *const patterns[] = {
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(patterns); i++)
        for (const char *c = "a !\n"; *c != '\0'; c++) {
            int64_t begin, end;
            char *text = repeat(*c, N);
            assert_int_equal(find(patterns[i], text, N, &begin, &end), PS_OK);
            assert_int_equal(begin, 0);
            assert_int_equal(end, N);
            ps_mem_free(text);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_limited),
        cmocka_unit_test(test_time_is_limited),
        cmocka_unit_test(test_long_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
