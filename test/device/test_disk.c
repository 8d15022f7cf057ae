/* test_disk.c - the disk tier with each backend, with and without O_DIRECT and O_TMPFILE. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/leftover.h"
#include "base/mem.h"
#include "device/disk_backend.h"

#define PAGE PS_PAGE_BYTES

static char folder[256];

typedef struct variant {
    ps_disk_backend backend;
    const char *name;
    unsigned avoid;
} variant;

static const variant variants[] = {
    {PS_DISK_URING, "io_uring", 0},
    {PS_DISK_URING, "io_uring", PS_DISK_NO_DIRECT | PS_DISK_NO_TMPFILE},
    {PS_DISK_THREADS, "threads", 0},
    {PS_DISK_THREADS, "threads", PS_DISK_NO_DIRECT | PS_DISK_NO_TMPFILE},
};

static void disk_check(const variant *v, ps_disk *d)
{
    assert_string_equal(ps_disk_get_stats(d).backend, v->name);
    if (v->avoid & PS_DISK_NO_DIRECT) assert_false(ps_disk_get_stats(d).direct);
}

/* NULL where the kernel refuses io_uring. */
static ps_disk *disk_new(const variant *v, int queue_depth)
{
    ps_disk *d = NULL;
    const ps_status st = ps_disk_open_avoiding(folder, v->backend, queue_depth, v->avoid, &d);
    if (st == PS_ENOSYS && v->backend == PS_DISK_URING) return NULL;
    assert_int_equal(st, PS_OK);
    disk_check(v, d);
    return d;
}

static char *pages_new(int64_t bytes)
{
    char *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void pages_fill(char *p, int64_t bytes, uint64_t seed)
{
    uint64_t *w = (uint64_t *)(void *)p;
    for (int64_t i = 0; i < bytes / 8; i++) w[i] = seed = seed * 6364136223846793005u + 1442695040888963407u;
}

static int folder_count(void)
{
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir) != NULL) n++;
    closedir(dir);
    return n - 2;
}

static int fds_count(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir) != NULL) n++;
    closedir(dir);
    return n;
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

static void test_what_is_written_is_read(void **state)
{
    (void)state;
    const int64_t sizes[] = {PAGE, 3 * PAGE, 9 * PS_MIB + PAGE, 4 * PS_MIB, 20 * PAGE};
    const int64_t gap = 5 * PAGE, total = 16 * PS_MIB;
    char *out = pages_new(total), *in = pages_new(total);
    for (size_t k = 0; k < 3 * PS_ARRAY_LEN(variants); k++) {
        const int depths[] = {1, 2, 40};
        ps_disk *d = disk_new(&variants[k / 3], depths[k % 3]);
        if (d == NULL) continue;
        ps_event t[PS_ARRAY_LEN(sizes)];
        int64_t at = 0, moved = 0;
        pages_fill(out, total, k + 1);
        memset(in, 0, (size_t)total);
        for (size_t i = 0; i < PS_ARRAY_LEN(sizes); at += sizes[i++] + gap)
            assert_int_equal(ps_disk_write(d, at, out + at, sizes[i], NULL, &t[i]), PS_OK);
        for (size_t i = PS_ARRAY_LEN(sizes); i-- > 0;) assert_int_equal(ps_event_wait(t[i]), PS_OK);
        at = 0;
        for (size_t i = 0; i < PS_ARRAY_LEN(sizes); at += sizes[i++] + gap)
            assert_int_equal(ps_disk_read(d, at, in + at, sizes[i], NULL, &t[i]), PS_OK);
        at = 0;
        for (size_t i = 0; i < PS_ARRAY_LEN(sizes); at += sizes[i++] + gap) {
            while (!ps_event_is_done(t[i])) usleep(100); /* moves on by itself */
            assert_int_equal(ps_event_wait(t[i]), PS_OK);
            assert_memory_equal(in + at, out + at, (size_t)sizes[i]);
            assert_int_equal(in[at + sizes[i]], 0);
            moved += sizes[i];
        }
        assert_int_equal(ps_disk_get_stats(d).read_bytes, moved);
        assert_int_equal(ps_disk_get_stats(d).write_bytes, moved);
        ps_disk_close(d);
        assert_int_equal(folder_count(), 0);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
    munmap(out, (size_t)total);
    munmap(in, (size_t)total);
}

/* Far more transfers than the depth, waited for backwards, some never; the close finds work in flight. */
static void test_long_queues(void **state)
{
    (void)state;
    enum { N = 300 };
    const int64_t bytes = N * PAGE;
    char *out = pages_new(bytes), *in = pages_new(bytes);
    pages_fill(out, bytes, 99);
    for (size_t k = 0; k < PS_ARRAY_LEN(variants); k++) {
        ps_disk *d = disk_new(&variants[k], 3);
        if (d == NULL) continue;
        ps_event w[N], r[N];
        for (int i = 0; i < N; i++)
            assert_int_equal(ps_disk_write(d, i * PAGE, out + i * PAGE, PAGE, NULL, &w[i]), PS_OK);
        for (int i = N; i-- > 0;) assert_int_equal(ps_event_wait(w[i]), PS_OK);
        memset(in, 0, (size_t)bytes);
        for (int i = 0; i < N; i++)
            assert_int_equal(ps_disk_read(d, i * PAGE, in + i * PAGE, PAGE, NULL, &r[i]), PS_OK);
        assert_true(r[0].ticket > w[N - 1].ticket);
        for (int i = N; i-- > 0;)
            if (i % 3 == 0) assert_int_equal(ps_event_wait(r[i]), PS_OK);
        ps_disk_close(d); /* finishes the rest */
        assert_memory_equal(in, out, (size_t)bytes);
    }
    ps_disk_close(NULL);
    munmap(out, (size_t)bytes);
    munmap(in, (size_t)bytes);
}

/* Close waits for pieces that fly already. */
static void test_close_finishes_a_large_read(void **state)
{
    (void)state;
    const int64_t bytes = 64 * PS_MIB;
    char *out = pages_new(bytes), *in = pages_new(bytes);
    pages_fill(out, bytes, 5);
    for (size_t k = 0; k < PS_ARRAY_LEN(variants); k++) {
        ps_disk *d = disk_new(&variants[k], 16);
        if (d == NULL) continue;
        ps_event t;
        assert_int_equal(ps_disk_write(d, 0, out, bytes, NULL, &t), PS_OK);
        assert_int_equal(ps_event_wait(t), PS_OK);
        memset(in, 0, (size_t)bytes);
        assert_int_equal(ps_disk_read(d, 0, in, bytes, NULL, &t), PS_OK);
        ps_disk_close(d);
        assert_memory_equal(in, out, (size_t)bytes);
    }
    munmap(out, (size_t)bytes);
    munmap(in, (size_t)bytes);
}

static void test_end_of_file_is_an_error_told_once(void **state)
{
    (void)state;
    char *p = pages_new(17 * PS_MIB), *q = p + 16 * PS_MIB, text[512];
    for (size_t k = 0; k < PS_ARRAY_LEN(variants); k++) {
        ps_disk *d = disk_new(&variants[k], 2);
        if (d == NULL) continue;
        ps_event t, later;
        assert_int_equal(ps_disk_read(d, 0, p, PAGE, NULL, &t), PS_OK); /* empty as yet */
        assert_int_equal(ps_event_wait(t), PS_EIO);
        assert_int_equal(ps_disk_write(d, 0, p, 2 * PAGE, NULL, &t), PS_OK);
        assert_int_equal(ps_event_wait(t), PS_OK);
        assert_int_equal(ps_disk_read(d, PAGE, p, 4 * PAGE, NULL, &t), PS_OK);
        assert_int_equal(ps_disk_read(d, 0, q, 2 * PAGE, NULL, &later), PS_OK);
        assert_int_equal(ps_event_wait(later), PS_OK);
        while (!ps_event_is_done(t)) usleep(100);
        assert_int_equal(ps_event_wait(t), PS_EIO);
        snprintf(text, sizeof text, "%s: read at offset 4096: wanted 16384 bytes, got 4096: the file ends there",
                 ps_disk_path(d));
        assert_non_null(strstr(ps_last_error(), text));
        assert_int_equal(ps_event_wait(t), PS_OK);
        /* many pieces, all past the end: the rest of the transfer is not tried */
        assert_int_equal(ps_disk_read(d, PS_MIB, p, 16 * PS_MIB, NULL, &t), PS_OK);
        assert_int_equal(ps_disk_read(d, 0, q, 2 * PAGE, NULL, &later), PS_OK);
        assert_int_equal(ps_event_wait(t), PS_EIO);
        assert_int_equal(ps_event_wait(later), PS_OK);
        assert_int_equal(ps_disk_get_stats(d).read_bytes, 4 * PAGE);
        assert_int_equal(ps_disk_read(d, PS_GIB, p, PAGE, NULL, &t), PS_OK); /* this one is not waited for */
        ps_disk_close(d);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
    munmap(p, 17 * (size_t)PS_MIB);
}

/* A real failure in the middle of a write; SIGXFSZ must not reach the program. */
static void test_file_size_limit(void **state)
{
    (void)state;
    struct rlimit before, low;
    char *p = pages_new(16 * PS_MIB);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = 6 * (rlim_t)PS_MIB + 512;
    if (before.rlim_max != RLIM_INFINITY && before.rlim_max < low.rlim_cur) skip();
    for (size_t k = 0; k < PS_ARRAY_LEN(variants); k++) {
        ps_disk *d = disk_new(&variants[k], 2);
        if (d == NULL) continue;
        ps_event t;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        assert_int_equal(ps_disk_write(d, 0, p, 16 * PS_MIB, NULL, &t), PS_OK);
        const ps_status st = ps_event_wait(t);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(st, PS_EIO);
        assert_non_null(strstr(ps_last_error(), "write at offset"));
        assert_int_equal(ps_disk_get_stats(d).write_bytes, 0);
        assert_int_equal(ps_disk_write(d, 0, p, 16 * PS_MIB, NULL, &t), PS_OK); /* still of use */
        assert_int_equal(ps_event_wait(t), PS_OK);
        ps_disk_close(d);
    }
    munmap(p, 16 * (size_t)PS_MIB);
}

static void test_full_disk(void **state)
{
    (void)state;
    char *p = pages_new(4 * PS_MIB);
    for (size_t k = 0; k < PS_ARRAY_LEN(variants); k++) {
        if (mount("none", folder, "tmpfs", 0, "size=1m") != 0) {
            munmap(p, 4 * (size_t)PS_MIB);
            skip();
        }
        ps_disk *d = NULL;
        ps_event t;
        const ps_status st = ps_disk_open_avoiding(folder, variants[k].backend, 2, variants[k].avoid, &d);
        umount2(folder, MNT_DETACH); /* it goes when the file does, however this test ends */
        if (st == PS_ENOSYS) continue;
        assert_int_equal(st, PS_OK);
        disk_check(&variants[k], d);
        assert_int_equal(ps_disk_write(d, 0, p, 4 * PS_MIB, NULL, &t), PS_OK);
        assert_int_equal(ps_event_wait(t), PS_EIO);
        assert_non_null(strstr(ps_last_error(), strerror(ENOSPC)));
        assert_non_null(strstr(ps_last_error(), "free some space there, or choose another folder (memory.disk_path)"));
        ps_disk_close(d);
    }
    munmap(p, 4 * (size_t)PS_MIB);
}

/* ---- several files ----------------------------------------------------------------------------------------------- */

/* Folders a and b in `folder`; "folder/a,folder/b" in text. */
static void folders_make(char *text, size_t bytes, char sub[2][300])
{
    for (int i = 0; i < 2; i++) {
        snprintf(sub[i], 300, "%s/%c", folder, "ab"[i]);
        assert_int_equal(mkdir(sub[i], 0700), 0);
    }
    snprintf(text, bytes, "%s,%s", sub[0], sub[1]);
}

static void folders_remove(char sub[2][300])
{
    for (int i = 0; i < 2; i++) assert_int_equal(rmdir(sub[i]), 0); /* empty */
}

static int64_t bytes_in(const char *path)
{
    int64_t bytes = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        struct stat info;
        if (fstatat(dirfd(dir), e->d_name, &info, 0) == 0 && S_ISREG(info.st_mode)) bytes += info.st_size;
    }
    closedir(dir);
    return bytes;
}

static void test_several_folders_share_what_is_written(void **state)
{
    (void)state;
    const int64_t bytes = 8 * PS_MIB, odd = 3 * PAGE;
    char text[700], sub[2][300], *out = pages_new(bytes), *in = pages_new(bytes);
    folders_make(text, sizeof text, sub);
    pages_fill(out, bytes, 77);
    for (size_t k = 0; k < PS_ARRAY_LEN(variants); k++) {
        ps_disk *d = NULL;
        ps_event t[2];
        const ps_status st = ps_disk_open_avoiding(text, variants[k].backend, 4, variants[k].avoid, &d);
        if (st == PS_ENOSYS) continue;
        assert_int_equal(st, PS_OK);
        disk_check(&variants[k], d);
        assert_int_equal(ps_disk_get_stats(d).n_files, 2);
        /* in two parts that end within a stripe, read in one */
        assert_int_equal(ps_disk_write(d, 0, out, odd, NULL, &t[0]), PS_OK);
        assert_int_equal(ps_disk_write(d, odd, out + odd, bytes - odd, NULL, &t[1]), PS_OK);
        for (int i = 0; i < 2; i++) assert_int_equal(ps_event_wait(t[i]), PS_OK);
        if (variants[k].avoid & PS_DISK_NO_TMPFILE)
            for (int i = 0; i < 2; i++) assert_int_equal(bytes_in(sub[i]), bytes / 2);
        memset(in, 0, (size_t)bytes);
        assert_int_equal(ps_disk_read(d, 0, in, bytes, NULL, &t[0]), PS_OK);
        assert_int_equal(ps_event_wait(t[0]), PS_OK);
        assert_memory_equal(in, out, (size_t)bytes);
        assert_true(ps_disk_get_stats(d).processor_ns > 0);
        ps_disk_close(d);
        for (int i = 0; i < 2; i++) assert_int_equal(bytes_in(sub[i]), 0);
    }
    folders_remove(sub);
    munmap(out, (size_t)bytes);
    munmap(in, (size_t)bytes);
}

/* One of two disks is full: the failure names it, what is on both is still there. */
static void test_one_full_disk_of_two(void **state)
{
    (void)state;
    char text[700], sub[2][300], *p = pages_new(8 * PS_MIB), *q = pages_new(2 * PS_MIB);
    folders_make(text, sizeof text, sub);
    pages_fill(p, 8 * PS_MIB, 3);
    for (size_t k = 0; k < PS_ARRAY_LEN(variants); k++) {
        if (mount("none", sub[1], "tmpfs", 0, "size=2m") != 0) {
            folders_remove(sub);
            munmap(p, 8 * (size_t)PS_MIB);
            munmap(q, 2 * (size_t)PS_MIB);
            skip();
        }
        ps_disk *d = NULL;
        ps_event t;
        const ps_status st = ps_disk_open_avoiding(text, variants[k].backend, 2, variants[k].avoid, &d);
        umount2(sub[1], MNT_DETACH); /* it goes when the file does */
        if (st == PS_ENOSYS) continue;
        assert_int_equal(st, PS_OK);
        assert_int_equal(ps_disk_write(d, 0, p, 2 * PS_MIB, NULL, &t), PS_OK);
        assert_int_equal(ps_event_wait(t), PS_OK);
        assert_int_equal(ps_disk_write(d, 2 * PS_MIB, p, 8 * PS_MIB, NULL, &t), PS_OK);
        assert_int_equal(ps_event_wait(t), PS_EIO);
        assert_non_null(strstr(ps_last_error(), sub[1]));
        assert_null(strstr(ps_last_error(), text));
        assert_non_null(strstr(ps_last_error(), strerror(ENOSPC)));
        assert_int_equal(ps_event_wait(t), PS_OK); /* reported once */
        assert_int_equal(ps_disk_read(d, 0, q, 2 * PS_MIB, NULL, &t), PS_OK);
        assert_int_equal(ps_event_wait(t), PS_OK);
        assert_memory_equal(p, q, 2 * (size_t)PS_MIB);
        ps_disk_close(d);
    }
    folders_remove(sub);
    munmap(p, 8 * (size_t)PS_MIB);
    munmap(q, 2 * (size_t)PS_MIB);
}

static void test_folders_that_cannot_be_used(void **state)
{
    (void)state;
    char text[3000], sub[2][300], comma[300];
    ps_disk *d = NULL;
    const int fds = fds_count();
    folders_make(text, sizeof text, sub);
    snprintf(text, sizeof text, "%s,/proc/no/such/folder", sub[0]);
    assert_int_equal(ps_disk_open(text, PS_DISK_AUTO, 4, &d), PS_EIO);
    assert_non_null(strstr(ps_last_error(), "memory.disk_path: /proc/no: cannot make the folder"));
    snprintf(text, sizeof text, "%s,,%s", sub[0], sub[1]);
    assert_int_equal(ps_disk_open(text, PS_DISK_AUTO, 4, &d), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "empty name"));
    snprintf(text, sizeof text, "%s, ", sub[0]);
    assert_int_equal(ps_disk_open(text, PS_DISK_AUTO, 4, &d), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "empty name"));
    snprintf(text, sizeof text, " %s ,\t%s ", sub[0], sub[1]); /* as people write lists */
    assert_int_equal(ps_disk_open(text, PS_DISK_AUTO, 4, &d), PS_OK);
    assert_int_equal(ps_disk_get_stats(d).n_files, 2);
    ps_disk_close(d);
    d = NULL;
    strcpy(text, "/");
    for (int i = 0; i < PS_DISK_FILES_MAX; i++) strcat(text, ",/");
    assert_int_equal(ps_disk_open(text, PS_DISK_AUTO, 4, &d), PS_EINVAL);
    assert_non_null(strstr(ps_last_error(), "more than 16"));
    assert_null(d);
    assert_int_equal(fds_count(), fds);
    assert_int_equal(ps_mem_live_bytes(), 0);
    /* a folder with a comma in its name */
    snprintf(comma, sizeof comma, "%s/x,y", folder);
    assert_int_equal(mkdir(comma, 0700), 0);
    assert_int_equal(ps_disk_open(comma, PS_DISK_AUTO, 4, &d), PS_OK);
    assert_int_equal(ps_disk_get_stats(d).n_files, 1);
    ps_disk_close(d);
    assert_int_equal(rmdir(comma), 0);
    folders_remove(sub);
}

static void test_folders_that_are_missing_are_made(void **state)
{
    (void)state;
    char text[700], sub[2][300], missing[2][320];
    ps_disk *d = NULL;
    folders_make(text, sizeof text, sub);
    snprintf(missing[0], sizeof missing[0], "%s/not", sub[0]);
    snprintf(missing[1], sizeof missing[1], "%s/not/yet", sub[0]);
    snprintf(text, sizeof text, "%s,%s/", sub[1], missing[1]);
    assert_int_equal(ps_disk_open(text, PS_DISK_AUTO, 4, &d), PS_OK);
    assert_int_equal(ps_disk_get_stats(d).n_files, 2);
    ps_disk_close(d);
    for (int i = 1; i >= 0; i--) assert_int_equal(rmdir(missing[i]), 0);
    folders_remove(sub);
}

static void test_room_of_several_folders(void **state)
{
    (void)state;
    char text[700], sub[2][300], missing[320];
    int64_t one, two, less;
    folders_make(text, sizeof text, sub);
    assert_int_equal(ps_disk_folders_free_bytes(sub[0], &one), PS_OK);
    assert_int_equal(ps_disk_folders_free_bytes(text, &two), PS_OK);
    /* the same file system, counted once; others may write there meanwhile */
    assert_true(two > one - one / 2 && two < one + one / 2);
    /* one that is missing has the room of where it is going to be made, and is not made by asking */
    snprintf(missing, sizeof missing, "%s/not/yet", sub[0]);
    assert_int_equal(ps_disk_folders_free_bytes(missing, &less), PS_OK);
    assert_true(less > one - one / 2 && less < one + one / 2);
    assert_int_equal(ps_disk_folders_free_bytes("/proc/not/yet", &less), PS_OK);
    assert_int_equal(less, 0);
    assert_int_equal(access(missing, F_OK), -1);
    if (mount("none", sub[1], "tmpfs", 0, "size=1m") == 0) { /* the smaller one bounds both */
        const ps_status st = ps_disk_folders_free_bytes(text, &less);
        umount2(sub[1], MNT_DETACH);
        assert_int_equal(st, PS_OK);
        assert_int_equal(less, 2 * PS_MIB);
    }
    folders_remove(sub);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void test_bad_arguments_are_refused(void **state)
{
    (void)state;
    ps_disk *d = NULL;
    assert_int_equal(ps_disk_open("/proc", PS_DISK_AUTO, 4, &d), PS_EIO);
    assert_null(d);
    assert_non_null(strstr(ps_last_error(), "memory.disk_path: cannot create a file in folder /proc: "));
    assert_non_null(strstr(ps_last_error(), strerror(ENOENT)));
    assert_int_equal(ps_disk_open(folder, PS_DISK_AUTO, 4, &d), PS_OK);
    ps_disk_close(d);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_named_files_are_separate_and_removed(void **state)
{
    (void)state;
    ps_disk *a = disk_new(&variants[3], 1), *b = disk_new(&variants[3], 1);
    assert_string_not_equal(ps_disk_path(a), ps_disk_path(b));
    assert_int_equal(access(ps_disk_path(a), F_OK), 0); /* opening b did not take it for a leftover */
    assert_int_equal(folder_count(), 2);
    ps_disk_close(a);
    assert_int_equal(folder_count(), 1);
    ps_disk_close(b);
    assert_int_equal(folder_count(), 0);
}

static void file_put(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static bool file_exists(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void open_and_close(void)
{
    ps_disk *d = NULL;
    assert_int_equal(ps_disk_open(folder, PS_DISK_THREADS, 1, &d), PS_OK);
    ps_disk_close(d);
}

static void test_leftovers_of_the_dead_are_removed(void **state)
{
    (void)state;
    char name[512] = "", path[512], mark[PS_LEFTOVER_MARK_MAX], dead[2][128], backup[140];
    (void)ps_leftover_mark(mark);
    for (int i = 0; i < 2; i++) snprintf(dead[i], sizeof dead[i], "patrickstar-%.16s-999999999-1-%d.chunks", mark, i);
    snprintf(backup, sizeof backup, "%s.bak", dead[0]);
    /* the last of another machine: there such a process may live */
    const char *others[] = {backup, "patrickstar-x-0.chunks", "patrickstar-0123456789abcdef-999999999-1-2.chunks"};
    int ready[2], status;
    for (size_t i = 0; i < PS_ARRAY_LEN(others); i++) file_put(others[i]);
    file_put(dead[0]);
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { /* another process with a disk open, until it is killed */
        ps_disk_file f;
        if (ps_disk_file_open(folder, PS_DISK_NO_TMPFILE, &f) == PS_OK)
            snprintf(name, sizeof name, "%s", strrchr(f.path, '/') + 1);
        if (write(ready[1], name, sizeof name) > 0) pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], name, sizeof name), sizeof name);
    assert_true(name[0] != '\0');
    assert_false(file_exists(dead[0])); /* the child has removed it */
    file_put(dead[1]);
    open_and_close();
    assert_false(file_exists(dead[1]));
    assert_true(file_exists(name)); /* its owner lives */
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(file_exists(name));
    open_and_close();
    assert_false(file_exists(name));
    for (size_t i = 0; i < PS_ARRAY_LEN(others); i++) {
        assert_true(file_exists(others[i]));
        snprintf(path, sizeof path, "%s/%s", folder, others[i]);
        unlink(path);
    }
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(folder_count(), 0);
}

/* Where the kernel refuses it, all other tests have tried threads alone. */
static void test_uring_was_tried(void **state)
{
    (void)state;
    ps_disk *d = disk_new(&variants[0], 4);
    if (d == NULL) skip();
    ps_disk_close(d);
}

static void test_simulated_disk_only_counts(void **state)
{
    (void)state;
    ps_disk *d = NULL;
    ps_event t;
    void *nowhere = (void *)(uintptr_t)PAGE;
    assert_int_equal(ps_disk_open("/no/such/folder", PS_DISK_SIM, 4, &d), PS_OK);
    assert_int_equal(ps_disk_write(d, 0, nowhere, PS_GIB, NULL, &t), PS_OK);
    assert_true(ps_event_is_done(t));
    assert_int_equal(ps_event_wait(t), PS_OK);
    assert_int_equal(ps_disk_read(d, PAGE, nowhere, PAGE, NULL, &t), PS_OK);
    assert_int_equal(ps_event_wait(t), PS_OK);
    assert_int_equal(ps_disk_get_stats(d).write_bytes, PS_GIB);
    assert_int_equal(ps_disk_get_stats(d).read_bytes, PAGE);
    assert_string_equal(ps_disk_get_stats(d).backend, "sim");
    assert_non_null(ps_disk_path(d));
    ps_disk_close(d);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

static ps_status use_disk(const variant *v, char *p)
{
    ps_status st;
    ps_disk *d = NULL;
    ps_event t, u;
    PS_TRY_GOTO(ps_disk_open_avoiding(folder, v->backend, 4, v->avoid, &d));
    PS_TRY_GOTO(ps_disk_write(d, 0, p, 4 * PAGE, NULL, &t));
    PS_TRY_GOTO(ps_disk_write(d, 4 * PAGE, p, 4 * PAGE, NULL, &u));
    PS_TRY_GOTO(ps_event_wait(t));
    PS_TRY_GOTO(ps_event_wait(u));
    for (int i = 0; i < 3; i++) {
        PS_TRY_GOTO(ps_disk_read(d, i * PAGE, p, 2 * PAGE, NULL, &t));
        PS_TRY_GOTO(ps_event_wait(t));
    }
out:
    ps_disk_close(d);
    return st;
}

static void test_every_fault_is_reported_and_nothing_leaks(void **state)
{
    (void)state;
    const variant sim = {PS_DISK_SIM, "sim", 0};
    const struct {
        ps_fault_kind kind;
        int calls;
    } cases[] = {{PS_FAULT_ALLOC, 6}, {PS_FAULT_READ, 3}, {PS_FAULT_WRITE, 2}};
    char *p = pages_new(4 * PAGE);
    const int fds = fds_count();
    for (size_t v = 0; v <= PS_ARRAY_LEN(variants); v++) {
        const variant *used = v < PS_ARRAY_LEN(variants) ? &variants[v] : &sim;
        if (use_disk(used, p) == PS_ENOSYS) continue;
        for (size_t c = 0; c < 2 * PS_ARRAY_LEN(cases); c++) {
            int n = 0;
            for (;; n++) {
                ps_fault_arm(cases[c / 2].kind, n, c % 2 != 0);
                const ps_status st = use_disk(used, p);
                const bool struck = ps_fault_has_struck(cases[c / 2].kind);
                ps_fault_arm(cases[c / 2].kind, -1, false);
                assert_int_equal(ps_mem_live_bytes(), 0);
                assert_int_equal(fds_count(), fds);
                assert_int_equal(folder_count(), 0);
                assert_int_equal(st != PS_OK, struck);
                if (!struck) break;
                assert_int_equal(st, cases[c / 2].kind == PS_FAULT_ALLOC ? PS_ENOMEM_HOST : PS_EIO);
            }
            assert_true(n >= cases[c / 2].calls);
        }
    }
    munmap(p, 4 * (size_t)PAGE);
}

static int folder_make(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/ps-test-XXXXXX", tmp != NULL ? tmp : "/tmp");
    return mkdtemp(folder) == NULL;
}

static int folder_remove(void **state)
{
    (void)state;
    return rmdir(folder); /* fails when a test left something */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_long_queues),
        cmocka_unit_test(test_close_finishes_a_large_read),
        cmocka_unit_test(test_end_of_file_is_an_error_told_once),
        cmocka_unit_test(test_file_size_limit),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_several_folders_share_what_is_written),
        cmocka_unit_test(test_one_full_disk_of_two),
        cmocka_unit_test(test_folders_that_cannot_be_used),
        cmocka_unit_test(test_folders_that_are_missing_are_made),
        cmocka_unit_test(test_room_of_several_folders),
        cmocka_unit_test(test_bad_arguments_are_refused),
        cmocka_unit_test(test_named_files_are_separate_and_removed),
        cmocka_unit_test(test_leftovers_of_the_dead_are_removed),
        cmocka_unit_test(test_uring_was_tried),
        cmocka_unit_test(test_simulated_disk_only_counts),
        cmocka_unit_test(test_every_fault_is_reported_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
