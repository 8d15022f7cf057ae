/* doc/hardware.md is generated; this test fails when it is stale.
 * To bring it up to date: build/gcc-d0/test/config/test_hardware_doc --write */
#include "config/hardware_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char path[] = "doc/hardware.md";

static char *generated_page(void)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    assert_non_null(out);
    assert_int_equal(ps_hardware_write_doc(out), PS_OK);
    fclose(out);
    return text;
}

static void page_is_up_to_date(void **state)
{
    (void)state;
    char *expected = generated_page();
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

static void page_names_every_key(void **state)
{
    (void)state;
    char *page = generated_page();
    for (int i = 0; i < ps_hardware_n_keys; i++) {
        char row[PS_OPTION_KEY_MAX + 8];
        snprintf(row, sizeof row, "\n| `%s` |", ps_hardware_keys[i].option.key);
        if (strstr(page, row) == NULL) fail_msg("%s is not described", ps_hardware_keys[i].option.key);
    }
    free(page);
}

static void a_stream_that_fails_is_an_error(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    if (full == NULL) skip();
    assert_int_equal(ps_hardware_write_doc(full), PS_EIO);
    fclose(full);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--write") == 0) {
        FILE *out = fopen(path, "w");
        if (out == NULL) return EXIT_FAILURE;
        const ps_status st = ps_hardware_write_doc(out);
        return fclose(out) == 0 && st == PS_OK ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_is_up_to_date),
        cmocka_unit_test(page_names_every_key),
        cmocka_unit_test(a_stream_that_fails_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
