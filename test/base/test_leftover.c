#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/folder_writer.h"
#include "base/leftover.h"
#include "temp_folder.h"

static temp_folder folder;
static int folder_fd;

static bool exists(const char *name)
{
    struct stat info;
    return fstatat(folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

static void put(const char *name)
{
    const int fd = openat(folder_fd, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    close(fd);
}

static void grow_old(const char *name, int64_t seconds)
{
    const struct timespec then[2] = {{.tv_sec = time(NULL) - seconds}, {.tv_sec = time(NULL) - seconds}};
    assert_int_equal(utimensat(folder_fd, name, then, AT_SYMLINK_NOFOLLOW), 0);
}

/* A process that does what `work` does, and then waits to be killed. */
static pid_t start(void (*work)(void))
{
    int ready[2];
    char c = 0;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        work();
        if (write(ready[1], &c, 1) == 1) pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void end(pid_t child)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* Files are written in the working folder of the test, as they are where a path has no folder. */
static void write_file(void)
{
    ps_file_writer *w;
    if (ps_file_writer_open("out", &w) != PS_OK || ps_file_writer_write(w, 0, "x", 1) != PS_OK) _exit(2);
}

static void write_folder(void)
{
    ps_folder_writer *w;
    if (ps_folder_writer_open("out", true, &w) != PS_OK) _exit(2);
    if (chdir(ps_folder_writer_path(w)) != 0) _exit(2);
    put("half");
    if (ps_file_write_all("part", "x", 1) != PS_OK) _exit(2);
}

static void do_nothing(void)
{
}

static void test_names(void **state)
{
    (void)state;
    char mark[PS_LEFTOVER_MARK_MAX], name[128];
    snprintf(name, sizeof name, "a.tmp-%s-3", ps_leftover_mark(mark));
    assert_string_equal(ps_leftover_suffix(name, "a.tmp-"), "-3");
    snprintf(name, sizeof name, "a.tmp-%s", mark);
    assert_string_equal(ps_leftover_suffix(name, "a.tmp-"), "");
    assert_null(ps_leftover_suffix(name, "b.tmp-"));
    static const char *const others[] = {"a.tmp-",
                                         "a.tmp-1-2",
                                         "a.tmp-0123456789abcdef",
                                         "a.tmp-0123456789abcdef-",
                                         "a.tmp-0123456789abcdef-1",
                                         "a.tmp-0123456789abcdef-1-",
                                         "a.tmp-0123456789abcdef-1-x",
                                         "a.tmp-0123456789abcdef--1-2",
                                         "a.tmp-0123456789abcdef-1-2x",
                                         "a.tmp-0123456789ABCDEF-1-2"};
    for (size_t i = 0; i < PS_ARRAY_LEN(others); i++) {
        assert_null(ps_leftover_suffix(others[i], "a.tmp-"));
        put(others[i]);
        grow_old(others[i], 10 * PS_LEFTOVER_IDLE_S);
    }
    ps_leftovers_remove(".", "a.tmp-", false);
    for (size_t i = 0; i < PS_ARRAY_LEN(others); i++) assert_true(exists(others[i]));
    temp_folder_entries(&folder, 1);
}

/* "t-<mark>" of this host with another process, or another start of it. */
static void name_of(long pid, long later, char name[128])
{
    char mark[PS_LEFTOVER_MARK_MAX];
    const char *start = strrchr(ps_leftover_mark(mark), '-') + 1;
    snprintf(name, 128, "t-%.16s-%ld-%lld", mark, pid, strtoll(start, NULL, 10) + later);
}

static void test_what_is_gone(void **state)
{
    (void)state;
    char name[128], mark[PS_LEFTOVER_MARK_MAX];
    snprintf(name, sizeof name, "t-%s", ps_leftover_mark(mark));
    assert_false(ps_leftover_is_gone(folder_fd, name, "t-", false)); /* we are here */
    assert_true(ps_leftover_is_gone(folder_fd, name, "t-", true));
    name_of(getpid(), -1, name); /* one that had our number before */
    assert_true(ps_leftover_is_gone(folder_fd, name, "t-", false));
    name_of(999999999, 0, name);
    assert_true(ps_leftover_is_gone(folder_fd, name, "t-", false));
    name_of(0, 0, name);
    assert_false(ps_leftover_is_gone(folder_fd, name, "t-", false));
    /* a process not waited for yet */
    const pid_t child = start(do_nothing);
    siginfo_t info;
    kill(child, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    name_of(child, 0, name);
    assert_true(ps_leftover_is_gone(folder_fd, name, "t-", false));
    assert_true(ps_leftover_process_has_ended(name + 2));
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(ps_leftover_process_has_ended(name + 2));
    assert_false(ps_leftover_process_has_ended(mark)); /* this one */
    assert_false(ps_leftover_process_has_ended("0123456789abcdef-999999999-5"));
    assert_false(ps_leftover_process_has_ended(""));
}

/* On another machine 999999999 may be alive and write: on a file system that both see, only time tells. */
static void test_other_hosts(void **state)
{
    (void)state;
    static const char file[] = "t-0123456789abcdef-999999999-5-0", tree[] = "t-0123456789abcdef-999999999-5-1";
    const temp_path inner = temp_folder_file(&folder, "t-0123456789abcdef-999999999-5-1/part");
    for (int64_t age = 0; age <= 2; age++) {
        put(file);
        (void)mkdirat(folder_fd, tree, 0777);
        assert_int_equal(ps_file_write_all(inner.text, "x", 1), PS_OK);
        grow_old(tree, age * PS_LEFTOVER_IDLE_S);
        grow_old(file, age * PS_LEFTOVER_IDLE_S);
        ps_leftovers_remove(folder.path, "t-", false);
        assert_int_equal(exists(file), age < 2);
        assert_true(exists(tree)); /* something in it is new */
    }
    grow_old(inner.text + strlen(folder.path) + 1, 2 * PS_LEFTOVER_IDLE_S);
    grow_old(tree, 2 * PS_LEFTOVER_IDLE_S);
    ps_leftovers_remove(folder.path, "t-", false);
    assert_false(exists(tree));
    assert_int_equal(temp_folder_entries(&folder, 0), 0);
}

/* A link goes; what it leads to stays. */
static void test_links(void **state)
{
    (void)state;
    char name[128];
    const temp_folder other = temp_folder_make();
    assert_int_equal(ps_file_write_all(temp_folder_file(&other, "precious").text, "x", 1), PS_OK);
    name_of(999999999, 0, name);
    assert_int_equal(symlinkat(other.path, folder_fd, name), 0);
    ps_leftovers_remove(folder.path, "t-", false);
    assert_false(exists(name));
    assert_true(ps_file_exists(temp_folder_file(&other, "precious").text));
    assert_int_equal(symlinkat(other.path, folder_fd, "link"), 0);
    assert_true(ps_folder_remove(folder_fd, "link"));
    assert_false(exists("link"));
    assert_int_equal(temp_folder_entries(&other, 0), 1);
    temp_folder_remove(&other);
}

static int entries_with(const char *prefix)
{
    int n = 0;
    ps_folder_list l;
    assert_int_equal(ps_folder_list_read(folder.path, &l), PS_OK);
    for (int i = 0; i < l.n; i++) n += strncmp(l.names[i], prefix, strlen(prefix)) == 0;
    ps_folder_list_free(&l);
    return n;
}

/* What a killed writer leaves is removed by the next one of the same file; what one at work has, is not. */
static void test_killed_writers(void **state)
{
    (void)state;
    const pid_t killed = start(write_file), at_work = start(write_file);
    assert_int_equal(entries_with("out.tmp-"), 2);
    end(killed);
    assert_int_equal(ps_file_write_all("out2", "x", 1), PS_OK);
    assert_int_equal(entries_with("out.tmp-"), 2); /* another file's business */
    assert_int_equal(ps_file_write_all("out", "x", 1), PS_OK);
    assert_int_equal(entries_with("out.tmp-"), 1);
    end(at_work);
    assert_int_equal(ps_file_write_all(temp_folder_file(&folder, "out").text, "x", 1), PS_OK);
    assert_int_equal(temp_folder_entries(&folder, 1), 2);
}

static ps_status replace_folder(void)
{
    ps_folder_writer *w;
    PS_TRY(ps_folder_writer_open("out", true, &w));
    return ps_folder_writer_commit(w);
}

static void test_killed_folder_writers(void **state)
{
    (void)state;
    end(start(write_folder));
    assert_int_equal(entries_with("out.tmp-"), 1);
    assert_int_equal(replace_folder(), PS_OK);
    assert_int_equal(entries_with("out"), 1);
    /* one that was killed when the old folder had stepped aside: it is put back, so that it is there if the new one
     * fails */
    char name[128], offload_index[160];
    name_of(999999999, 0, name);
    snprintf(offload_index, sizeof offload_index, "out.old-%s", name + 2);
    put("out/old");
    assert_int_equal(rename("out", offload_index), 0);
    ps_folder_writer *w;
    assert_int_equal(ps_folder_writer_open("out/", true, &w), PS_OK);
    assert_true(exists("out/old") && !exists(offload_index));
    ps_folder_writer_cancel(w);
    assert_true(exists("out/old"));
    /* and later: the new one is there */
    assert_int_equal(mkdirat(folder_fd, offload_index, 0777), 0);
    assert_int_equal(replace_folder(), PS_OK);
    assert_false(exists(offload_index) || exists("out/old"));
    assert_int_equal(entries_with("out"), 1);
    assert_int_equal(rmdir("out"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),          cmocka_unit_test(test_what_is_gone),
        cmocka_unit_test(test_other_hosts),    cmocka_unit_test(test_links),
        cmocka_unit_test(test_killed_writers), cmocka_unit_test(test_killed_folder_writers),
    };
    folder = temp_folder_make();
    folder_fd = open(folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd < 0 || chdir(folder.path) != 0) return 2;
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    close(folder_fd);
    temp_folder_remove(&folder);
    return n_failed;
}
