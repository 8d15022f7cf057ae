/* The program's own files: they are not in the library. */
#include "../../cli/train/client.c"
#include "../../cli/train/client_file.c"

#include "assert_status.h"
#include "temp_folder.h"

static temp_folder folder;

static int make(void **state)
{
    (void)state;
    folder = temp_folder_make();
    return 0;
}

static int remove_all(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

static void a_file_is_written_read_and_replaced(void **state)
{
    (void)state;
    const temp_path path = temp_folder_file(&folder, "file");
    static char large[300000];
    char *text = large;
    size_t n = 1;
    assert_ok(client_read_file(path.text, &text, &n));
    assert_null(text);
    assert_int_equal(n, 0);
    memset(large, 'x', sizeof large);
    for (int i = 0; i < 2; i++) {
        const size_t n_bytes = i == 0 ? sizeof large : 3;
        assert_ok(client_write_file(path.text, large, n_bytes));
        assert_ok(client_read_file(path.text, &text, &n));
        assert_int_equal(n, n_bytes);
        assert_memory_equal(text, large, n);
        assert_int_equal(text[n], 0);
        free(text);
        assert_int_equal(temp_folder_entries(&folder, 0), 1);
    }
    assert_int_equal(unlink(path.text), 0);
}

static void what_cannot_be_written_stays(void **state)
{
    (void)state;
    const temp_path path = temp_folder_file(&folder, "file"), temporary = temp_folder_file(&folder, "file.tmp");
    char *text = NULL;
    size_t n = 0;
    assert_ok(client_write_file(path.text, "before", 6));
    assert_int_equal(mkdir(temporary.text, 0777), 0);
    assert_int_equal(client_write_file(path.text, "after", 5), PS_EIO);
    assert_non_null(strstr(ps_last_error(), path.text));
    assert_int_equal(rmdir(temporary.text), 0);
    assert_int_equal(symlink(path.text, temporary.text), 0); /* an attacker's trap */
    assert_int_equal(client_write_file(path.text, "after", 5), PS_EIO);
    assert_ok(client_read_file(path.text, &text, &n));
    assert_string_equal(text, "before");
    free(text);
    assert_int_equal(unlink(temporary.text), 0);
    assert_int_equal(client_read_file(folder.path, &text, &n), PS_EIO); /* a folder */
    assert_null(text);
    assert_int_equal(unlink(path.text), 0);
}

static void folders_are_made(void **state)
{
    (void)state;
    const temp_path a = temp_folder_file(&folder, "a"), b = temp_folder_file(&folder, "a/b"),
                    file = temp_folder_file(&folder, "file"), in_file = temp_folder_file(&folder, "file/c");
    for (int i = 0; i < 2; i++) {
        assert_ok(client_make_folders(temp_folder_file(&folder, i == 0 ? "a/b" : "a//b/").text));
        assert_int_equal(access(b.text, F_OK), 0);
    }
    assert_ok(client_write_file(file.text, "", 0));
    assert_int_equal(client_make_folders(file.text), PS_EIO);
    assert_int_equal(client_make_folders(in_file.text), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "cannot make the folder"));
    assert_int_equal(unlink(file.text), 0);
    assert_int_equal(rmdir(b.text), 0);
    assert_int_equal(rmdir(a.text), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_written_read_and_replaced),
        cmocka_unit_test(what_cannot_be_written_stays),
        cmocka_unit_test(folders_are_made),
    };
    return cmocka_run_group_tests(tests, make, remove_all);
}
