/* doc/config.md is generated; this test fails when it is stale.
 * To bring it up to date: build/gcc-d0/test/config/test_config_doc --write */
#include "config/config.h"
#include "config/option/option.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char path[] = "doc/config.md";

static char *text_of(ps_status (*writer)(FILE *))
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    assert_non_null(out);
    assert_int_equal(writer(out), PS_OK);
    fclose(out);
    return text;
}

static void page_is_up_to_date(void **state)
{
    (void)state;
    char *expected = text_of(ps_config_write_doc);
    const size_t n = strlen(expected);
    char *found = calloc(1, n + 2);
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("%s is missing; run this program with --write", path);
    const size_t n_found = fread(found, 1, n + 1, file);
    fclose(file);
    if (n_found != n || memcmp(found, expected, n) != 0) fail_msg("%s is stale; run this program with --write", path);
    free(found);
    free(expected);
}

static void page_and_help_name_every_option(void **state)
{
    (void)state;
    char *doc = text_of(ps_config_write_doc), *help = text_of(ps_config_write_help);
    for (int i = 0; i < PS_OPTION_COUNT; i++) {
        char row[PS_OPTION_KEY_MAX + 8], line[PS_OPTION_KEY_MAX + 8];
        snprintf(row, sizeof row, "\n| `%s` |", ps_option_table[i].key);
        snprintf(line, sizeof line, "\n  %s=", ps_option_table[i].key);
        if (strstr(doc, row) == NULL || strstr(help, line) == NULL) fail_msg("%s is not described", row);
    }
    assert_non_null(strstr(doc, "| Token types. Only with model.type bert. |"));
    assert_non_null(strstr(help, "      Token types.\n      Only with model.type bert.\n"));
    for (const char *line = help, *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
        assert_in_range(end - line, 0, 100);
    free(doc);
    free(help);
}

static void a_stream_that_fails_is_an_error(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    if (full == NULL) skip();
    assert_int_equal(ps_config_write_doc(full), PS_EIO);
    assert_int_equal(ps_config_write_help(full), PS_EIO);
    fclose(full);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--write") == 0) {
        FILE *out = fopen(path, "w");
        if (out == NULL) return EXIT_FAILURE;
        const ps_status st = ps_config_write_doc(out);
        return fclose(out) == 0 && st == PS_OK ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_is_up_to_date),
        cmocka_unit_test(page_and_help_name_every_option),
        cmocka_unit_test(a_stream_that_fails_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
