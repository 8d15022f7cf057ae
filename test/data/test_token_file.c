#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/token_file.h"
#include "temp_folder.h"

static temp_folder folder;

static void assert_content(const char *path, int32_t vocab_size, const int32_t *expected, int64_t n)
{
    ps_token_file *f;
    int32_t ids[64];
    assert_int_equal(ps_token_file_open(path, &f), PS_OK);
    assert_int_equal(ps_token_file_count(f), n);
    assert_int_equal(ps_token_file_check(f, vocab_size), PS_OK);
    for (int64_t first = 0; first <= n; first++) {
        assert_int_equal(ps_token_file_read(f, first, n - first, vocab_size, ids), PS_OK);
        assert_memory_equal(ids, expected + first, (size_t)(n - first) * sizeof *ids);
    }
    ps_token_file_close(f);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const int32_t narrow[] = {0, 1, 65535, 7, 256}, wide[] = {0, 65536, 151642, 5};
    const temp_path p = temp_folder_file(&folder, "a.bin");
    assert_int_equal(ps_token_file_write(p.text, narrow, 5), PS_OK);
    assert_content(p.text, 65536, narrow, 5);
    assert_int_equal(ps_token_file_write(p.text, wide, 4), PS_OK);
    assert_content(p.text, 151643, wide, 4);
}

/* The bytes llm.c's data scripts write. */
static void test_layout_is_that_of_llm_c(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "layout.bin");
    char *data;
    int64_t n;
    static const unsigned char narrow_head[] = {0x88, 0xD8, 0x34, 0x01, 1, 0, 0, 0, 2, 0, 0, 0, 0};
    static const unsigned char wide_head[] = {0xA1, 0xD9, 0x34, 0x01, 7, 0, 0, 0, 1, 0, 0, 0, 0};
    assert_int_equal(ps_token_file_write(p.text, (const int32_t[]){0x1234, 0xFF}, 2), PS_OK);
    assert_int_equal(ps_file_read_all(p.text, 4096, &data, &n), PS_OK);
    assert_int_equal(n, 1024 + 4);
    assert_memory_equal(data, narrow_head, sizeof narrow_head);
    assert_memory_equal(data + 1024, "\x34\x12\xFF\x00", 4);
    ps_mem_free(data);
    assert_int_equal(ps_token_file_write(p.text, (const int32_t[]){0x12345}, 1), PS_OK);
    assert_int_equal(ps_file_read_all(p.text, 4096, &data, &n), PS_OK);
    assert_int_equal(n, 1024 + 4);
    assert_memory_equal(data, wide_head, sizeof wide_head);
    assert_memory_equal(data + 1024, "\x45\x23\x01\x00", 4);
    ps_mem_free(data);
    /* the largest that is narrow */
    assert_int_equal(ps_token_file_write(p.text, (const int32_t[]){UINT16_MAX}, 1), PS_OK);
    assert_int_equal(ps_file_read_all(p.text, 4096, &data, &n), PS_OK);
    assert_int_equal(n, 1024 + 2);
    ps_mem_free(data);
}

static void test_bare_uint16(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "nano.u16");
    ps_token_file *f;
    assert_int_equal(ps_file_write_all(p.text, "\x01\x00\x50\xC4", 4), PS_OK);
    assert_content(p.text, 50257, (const int32_t[]){1, 50256}, 2);
    assert_int_equal(ps_file_write_all(p.text, "\x01\x00\x50", 3), PS_OK);
    assert_int_equal(ps_token_file_open(p.text, &f), PS_EFORMAT);
    assert_int_equal(ps_file_write_all(p.text, "", 0), PS_OK);
    assert_int_equal(ps_token_file_open(p.text, &f), PS_EFORMAT);
    assert_null(f);
}

static void test_damaged_files_are_errors(void **state)
{
    (void)state;
    static const struct {
        int offset; /* of the byte that becomes `value` */
        unsigned char value;
        int n_bytes; /* of the file; 1024 + 6 is right */
        const char *message;
    } cases[] = {
        {0, 0x89, 1030, "offset 0: magic 20240521, expected 20240520 or 20240801; for uint16 tokens without a header"},
        {4, 2, 1030, "offset 4: version 2, expected 1"},
        {8, 0, 1030, "offset 8: 0 tokens, expected at least 1"},
        {11, 0x80, 1030, "offset 8: -2147483645 tokens"},
        {8, 4, 1030, "the file ends at offset 1030, expected 1032 for the 4 tokens"},
        {8, 2, 1030, "ends at offset 1030, expected 1028"},
        {8, 3, 1029, "ends at offset 1029, expected 1030"},
        {8, 3, 1024, "ends at offset 1024, expected 1030"},
        {8, 3, 1023, "ends at offset 1023, expected a header of 1024 bytes"},
        {8, 3, 3, "ends at offset 3, expected a header"},
        {0, 0x89, 4, "offset 0: magic 20240521"},
        {8, 3, 0, "ends at offset 0, expected a header"},
    };
    const temp_path good = temp_folder_file(&folder, "good.bin"), bad = temp_folder_file(&folder, "bad.bin");
    char *data;
    int64_t n;
    ps_token_file *f;
    assert_int_equal(ps_token_file_write(good.text, (const int32_t[]){1, 2, 3}, 3), PS_OK);
    assert_int_equal(ps_file_read_all(good.text, 4096, &data, &n), PS_OK);
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        const char before = data[cases[i].offset];
        data[cases[i].offset] = (char)cases[i].value;
        assert_int_equal(ps_file_write_all(bad.text, data, cases[i].n_bytes), PS_OK);
        data[cases[i].offset] = before;
        assert_int_equal(ps_token_file_open(bad.text, &f), PS_EFORMAT);
        assert_null(f);
        if (strstr(ps_last_error(), cases[i].message) == NULL || strstr(ps_last_error(), "bad.bin") == NULL)
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, ps_last_error(), cases[i].message);
    }
    ps_mem_free(data);
    assert_int_equal(ps_token_file_open("/proc/nonexistent.bin", &f), PS_EIO);
}

/* nanoGPT's own files are called train.bin: the caller says what they are. */
static void test_format_given_by_the_caller(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "train.bin");
    ps_token_file *f;
    int32_t ids[2];
    assert_int_equal(ps_file_write_all(p.text, "\x01\x00\x50\xC4", 4), PS_OK);
    assert_int_equal(ps_token_file_open(p.text, &f), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "data.format = nanogpt"));
    assert_int_equal(ps_token_file_open_as(p.text, PS_TOKEN_FORMAT_NANOGPT, &f), PS_OK);
    assert_int_equal(ps_token_file_read(f, 0, 2, 50257, ids), PS_OK);
    assert_int_equal(ids[1], 50256);
    ps_token_file_close(f);
    assert_int_equal(ps_file_write_all(p.text, "\x01\x00\x50", 3), PS_OK);
    assert_int_equal(ps_token_file_open_as(p.text, PS_TOKEN_FORMAT_NANOGPT, &f), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "ends at offset 3"));
    const temp_path u16 = temp_folder_file(&folder, "headed.u16");
    assert_int_equal(ps_token_file_write(u16.text, (const int32_t[]){5}, 1), PS_OK);
    assert_int_equal(ps_token_file_open_as(u16.text, PS_TOKEN_FORMAT_LLMC, &f), PS_OK);
    assert_int_equal(ps_token_file_count(f), 1);
    ps_token_file_close(f);
}

/* A mapped file that shrinks is an error at the next read, not a signal. */
static void test_shrinking_file_is_an_error(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "shrinking.bin");
    static int32_t ids[100000];
    ps_token_file *f;
    assert_int_equal(ps_token_file_write(p.text, ids, 100000), PS_OK);
    assert_int_equal(ps_token_file_open(p.text, &f), PS_OK);
    assert_int_equal(ps_token_file_read(f, 0, 100000, 1, ids), PS_OK);
    assert_int_equal(truncate(p.text, 1024 + 2 * 5000), 0);
    assert_int_equal(ps_token_file_read(f, 0, 5000, 1, ids), PS_OK);
    assert_int_equal(ps_token_file_read(f, 90000, 1, 1, ids), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "shrinking.bin: wanted 2 bytes at offset 181024, but the file"));
    assert_non_null(strstr(ps_last_error(), "now ends at 11024"));
    assert_int_equal(ps_token_file_check(f, 1), PS_EIO);
    ps_token_file_close(f);
}

/* Piece by piece, the width by the vocabulary. */
static void test_writer(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "pieces.bin");
    ps_token_writer *w;
    assert_int_equal(ps_token_writer_open(p.text, 65537, &w), PS_OK);
    assert_int_equal(ps_token_writer_append(w, (const int32_t[]){1, 2}, 2), PS_OK);
    assert_int_equal(ps_token_writer_append(w, NULL, 0), PS_OK);
    assert_int_equal(ps_token_writer_append(w, (const int32_t[]){65536}, 1), PS_OK);
    assert_false(ps_file_exists(p.text));
    assert_int_equal(ps_token_writer_commit(w), PS_OK);
    assert_content(p.text, 65537, (const int32_t[]){1, 2, 65536}, 3);
    assert_int_equal(ps_token_writer_open(p.text, 10, &w), PS_OK);
    assert_int_equal(ps_token_writer_append(w, (const int32_t[]){9, 10}, 2), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "token 1 has id 10, expected 0 to 9"));
    ps_token_writer_cancel(w);
    assert_int_equal(ps_token_writer_open(p.text, 10, &w), PS_OK);
    assert_int_equal(ps_token_writer_commit(w), PS_EINVAL);
    assert_content(p.text, 65537, (const int32_t[]){1, 2, 65536}, 3);
}

static void test_ids_beyond_the_vocabulary(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "ids.bin");
    ps_token_file *f;
    int32_t ids[3];
    assert_int_equal(ps_token_file_write(p.text, (const int32_t[]){1, 2, 300}, 3), PS_OK);
    assert_int_equal(ps_token_file_open(p.text, &f), PS_OK);
    assert_int_equal(ps_token_file_check(f, 301), PS_OK);
    assert_int_equal(ps_token_file_check(f, 300), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "ids.bin: offset 1028: token 2 has id 300, expected 0 to 299"));
    assert_int_equal(ps_token_file_read(f, 0, 2, 300, ids), PS_OK);
    assert_int_equal(ps_token_file_read(f, 1, 2, 300, ids), PS_EFORMAT);
    assert_non_null(strstr(ps_last_error(), "offset 1028: token 2"));
    ps_token_file_close(f);
    /* an id whose highest bit is set is no negative number that passes */
    assert_int_equal(ps_token_file_write(p.text, (const int32_t[]){70000}, 1), PS_OK);
    char *data;
    int64_t n;
    assert_int_equal(ps_file_read_all(p.text, 4096, &data, &n), PS_OK);
    data[1027] = (char)0x80;
    assert_int_equal(ps_file_write_all(p.text, data, n), PS_OK);
    ps_mem_free(data);
    assert_int_equal(ps_token_file_open(p.text, &f), PS_OK);
    assert_int_equal(ps_token_file_check(f, INT32_MAX), PS_EFORMAT);
    ps_token_file_close(f);
}

static void test_writing_refuses(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "refused.bin");
    assert_int_equal(ps_token_file_write(p.text, NULL, 0), PS_EINVAL);
    assert_int_equal(ps_token_file_write(p.text, (const int32_t[]){1, -1}, 2), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "token 1 has id -1"));
    assert_int_equal(ps_token_file_write(p.text, NULL, (int64_t)1 << 31), PS_EINVAL);
    assert_false(ps_file_exists(p.text));
    assert_int_equal(ps_token_file_write("/proc/nonexistent/x.bin", (const int32_t[]){1}, 1), PS_EIO);
}

/* More than one block of conversion, in both widths. */
static void test_many_tokens(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "many.bin");
    const int64_t n = 150001;
    int32_t *ids, *back;
    assert_int_equal(ps_mem_alloc((size_t)n, sizeof *ids, &ids), PS_OK);
    assert_int_equal(ps_mem_alloc((size_t)n, sizeof *ids, &back), PS_OK);
    for (int32_t vocab_size = 50257; vocab_size < 200000; vocab_size += 100000) {
        ps_token_file *f;
        for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(i * 7919 % vocab_size);
        assert_int_equal(ps_token_file_write(p.text, ids, n), PS_OK);
        assert_int_equal(ps_token_file_open(p.text, &f), PS_OK);
        assert_int_equal(ps_token_file_check(f, vocab_size), PS_OK);
        assert_int_equal(ps_token_file_check(f, vocab_size - 1), PS_EFORMAT);
        assert_int_equal(ps_token_file_read(f, 0, n, vocab_size, back), PS_OK);
        assert_memory_equal(ids, back, (size_t)n * sizeof *ids);
        ps_token_file_close(f);
    }
    ps_mem_free(ids);
    ps_mem_free(back);
}

static ps_status write_and_read(const char *path)
{
    static const int32_t ids[] = {9, 8, 7};
    int32_t back[3];
    ps_token_file *f = NULL;
    ps_status st;
    PS_TRY_GOTO(ps_token_file_write(path, ids, 3));
    PS_TRY_GOTO(ps_token_file_open(path, &f));
    PS_TRY_GOTO(ps_token_file_check(f, 10));
    PS_TRY_GOTO(ps_token_file_read(f, 0, 3, 10, back));
out:
    ps_token_file_close(f);
    return st;
}

static void test_faults(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "fault.bin");
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_READ, PS_FAULT_WRITE};
    static const ps_status codes[] = {PS_ENOMEM_HOST, PS_EIO, PS_EIO};
    for (int kind = 0; kind < 3; kind++) {
        int n_failures = 0;
        for (bool has_struck = true; has_struck; n_failures += has_struck) {
            assert_int_equal(ps_token_file_write(p.text, (const int32_t[]){1}, 1), PS_OK);
            const int n_entries = temp_folder_entries(&folder, 0);
            const int64_t live_bytes = ps_mem_live_bytes();
            ps_fault_arm(kinds[kind], n_failures, false);
            const ps_status st = write_and_read(p.text);
            has_struck = ps_fault_has_struck(kinds[kind]);
            ps_fault_arm(kinds[kind], -1, false);
            assert_int_equal(st, has_struck ? codes[kind] : PS_OK);
            assert_int_equal(ps_mem_live_bytes(), live_bytes);
            assert_int_equal(temp_folder_entries(&folder, 0), n_entries);
            assert_int_equal(write_and_read(p.text), PS_OK);
        }
        assert_true(n_failures >= 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_layout_is_that_of_llm_c),
        cmocka_unit_test(test_bare_uint16),
        cmocka_unit_test(test_damaged_files_are_errors),
        cmocka_unit_test(test_format_given_by_the_caller),
        cmocka_unit_test(test_shrinking_file_is_an_error),
        cmocka_unit_test(test_writer),
        cmocka_unit_test(test_ids_beyond_the_vocabulary),
        cmocka_unit_test(test_writing_refuses),
        cmocka_unit_test(test_many_tokens),
        cmocka_unit_test(test_faults),
    };
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_remove(&folder);
    return n_failed;
}
