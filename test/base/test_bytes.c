#include "base/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ZEROS "00000000000000000000000000000000000"

static void sizes_are_parsed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {
        {"0", 0},
        {"1048576", 1048576},
        {"7b", 7},
        {"64MB", 64000000},
        {"64 mb", 64000000},
        {"64MiB", 64 << 20},
        {"64M", 64 << 20},
        {"1.5GiB", 3LL << 29},
        {"0.1GB", 100000000},
        {".5k", 512},
        {"2.", 2},
        {"2TB", 2000000000000},
        {"1PiB", 1LL << 50},
        {"0.00000000000000000000000001PB", 0},
        {"1.9B", 1},
        {"1.0000000000000000000000000000000000000000000000009KB", 1000},
        {"0." ZEROS ZEROS ZEROS ZEROS "9KB", 0},
        {"9223372036854775807", INT64_MAX},
        {"0000000000000000000000000000001KB", 1000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t bytes = -7;
        assert_int_equal(ps_bytes_parse(cases[i].text, &bytes), PS_OK);
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void what_is_no_size_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {"",    " ",     ".",    "MB",  "-1", "+1",  "1x",   "1MBs",
                                        "1Mi", "1.2.3", "auto", "1e3", " 1", "1iB", "1 K B"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t bytes = -7;
        assert_int_equal(ps_bytes_parse(cases[i], &bytes), PS_EINVAL);
        assert_int_equal(bytes, 0);
        assert_non_null(strstr(ps_last_error(), "is not a size"));
    }
}

static void what_is_too_large_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {"9223372036854775808", "8192PiB",
                                        "99999999999999999999999999999999999999999999", "9223372036854775807K"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t bytes = -7;
        assert_int_equal(ps_bytes_parse(cases[i], &bytes), PS_EINVAL);
        assert_int_equal(bytes, 0);
        assert_non_null(strstr(ps_last_error(), "exceeds the largest size"));
    }
}

static void sizes_are_printed(void **state)
{
    (void)state;
    static const struct {
        int64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {999, "999 B"},
        {-1, "-1 B"},
        {1000, "1 kB"},
        {1004, "1 kB"},
        {1005, "1.01 kB"},
        {9994, "9.99 kB"},
        {9995, "10 kB"},
        {96000000, "96 MB"},
        {89949999, "89.9 MB"},
        {89950000, "90 MB"},
        {246900000, "247 MB"},
        {999499, "999 kB"},
        {999500, "1 MB"},
        {1234567890, "1.23 GB"},
        {-1500000000, "-1.5 GB"},
        {999999999999, "1 TB"},
        {INT64_MAX, "9.22 EB"},
        {INT64_MIN, "-9.22 EB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[PS_BYTES_TEXT_MAX];
        assert_string_equal(ps_bytes_format(cases[i].bytes, text), cases[i].text);
    }
}

/* As an option takes it, and no less than it was: by parsing it again. */
static void sizes_are_rounded_up(void **state)
{
    (void)state;
    static const struct {
        int64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0B"},
        {999, "999B"},
        {1000, "1kB"},
        {1001, "1.01kB"},
        {480000, "480kB"},
        {999001, "1MB"},
        {1996000, "2MB"},
        {9999999, "10MB"},
        {87488987136, "87.5GB"},
        {113226724146, "114GB"},
        {999999999999, "1TB"},
    };
    char text[PS_BYTES_TEXT_MAX];
    int64_t again;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(ps_bytes_round_up(cases[i].bytes, text), cases[i].text);
    for (int64_t bytes = 1; bytes < INT64_MAX / 8; bytes = bytes * 7 / 5 + 3) {
        assert_int_equal(ps_bytes_parse(ps_bytes_round_up(bytes, text), &again), PS_OK);
        if (again < bytes || (double)again > 1.01 * (double)bytes) fail_msg("%lld: %s", (long long)bytes, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_parsed),
        cmocka_unit_test(what_is_no_size_is_refused),
        cmocka_unit_test(what_is_too_large_is_refused),
        cmocka_unit_test(sizes_are_printed),
        cmocka_unit_test(sizes_are_rounded_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
