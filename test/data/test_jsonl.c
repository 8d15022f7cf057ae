#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/jsonl.h"
#include "temp_folder.h"

static temp_folder folder;
static const ps_jsonl_keys all_keys = {"text", "text_pair", "label"};

/* Read all records; the last status. */
static ps_status read_all(const char *path, const ps_jsonl_keys *keys, int *n_records)
{
    ps_jsonl *r = NULL;
    ps_status st;
    *n_records = 0;
    PS_TRY_GOTO(ps_jsonl_open(path, keys, &r));
    for (bool has_record = true; has_record; *n_records += has_record) {
        ps_jsonl_record record;
        PS_TRY_GOTO(ps_jsonl_next(r, &record, &has_record));
    }
out:
    ps_jsonl_close(r);
    return st;
}

static temp_path write_text(const char *name, const char *text, size_t n)
{
    const temp_path p = temp_folder_file(&folder, name);
    assert_int_equal(ps_file_write_all(p.text, text, (int64_t)n), PS_OK);
    return p;
}

static void test_records(void **state)
{
    (void)state;
    static const char text[] = "\xEF\xBB\xBF{\"text\": \"a\\u0000b\", \"label\": 3, \"idx\": [1]}\r\n"
                               "\n  \t\r\n"
                               "{\"label\": \"ja\", \"text_pair\": \"\xC3\xA4\", \"text\": \"\"}\n"
                               "{\"text\": \"c\", \"text_pair\": null, \"label\": -1}";
    const temp_path p = write_text("records.jsonl", text, sizeof text - 1);
    ps_jsonl *r;
    ps_jsonl_record a;
    bool has_record;
    assert_int_equal(ps_jsonl_open(p.text, &all_keys, &r), PS_OK);
    assert_int_equal(ps_jsonl_next(r, &a, &has_record), PS_OK);
    assert_true(has_record);
    assert_int_equal(a.line, 1);
    assert_int_equal(a.offset, 3);
    assert_int_equal(a.text_bytes, 3);
    assert_memory_equal(a.text, "a\0b", 3);
    assert_null(a.text_pair);
    assert_null(a.label_name);
    assert_int_equal(a.label, 3);
    assert_int_equal(ps_jsonl_next(r, &a, &has_record), PS_OK);
    assert_int_equal(a.line, 4);
    assert_int_equal(a.offset, strstr(text, "{\"label\"") - text);
    assert_int_equal(a.text_bytes, 0);
    assert_int_equal(a.text_pair_bytes, 2);
    assert_string_equal(a.text_pair, "\xC3\xA4");
    assert_string_equal(a.label_name, "ja");
    assert_int_equal(a.label_name_bytes, 2);
    assert_int_equal(ps_jsonl_next(r, &a, &has_record), PS_OK);
    assert_true(has_record);
    assert_null(a.text_pair);
    assert_int_equal(a.label, -1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ps_jsonl_next(r, &a, &has_record), PS_OK);
        assert_false(has_record);
    }
    ps_jsonl_close(r);
    ps_jsonl_close(NULL);
}

/* Keys that were not asked for may be anything. */
static void test_keys_by_name(void **state)
{
    (void)state;
    static const char text[] = "{\"content\": \"x\", \"text\": 1, \"label\": {}, \"text_pair\": []}\n";
    const temp_path p = write_text("keys.jsonl", text, sizeof text - 1);
    int n;
    assert_int_equal(read_all(p.text, &(ps_jsonl_keys){.text = "content"}, &n), PS_OK);
    assert_int_equal(n, 1);
}

/* As Python's json module writes them: in values that were not asked for they do no harm. */
static void test_ignored_numbers(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\": NaN, \"b\": [Infinity, -Infinity, 1e999, -1E+400], \"text\": \"NaN 1e999\\\"\", \"label\": 7}\n"
        "{\"c\": 1000000000000000019884624838656, \"label\": -3, \"text\": \"\\\\\", \"d\": 0.5, "
        "\"e\":99999999999999999999}\n"
        "{\"label\": 999999999999999999, \"text\": \"x\", \"f\": {\"NaN\": NaN}, \"g\": -12345678901234567890.5e-3}";
    static const int64_t labels[] = {7, -3, 999999999999999999};
    static const char *const texts[] = {"NaN 1e999\"", "\\", "x"};
    const temp_path p = write_text("numbers.jsonl", text, sizeof text - 1);
    ps_jsonl *r;
    ps_jsonl_record a;
    bool has_record;
    assert_int_equal(ps_jsonl_open(p.text, &all_keys, &r), PS_OK);
    for (int i = 0; i < 3; i++) {
        if (ps_jsonl_next(r, &a, &has_record) != PS_OK) fail_msg("%s", ps_last_error());
        assert_true(has_record);
        assert_int_equal(a.label, labels[i]);
        assert_string_equal(a.text, texts[i]);
    }
    ps_jsonl_close(r);
}

/* Words and numbers within something that is no JSON get no value. */
static void test_broken_numbers_are_errors(void **state)
{
    (void)state;
    static const char *const values[] = {"NaN1", "5NaN", "NaNNaN", "1.5-Infinity", "1e999x", "x1e999", "NaN.5"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[80];
        ps_jsonl *r = NULL;
        ps_jsonl_record a;
        bool has_record;
        const int n = snprintf(text, sizeof text, "{\"text\": \"a\", \"label\": 0, \"w\": %s}\n", values[i]);
        const temp_path p = write_text("broken.jsonl", text, (size_t)n);
        assert_int_equal(ps_jsonl_open(p.text, &all_keys, &r), PS_OK);
        if (ps_jsonl_next(r, &a, &has_record) != PS_EFORMAT) fail_msg("%s is taken", values[i]);
        ps_jsonl_close(r);
    }
}

static void test_bad_lines_are_errors_with_line_and_offset(void **state)
{
    (void)state;
#define GOOD "{\"text\": \"a\", \"label\": 0}\n" /* 26 bytes */
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "line 1, offset 0: the file ends without any JSON object"},
        {"\n \n", "line 3, offset 3: the file ends without any JSON object"},
        {GOOD "\n{\"text\": \"a\", label: 0}\n", "line 3, offset 46: no valid JSON"},
        {GOOD "{\"text\": \"a\", \"la", "the file ends within this line: is it truncated?"},
        {GOOD "{\"text\": \"a\", \"la", "line 2, offset 43"},
        {GOOD "{\"text\": \"a\", \"la\n" GOOD, "line 2, offset"},
        {GOOD "{\"text\": \"a\xFF\", \"label\": 0}\n", "line 2, offset 37: invalid UTF-8"},
        {GOOD "[1]\n", "line 2, offset 26: the line is an array, expected an object"},
        {GOOD "{\"label\": 0}\n", "line 2, offset 26: \"text\" is missing, expected a string"},
        {GOOD "{\"text\": 5, \"label\": 0}\n", "\"text\" is an integer, expected a string"},
        {GOOD "{\"text\": \"a\"}\n", "\"label\" is missing, expected an integer or a string"},
        {GOOD "{\"text\": \"a\", \"label\": 1.5}\n", "\"label\" is a number with a fraction"},
        {GOOD "{\"text\": \"a\", \"label\": true}\n", "\"label\" is true"},
        {GOOD "{\"text\": \"a\", \"label\": 99999999999999999999}\n",
         "line 2, offset 26: \"label\" is a number with a fraction or out of range, expected an integer or a string"},
        {GOOD "{\"text\": \"a\", \"label\": NaN}\n",
         "line 2, offset 26: \"label\" is a number with a fraction or out of"},
        {GOOD "{\"text\": NaN, \"label\": 1}\n",
         "\"text\" is a number with a fraction or out of range, expected a string"},
        {GOOD "{\"text\": \"a\", \"x\": nan}\n", "line 2, offset 48: no valid JSON"},
        {GOOD "{\"text\": \"a\", \"x\": 1e999, }\n", "line 2, offset 53: no valid JSON"},
        {GOOD "{\"text\": \"a\", \"x\": 012345678901234567890}\n", "line 2, offset 46: no valid JSON"},
        {GOOD "{\"text\": \"a\", \"text_pair\": 1, \"label\": 1}\n", "\"text_pair\" is an integer, expected a string"},
        {GOOD "{\"text\": \"a\", \"text\": \"b\", \"label\": 1}\n", "line 2, offset"},
        {GOOD "{\"text\": \"a\", \"label\": 1} {}\n", "line 2, offset"},
    };
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        const temp_path p = write_text("bad.jsonl", cases[i].text, strlen(cases[i].text));
        int n;
        assert_int_equal(read_all(p.text, &all_keys, &n), PS_EFORMAT);
        if (strstr(ps_last_error(), cases[i].message) == NULL || strstr(ps_last_error(), "bad.jsonl: line") == NULL)
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, ps_last_error(), cases[i].message);
    }
    int n;
    assert_int_equal(read_all("/proc/nonexistent.jsonl", &all_keys, &n), PS_EIO);
}

/* Lines longer than the buffer, and lines that end exactly with it. */
static void test_long_lines(void **state)
{
    (void)state;
    enum { N = 300000 };
    char *text;
    assert_int_equal(ps_mem_alloc(N, 1, &text), PS_OK);
    for (int length = 65530; length < 65540; length++) {
        memset(text, 'x', N);
        memcpy(text, "{\"text\": \"", 10);
        memcpy(text + length - 3, "\"}\n", 3);
        memcpy(text + length, "{\"text\": \"", 10);
        memcpy(text + N - 2, "\"}", 2);
        const temp_path p = write_text("long.jsonl", text, N);
        ps_jsonl *r;
        ps_jsonl_record a;
        bool has_record;
        assert_int_equal(ps_jsonl_open(p.text, &(ps_jsonl_keys){.text = "text"}, &r), PS_OK);
        assert_int_equal(ps_jsonl_next(r, &a, &has_record), PS_OK);
        assert_int_equal(a.text_bytes, length - 13);
        assert_int_equal(ps_jsonl_next(r, &a, &has_record), PS_OK);
        assert_int_equal(a.offset, length);
        assert_int_equal(a.text_bytes, N - length - 12);
        assert_int_equal(ps_jsonl_next(r, &a, &has_record), PS_OK);
        assert_false(has_record);
        ps_jsonl_close(r);
    }
    ps_mem_free(text);
}

static void test_faults(void **state)
{
    (void)state;
    const temp_path p = write_text("fault.jsonl", GOOD GOOD, 52);
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_READ};
    static const ps_status codes[] = {PS_ENOMEM_HOST, PS_EIO};
    int n;
    for (int kind = 0; kind < 2; kind++) {
        int n_failures = 0;
        for (bool has_struck = true; has_struck; n_failures += has_struck) {
            ps_fault_arm(kinds[kind], n_failures, false);
            const ps_status st = read_all(p.text, &all_keys, &n);
            has_struck = ps_fault_has_struck(kinds[kind]);
            ps_fault_arm(kinds[kind], -1, false);
            assert_int_equal(st, has_struck ? codes[kind] : PS_OK);
            assert_int_equal(ps_mem_live_bytes(), 0);
        }
        assert_true(n_failures >= 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_keys_by_name),
        cmocka_unit_test(test_ignored_numbers),
        cmocka_unit_test(test_broken_numbers_are_errors),
        cmocka_unit_test(test_bad_lines_are_errors_with_line_and_offset),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_faults),
    };
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_remove(&folder);
    return n_failed;
}
