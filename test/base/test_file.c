#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "temp_folder.h"

static temp_folder folder;

static void assert_content(const char *path, const char *expected)
{
    char *data;
    int64_t n;
    assert_int_equal(ps_file_read_all(path, 1 << 20, &data, &n), PS_OK);
    assert_int_equal(n, strlen(expected));
    assert_string_equal(data, expected); /* also: the zero byte after it */
    ps_mem_free(data);
}

static void test_write_and_read(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "a");
    assert_false(ps_file_exists(p.text));
    assert_int_equal(ps_file_write_all(p.text, "hello", 5), PS_OK);
    assert_true(ps_file_exists(p.text));
    assert_content(p.text, "hello");
    ps_file *f;
    char part[4] = "";
    assert_int_equal(ps_file_open(p.text, &f), PS_OK);
    assert_int_equal(ps_file_bytes(f), 5);
    assert_string_equal(ps_file_path(f), p.text);
    assert_int_equal(ps_file_read(f, 1, part, 3), PS_OK);
    assert_string_equal(part, "ell");
    assert_int_equal(ps_file_read(f, 3, part, 3), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "the file ends at 5"));
    assert_int_equal(ps_file_read(f, 5, part, 0), PS_OK);
    ps_file_close(f);
    ps_file_close(NULL);
}

static void test_pieces_in_any_order(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "pieces");
    ps_file_writer *w;
    assert_int_equal(ps_file_writer_open(p.text, &w), PS_OK);
    assert_int_equal(ps_file_writer_write(w, 3, "def", 3), PS_OK);
    assert_int_equal(ps_file_writer_write(w, 0, "abc", 3), PS_OK);
    assert_false(ps_file_exists(p.text));
    assert_int_equal(ps_file_writer_commit(w), PS_OK);
    assert_content(p.text, "abcdef");
}

static void test_cancel_leaves_the_old_file(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "old");
    assert_int_equal(ps_file_write_all(p.text, "old", 3), PS_OK);
    const int n_entries = temp_folder_entries(&folder, 0);
    ps_file_writer *w, *other;
    assert_int_equal(ps_file_writer_open(p.text, &w), PS_OK);
    assert_int_equal(ps_file_writer_open(p.text, &other), PS_OK); /* two at once do not meet */
    assert_int_equal(ps_file_writer_write(w, 0, "newer", 5), PS_OK);
    assert_int_equal(ps_file_writer_write(other, 0, "x", 1), PS_OK);
    ps_file_writer_cancel(other);
    assert_content(p.text, "old");
    ps_file_writer_cancel(w);
    ps_file_writer_cancel(NULL);
    assert_content(p.text, "old");
    assert_int_equal(temp_folder_entries(&folder, 0), n_entries);
    /* and the one that stays is not touched by the one that goes */
    assert_int_equal(ps_file_writer_open(p.text, &w), PS_OK);
    assert_int_equal(ps_file_writer_write(w, 0, "newer", 5), PS_OK);
    assert_int_equal(ps_file_writer_open(p.text, &other), PS_OK);
    assert_int_equal(ps_file_writer_write(other, 0, "x", 1), PS_OK);
    ps_file_writer_cancel(other);
    assert_int_equal(ps_file_writer_commit(w), PS_OK);
    assert_content(p.text, "newer");
}

static void test_refused_with_reason(void **state)
{
    (void)state;
    ps_file *f;
    ps_file_writer *w;
    char *data;
    int64_t n;
    assert_int_equal(ps_file_open("/proc/nonexistent/x", &f), PS_EIO);
    assert_null(f);
    assert_non_null(strstr(ps_last_error(), "/proc/nonexistent/x: cannot open: No such file"));
    assert_int_equal(ps_file_open(folder.path, &f), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "not a regular file"));
    assert_int_equal(ps_file_writer_open("/proc/nonexistent/x", &w), PS_EIO);
    assert_null(w);
    const temp_path p = temp_folder_file(&folder, "big");
    assert_int_equal(ps_file_write_all(p.text, "0123456789", 10), PS_OK);
    assert_int_equal(ps_file_read_all(p.text, 9, &data, &n), PS_EFORMAT);
    assert_null(data);
    assert_non_null(strstr(ps_last_error(), "10 bytes, expected at most 9"));
    assert_int_equal(ps_file_write_all(p.text, "", 0), PS_OK);
    assert_content(p.text, "");
}

/* The n-th allocation, read or write fails, n = 0, 1, ... until all goes well: no leak, and old or new content. */
/* A clone without git-lfs has a few lines in the place of a large file. */
static void test_pointers_of_git_lfs(void **state)
{
    (void)state;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    const temp_path p = temp_folder_file(&folder, "pointer");
    ps_file *f = NULL;
    char *text = NULL;
    int64_t n = 0;
    assert_int_equal(ps_file_write_all(p.text, pointer, sizeof pointer - 1), PS_OK);
    assert_int_equal(ps_file_open(p.text, &f), PS_EFORMAT);
    assert_null(f);
    assert_non_null(strstr(ps_last_error(), "git lfs pull"));
    assert_int_equal(ps_file_read_all(p.text, 1000, &text, &n), PS_EFORMAT);
    assert_int_equal(ps_file_write_all(p.text, pointer, 30), PS_OK); /* any other text */
    assert_int_equal(ps_file_open(p.text, &f), PS_OK);
    ps_file_close(f);
}

static void test_faults(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "fault");
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_READ, PS_FAULT_WRITE};
    static const ps_status codes[] = {PS_ENOMEM_HOST, PS_EIO, PS_EIO};
    for (int kind = 0; kind < 3; kind++) {
        int n_failures = 0;
        for (bool has_struck = true; has_struck; n_failures += has_struck) {
            assert_int_equal(ps_file_write_all(p.text, "old", 3), PS_OK);
            const int n_entries = temp_folder_entries(&folder, 0);
            const int64_t live_bytes = ps_mem_live_bytes();
            char *data = NULL;
            int64_t n;
            ps_fault_arm(kinds[kind], n_failures, false);
            ps_status st = ps_file_write_all(p.text, "new", 3);
            if (st == PS_OK) st = ps_file_read_all(p.text, 100, &data, &n);
            has_struck = ps_fault_has_struck(kinds[kind]);
            ps_fault_arm(kinds[kind], -1, false);
            ps_mem_free(data);
            assert_int_equal(st, has_struck ? codes[kind] : PS_OK);
            assert_int_equal(ps_mem_live_bytes(), live_bytes);
            assert_int_equal(temp_folder_entries(&folder, 0), n_entries);
            assert_int_equal(ps_file_read_all(p.text, 100, &data, &n), PS_OK);
            assert_true(strcmp(data, "old") == 0 || strcmp(data, "new") == 0);
            ps_mem_free(data);
        }
        assert_true(n_failures >= 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_and_read),
        cmocka_unit_test(test_pieces_in_any_order),
        cmocka_unit_test(test_cancel_leaves_the_old_file),
        cmocka_unit_test(test_refused_with_reason),
        cmocka_unit_test(test_pointers_of_git_lfs),
        cmocka_unit_test(test_faults),
    };
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_remove(&folder);
    return n_failed;
}
