#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/folder_writer.h"
#include "base/mem.h"
#include "temp_folder.h"

static temp_folder folder;

/* A folder with one file that says `text`. */
static ps_status write_folder(const char *path, bool is_replacing, const char *text)
{
    ps_folder_writer *w = NULL;
    char *file = NULL;
    ps_status st;
    PS_TRY(ps_folder_writer_open(path, is_replacing, &w));
    PS_TRY_GOTO(ps_folder_join(ps_folder_writer_path(w), "file", &file));
    PS_TRY_GOTO(ps_file_write_all(file, text, (int64_t)strlen(text)));
    st = ps_folder_writer_commit(w);
    w = NULL;
out:
    ps_mem_free(file);
    ps_folder_writer_cancel(w);
    return st;
}

static char read_first(const char *path)
{
    char *file, *text, c = 0;
    int64_t n;
    assert_int_equal(ps_folder_join(path, "file", &file), PS_OK);
    if (ps_file_read_all(file, 100, &text, &n) == PS_OK) c = text[0], ps_mem_free(text);
    ps_mem_free(file);
    return c;
}

static void remove_folder(const char *path)
{
    temp_folder inner;
    snprintf(inner.path, sizeof inner.path, "%.60s", path);
    temp_folder_remove(&inner);
}

static void test_list_and_join(void **state)
{
    (void)state;
    ps_folder_list l;
    char *path;
    assert_int_equal(ps_file_write_all(temp_folder_file(&folder, "b").text, "", 0), PS_OK);
    assert_int_equal(ps_file_write_all(temp_folder_file(&folder, "a").text, "", 0), PS_OK);
    assert_int_equal(ps_folder_list_read(folder.path, &l), PS_OK);
    assert_int_equal(l.n, 2);
    assert_string_equal(l.names[0], "a");
    assert_string_equal(l.names[1], "b");
    ps_folder_list_free(&l);
    assert_int_equal(ps_folder_list_read("/proc/nonexistent", &l), PS_EIO);
    ps_folder_list_free(&l);
    assert_int_equal(ps_folder_join("x", "y", &path), PS_OK);
    assert_string_equal(path, "x/y");
    ps_mem_free(path);
    assert_int_equal(ps_folder_join("/", "y", &path), PS_OK);
    assert_string_equal(path, "/y");
    ps_mem_free(path);
    assert_true(ps_folder_exists(folder.path));
    assert_false(ps_folder_exists(temp_folder_file(&folder, "a").text));
    temp_folder_entries(&folder, 1);
}

static void test_folder_of_a_path(void **state)
{
    static const char *const cases[][2] = {{"a", "."},   {"a/", "."}, {"a/b", "a"}, {"a/b//", "a"}, {"/a/b/c", "/a/b"},
                                           {"./a", "."}, {"/a", "/"}, {"//a", "/"}, {"/", "/"},     {"", "."}};
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(cases); i++) {
        char *found = NULL;
        assert_int_equal(ps_folder_of(cases[i][0], &found), PS_OK);
        assert_string_equal(found, cases[i][1]);
        ps_mem_free(found);
    }
}

static void test_making_all(void **state)
{
    (void)state;
    char deep[120], file[120], *there;
    snprintf(deep, sizeof deep, "%.60s/a/b//c/", folder.path);
    assert_int_equal(ps_folder_nearest(deep, &there), PS_OK);
    assert_string_equal(there, folder.path);
    ps_mem_free(there);
    assert_int_equal(ps_folder_make_all(deep), PS_OK);
    assert_int_equal(ps_folder_make_all(deep), PS_OK); /* which is there */
    assert_int_equal(ps_folder_nearest(deep, &there), PS_OK);
    assert_string_equal(there, deep);
    ps_mem_free(there);
    assert_int_equal(ps_folder_nearest("no/such", &there), PS_OK);
    assert_string_equal(there, ".");
    ps_mem_free(there);
    assert_int_equal(ps_folder_nearest("/no-such/folder", &there), PS_OK);
    assert_string_equal(there, "/");
    ps_mem_free(there);
    snprintf(file, sizeof file, "%.60s/a/file", folder.path);
    assert_int_equal(ps_file_write_all(file, "", 0), PS_OK);
    strcat(file, "/below");
    assert_int_equal(ps_folder_make_all(file), PS_EIO);
    assert_non_null(strstr(ps_last_error(), ": is not a folder"));
    file[strlen(file) - strlen("/below")] = '\0';
    assert_int_equal(unlink(file), 0);
    static const char *const made[] = {"a/b/c", "a/b", "a"};
    for (size_t i = 0; i < PS_ARRAY_LEN(made); i++) {
        snprintf(deep, sizeof deep, "%.60s/%s", folder.path, made[i]);
        assert_int_equal(rmdir(deep), 0);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_writing(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "out"), inner = temp_folder_file(&folder, "out/inner");
    assert_int_equal(write_folder(p.text, false, "1"), PS_OK);
    assert_int_equal(read_first(p.text), '1');
    assert_int_equal(write_folder(p.text, false, "2"), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "--force"));
    assert_int_equal(read_first(p.text), '1');
    assert_int_equal(write_folder(p.text, true, "3"), PS_OK);
    assert_int_equal(read_first(p.text), '3');
    assert_int_equal(temp_folder_entries(&folder, 0), 1);
    assert_int_equal(mkdir(inner.text, 0777), 0);
    assert_int_equal(write_folder(p.text, true, "4"), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "a folder inner in it"));
    assert_int_equal(rmdir(inner.text), 0);
    unlink(temp_folder_file(&folder, "out/file").text);
    assert_int_equal(write_folder(p.text, false, "5"), PS_OK); /* an empty one is no obstacle */
    assert_int_equal(read_first(p.text), '5');
    assert_int_equal(write_folder(temp_folder_file(&folder, "out/file").text, true, "6"), PS_EINVAL);
    assert_int_equal(write_folder("/proc/nonexistent/x", false, "6"), PS_EIO);
    remove_folder(p.text);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* Whatever fails, there is the old folder or the new one, nothing else, and no leak. */
static void test_faults(void **state)
{
    (void)state;
    const temp_path p = temp_folder_file(&folder, "out");
    static const ps_fault_kind kinds[] = {PS_FAULT_ALLOC, PS_FAULT_WRITE};
    for (int kind = 0; kind < 2; kind++) {
        int n_failures = 0;
        for (bool has_struck = true; has_struck; n_failures += has_struck) {
            assert_int_equal(write_folder(p.text, true, "1"), PS_OK);
            ps_fault_arm(kinds[kind], n_failures, false);
            const ps_status st = write_folder(p.text, true, "2");
            has_struck = ps_fault_has_struck(kinds[kind]);
            ps_fault_arm(kinds[kind], -1, false);
            if (!has_struck) assert_int_equal(st, PS_OK);
            const char c = read_first(p.text);
            assert_true(c == '2' || (c == '1' && st != PS_OK));
            assert_int_equal(ps_mem_live_bytes(), 0);
            assert_int_equal(temp_folder_entries(&folder, 0), 1);
        }
        assert_true(n_failures > 3);
    }
    remove_folder(p.text);
}

/* The folder that a link leads to is written, not the link; what can never be renamed is refused before anything is
 * written. */
static void test_links_and_places(void **state)
{
    (void)state;
    struct stat info;
    char here[256];
    const temp_path place = temp_folder_file(&folder, "place"), link = temp_folder_file(&folder, "link");
    assert_int_equal(mkdir(place.text, 0777), 0);
    assert_int_equal(symlink("place", link.text), 0);
    assert_int_equal(write_folder(link.text, false, "1"), PS_OK);
    assert_int_equal(read_first(place.text), '1');
    assert_int_equal(lstat(link.text, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(write_folder(link.text, false, "2"), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "not empty"));
    assert_int_equal(write_folder(temp_folder_file(&folder, "link/.").text, true, "3"), PS_OK);
    assert_int_equal(read_first(place.text), '3');
    remove_folder(place.text);
    assert_int_equal(write_folder(link.text, false, "1"), PS_EINVAL); /* leads nowhere */

    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(mkdir(place.text, 0777), 0);
    assert_int_equal(chdir(link.text), 0);
    const char *const own[] = {".", place.text, link.text, "./"};
    for (size_t i = 0; i < PS_ARRAY_LEN(own); i++) {
        ps_folder_writer *w;
        assert_int_equal(ps_folder_writer_open(own[i], false, &w), PS_EINVAL);
        assert_non_null(strstr(ps_last_error(), "is the working folder"));
    }
    assert_int_equal(chdir(here), 0);
    ps_folder_writer *w;
    assert_int_equal(ps_folder_writer_open("/proc", true, &w), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "is where a file system begins"));
    assert_int_equal(ps_folder_writer_open("/", true, &w), PS_EINVAL);
    unlink(link.text);
    rmdir(place.text);
    assert_int_equal(temp_folder_entries(&folder, 0), 0);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_and_join), cmocka_unit_test(test_folder_of_a_path),
        cmocka_unit_test(test_writing),       cmocka_unit_test(test_links_and_places),
        cmocka_unit_test(test_faults),        cmocka_unit_test(test_making_all),
    };
    folder = temp_folder_make();
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_folder_remove(&folder);
    return n_failed;
}
