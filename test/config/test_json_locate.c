#include "config/json_locate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char text[] = "\n"
                           "{ \"a\" : 1,\n"
                           "  \"skip\": [{\"b\": \"}]\\\"{\", \"c\": []}, {}, -1.5e3, null],\n"
                           "  \"\\u00e9\\n\\\"\\\\\\uD83D\\uDE00\": {\"b\": {\"c\": true}},\n"
                           "  \"é\": [[ ], [10, \"x\", {\"k\": false}]], \"last\": \"end\" }\n";

static const ps_json_path a = {.key = "a"};
static const ps_json_path escaped = {.key = "\xc3\xa9\n\"\\\xf0\x9f\x98\x80"};
static const ps_json_path escaped_b = {.parent = &escaped, .key = "b"};
static const ps_json_path escaped_b_c = {.parent = &escaped_b, .key = "c"};
static const ps_json_path accent = {.key = "\xc3\xa9"};
static const ps_json_path accent_1 = {.parent = &accent, .index = 1};
static const ps_json_path accent_1_2 = {.parent = &accent_1, .index = 2};
static const ps_json_path accent_1_2_k = {.parent = &accent_1_2, .key = "k"};
static const ps_json_path last = {.key = "last"};

static void expect(const ps_json_path *path, const char *key, const char *value)
{
    ps_json_position place;
    assert_true(ps_json_locate(text, strlen(text), path, &place));
    assert_memory_equal(text + place.key_offset, key, strlen(key));
    assert_memory_equal(text + place.value_offset, value, strlen(value));
}

static void values_are_found(void **state)
{
    (void)state;
    expect(NULL, "{ \"a\"", "{ \"a\"");
    expect(&a, "\"a\" :", "1,");
    expect(&escaped, "\"\\u00e9", "{\"b\": {");
    expect(&escaped_b, "\"b\": {\"c\"", "{\"c\"");
    expect(&escaped_b_c, "\"c\": true", "true");
    expect(&accent, "\"\xc3\xa9\"", "[[ ]");
    expect(&accent_1, "[10", "[10");
    expect(&accent_1_2_k, "\"k\"", "false");
    expect(&last, "\"last\"", "\"end\"");
}

static void missing_values_are_not_found(void **state)
{
    (void)state;
    const ps_json_path no_key = {.key = "b"}, prefix = {.key = "las"}, longer = {.key = "lasts"};
    const ps_json_path no_index = {.parent = &accent_1, .index = 3}, in_number = {.parent = &a, .key = "a"};
    const ps_json_path index_in_object = {.index = 0}, empty_array = {.parent = &accent, .index = 0};
    const ps_json_path in_empty = {.parent = &empty_array, .index = 0};
    const ps_json_path *paths[] = {&no_key, &prefix, &longer, &no_index, &in_number, &index_in_object, &in_empty};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        ps_json_position place = {7, 7};
        assert_false(ps_json_locate(text, strlen(text), paths[i], &place));
        assert_int_equal(place.key_offset, 0);
        assert_int_equal(place.value_offset, 0);
    }
}

/* Every prefix of the text is broken JSON: nothing outside it may be read (checked by the sanitizer: the copy ends
 * where the block ends), and the search ends. */
static void cut_text_is_harmless(void **state)
{
    (void)state;
    const ps_json_path *paths[] = {NULL, &a, &escaped_b_c, &accent_1_2_k, &last};
    for (size_t n = 0; n < strlen(text); n++) {
        char *cut = malloc(n + 1);
        memcpy(cut, text, n);
        cut[n] = '"';
        for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
            ps_json_position place;
            if (ps_json_locate(cut, n, paths[i], &place)) assert_in_range(place.value_offset, 0, n - 1);
        }
        free(cut);
    }
}

static void depth_costs_no_stack(void **state)
{
    (void)state;
    enum { DEPTH = 1 << 20 };
    char *deep = malloc(2 * DEPTH + 32);
    memcpy(deep, "[", 1);
    memset(deep + 1, '[', DEPTH);
    memset(deep + 1 + DEPTH, ']', DEPTH);
    strcpy(deep + 1 + 2 * (size_t)DEPTH, ",5]");
    const ps_json_path second = {.index = 1};
    ps_json_position place;
    assert_true(ps_json_locate(deep, strlen(deep), &second, &place));
    assert_int_equal(deep[place.value_offset], '5');
    free(deep);
}

static void lines_and_columns_count_characters(void **state)
{
    (void)state;
    static const char two[] = "ab\n\xc3\xa9\xf0\x9f\x98\x80x\r\ny";
    static const struct {
        size_t offset;
        int line, column;
    } cases[] = {{0, 1, 1}, {1, 1, 2}, {3, 2, 1}, {5, 2, 2}, {9, 2, 3}, {12, 3, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int line, column;
        ps_json_line_column(two, cases[i].offset, &line, &column);
        assert_int_equal(line, cases[i].line);
        assert_int_equal(column, cases[i].column);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_found),
        cmocka_unit_test(missing_values_are_not_found),
        cmocka_unit_test(cut_text_is_harmless),
        cmocka_unit_test(depth_costs_no_stack),
        cmocka_unit_test(lines_and_columns_count_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
