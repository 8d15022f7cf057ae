/* test_device.c - budgets, reuse, regions, copies and their faults, on the cpu and sim devices. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/mem.h"
#include "device_fixture.h"

/* Does the child die of a signal? Sanitizers and cmocka catch some of them, so defaults come first. */
static bool dies(void (*run)(void *), void *arg)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL), signal(SIGABRT, SIG_DFL), signal(SIGBUS, SIG_DFL);
        close(STDERR_FILENO);
        run(arg);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status);
}

static void touch(void *p)
{
    *(volatile char *)p = 1;
}

static void test_budget_is_exact(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(all_ops); i++) {
        ps_device *d = device_new(all_ops[i], 10 * PAGE + 17);
        void *p = NULL;
        assert_string_equal(ps_device_name(d), "host");
        assert_int_equal(ps_device_has_memory(d), all_ops[i] == &ps_device_cpu_ops);
        assert_int_equal(ps_device_get_stats(d).budget_bytes, 10 * PAGE);
        void *a = block_new(d, 1), *b = block_new(d, 9 * PAGE);
        check_stats(d, 10 * PAGE, 0, 10 * PAGE);
        assert_int_equal(ps_device_alloc(d, 1, &p), PS_ENOMEM_DEV);
        assert_null(p);
        assert_non_null(strstr(ps_last_error(), "host memory: 1 B needed, 41 kB of 41 kB in use"));
        assert_int_equal(ps_device_alloc(d, INT64_MAX, &p), PS_ENOMEM_DEV);
        check_stats(d, 10 * PAGE, 0, 10 * PAGE);
        ps_device_free(d, a, 1, NULL);
        ps_device_free(d, NULL, 1, NULL);
        check_stats(d, 9 * PAGE, PAGE, 10 * PAGE);
        ps_device_reset_peak(d);
        check_stats(d, 9 * PAGE, PAGE, 9 * PAGE);
        ps_device_free(d, b, 9 * PAGE, NULL);
        ps_device_destroy(d);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_bad_arguments_are_refused(void **state)
{
    (void)state;
    ps_device *d = NULL;
    ps_region *r = NULL;
    assert_int_equal(ps_device_create(&ps_device_sim_ops, "host", -1, &d), PS_EINVAL);
    d = device_new(&ps_device_sim_ops, PAGE);
    assert_int_equal(ps_region_create(d, 0, &r), PS_EINVAL);
    assert_int_equal(ps_region_create(d, INT64_MAX, &r), PS_EINVAL);
    assert_int_equal(ps_region_create(d, INT64_MAX / 2 - PAGE, &r), PS_ENOMEM_HOST);
    assert_null(r);
    ps_device_destroy(d);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_freed_blocks_are_reused(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(all_ops); i++) {
        ps_device *d = device_new(all_ops[i], 100 * PAGE);
        void *a = block_new(d, 3 * PAGE), *b = block_new(d, 3 * PAGE), *c = block_new(d, 5 * PAGE);
        ps_device_free(d, a, 3 * PAGE, NULL);
        ps_device_free(d, b, 3 * PAGE, NULL);
        ps_device_free(d, c, 5 * PAGE, NULL);
        check_stats(d, 0, 11 * PAGE, 11 * PAGE);
        assert_ptr_equal(block_new(d, 3 * PAGE), b); /* the last one of the size */
        assert_ptr_equal(block_new(d, 5 * PAGE), c);
        assert_ptr_equal(block_new(d, 3 * PAGE - 1), a);
        check_stats(d, 11 * PAGE, 0, 11 * PAGE);
        ps_device_free(d, a, 3 * PAGE, NULL);
        ps_device_set_keep(d, false);
        check_stats(d, 8 * PAGE, 0, 11 * PAGE);
        ps_device_free(d, b, 3 * PAGE, NULL);
        ps_device_free(d, c, 5 * PAGE, NULL);
        check_stats(d, 0, 0, 11 * PAGE);
        ps_device_destroy(d);
    }
}

static void test_kept_blocks_make_room_oldest_first(void **state)
{
    (void)state;
    for (size_t i = 0; i < PS_ARRAY_LEN(all_ops); i++) {
        ps_device *d = device_new(all_ops[i], 50 * PAGE);
        void *a = block_new(d, 20 * PAGE), *b = block_new(d, 15 * PAGE), *c = block_new(d, 10 * PAGE), *e;
        ps_region *r = NULL;
        ps_device_free(d, b, 15 * PAGE, NULL);
        ps_device_free(d, a, 20 * PAGE, NULL);
        ps_device_free(d, c, 10 * PAGE, NULL);
        e = block_new(d, 5 * PAGE); /* fits next to all that is kept */
        check_stats(d, 5 * PAGE, 45 * PAGE, 45 * PAGE);
        assert_int_equal(ps_region_create(d, 10 * PAGE, &r), PS_OK);
        check_stats(d, 5 * PAGE, 45 * PAGE, 45 * PAGE);
        assert_int_equal(ps_region_commit(r, 0, 2 * PAGE), PS_OK); /* pushes b out */
        check_stats(d, 7 * PAGE, 30 * PAGE, 45 * PAGE);
        assert_ptr_equal(block_new(d, 10 * PAGE), c);
        void *f = block_new(d, 25 * PAGE); /* pushes a out */
        check_stats(d, 42 * PAGE, 0, 45 * PAGE);
        ps_region_destroy(r);
        check_stats(d, 40 * PAGE, 0, 45 * PAGE);
        ps_device_free(d, e, 5 * PAGE, NULL);
        ps_device_free(d, f, 25 * PAGE, NULL);
        ps_device_free(d, c, 10 * PAGE, NULL);
        ps_device_destroy(d);
    }
}

/* More freed blocks than are remembered: the oldest leave, the count stays right. */
static void test_many_kept_blocks(void **state)
{
    (void)state;
    enum { N = 5000 };
    void *p[N];
    ps_device *d = device_new(&ps_device_sim_ops, N * PAGE);
    for (int i = 0; i < N; i++) p[i] = block_new(d, PAGE);
    for (int i = 0; i < N; i++) ps_device_free(d, p[i], PAGE, NULL);
    const int64_t kept = ps_device_get_stats(d).kept_bytes;
    assert_in_range(kept, PAGE, N * PAGE - 1);
    for (int64_t i = N - 1; i >= N - kept / PAGE; i--) assert_ptr_equal(block_new(d, PAGE), p[i]);
    check_stats(d, kept, 0, N * PAGE);
    for (int64_t i = N - 1; i >= N - kept / PAGE; i--) ps_device_free(d, p[i], PAGE, NULL);
    ps_device_destroy(d);
}

static int64_t resident_bytes(void *p, int64_t bytes)
{
    unsigned char *map = malloc((size_t)(bytes / PAGE));
    int64_t n = 0;
    assert_non_null(map);
    assert_int_equal(mincore(p, (size_t)bytes, map), 0);
    for (int64_t i = 0; i < bytes / PAGE; i++) n += map[i] & 1;
    free(map);
    return n * PAGE;
}

/* Huge pages must not make more resident than was committed. */
static void test_region_is_resident_as_committed(void **state)
{
    (void)state;
    ps_device *d = device_new(&ps_device_cpu_ops, 8 * PS_MIB);
    ps_region *r = NULL;
    assert_int_equal(ps_region_create(d, 64 * PS_MIB, &r), PS_OK);
    char *p = ps_region_base(r);
    assert_int_equal(ps_region_commit(r, PS_MIB, 4 * PS_MIB), PS_OK);
    check_stats(d, 4 * PS_MIB, 0, 4 * PS_MIB);
    memset(p + PS_MIB, 1, 4 * (size_t)PS_MIB);
    assert_int_equal(resident_bytes(p, 64 * PS_MIB), 4 * PS_MIB);
    ps_region_decommit(r, 3 * PS_MIB, PS_MIB, NULL); /* half of a huge page */
    assert_int_equal(resident_bytes(p, 64 * PS_MIB), 3 * PS_MIB);
    ps_region_decommit(r, 2 * PS_MIB, PS_MIB, NULL);
    assert_int_equal(ps_region_commit(r, 2 * PS_MIB, PS_MIB), PS_OK);
    memset(p + 2 * PS_MIB, 2, (size_t)PS_MIB);
    assert_int_equal(resident_bytes(p, 64 * PS_MIB), 3 * PS_MIB);
    assert_int_equal(p[PS_MIB], 1); /* neighbours are untouched */
    assert_int_equal(p[5 * PS_MIB - 1], 1);
    ps_region_decommit(r, 2 * PS_MIB, PS_MIB, NULL);
    assert_int_equal(ps_region_commit(r, 2 * PS_MIB, 2 * PS_MIB), PS_OK);
    memset(p + 2 * PS_MIB, 3, 2 * (size_t)PS_MIB);
    ps_region_decommit(r, 2 * PS_MIB, 2 * PS_MIB, NULL); /* all of a huge page, of which half comes back */
    assert_int_equal(ps_region_commit(r, 2 * PS_MIB, PS_MIB), PS_OK);
    memset(p + 2 * PS_MIB, 4, (size_t)PS_MIB);
    assert_int_equal(resident_bytes(p, 64 * PS_MIB), 3 * PS_MIB);
    assert_int_equal(ps_region_commit(r, 32 * PS_MIB, 5 * PS_MIB), PS_OK);
    assert_int_equal(ps_region_commit(r, 0, PAGE), PS_ENOMEM_DEV);
    check_stats(d, 8 * PS_MIB, 0, 8 * PS_MIB);
    ps_region_destroy(r);
    ps_region_destroy(NULL);
    check_stats(d, 0, 0, 8 * PS_MIB);
    ps_device_destroy(d);
}

/* May the address be written? -1: it is not mapped. */
static int is_writable(const void *p)
{
    unsigned long long first, end;
    char line[512], access[8];
    int found = -1;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "%llx-%llx %7s", &first, &end, access) == 3 && (uintptr_t)p >= first && (uintptr_t)p < end)
            found = access[1] == 'w';
    fclose(f);
    return found;
}

/* ---- pages that move between regions and blocks ------------------------------------------------------------------ */

static int64_t faults_of_touching(char *p, int64_t bytes)
{
    struct rusage before, after;
    assert_int_equal(getrusage(RUSAGE_THREAD, &before), 0);
    for (int64_t i = 0; i < bytes; i += PAGE) touch(p + i);
    assert_int_equal(getrusage(RUSAGE_THREAD, &after), 0);
    return after.ru_minflt - before.ru_minflt;
}

static ps_region *region_new(ps_device *d, int64_t bytes)
{
    ps_region *r = NULL;
    assert_int_equal(ps_region_create(d, bytes, &r), PS_OK);
    return r;
}

/* Content is how pages are known again; DEBUG=3 overwrites it, then the faults must do. */
static void check_pages(char *p, int64_t bytes, char content)
{
    for (int64_t i = 0; i < bytes && PS_DEBUG < 3; i += PAGE) assert_int_equal(p[i + 1], content);
#ifdef __SANITIZE_ADDRESS__ /* has faults of its own */
    (void)faults_of_touching(p, bytes);
#else
    assert_int_equal(faults_of_touching(p, bytes), 0);
#endif
    for (int64_t i = 0; i < bytes; i += PAGE) p[i + 1] = content;
}

static void test_pages_of_regions_are_reused(void **state)
{
    (void)state;
    const int64_t sizes[] = {PAGE, 3 * PAGE, 2 * PS_MIB, 3 * PS_MIB + PAGE};
    for (size_t i = 0; i < PS_ARRAY_LEN(sizes); i++) {
        const int64_t n = sizes[i];
        ps_device *d = device_new(&ps_device_cpu_ops, 3 * n);
        ps_region *r = region_new(d, 5 * n), *other = region_new(d, 2 * n);
        char *p = ps_region_base(r), *q = ps_region_base(other);
        for (int64_t k = 0; k < 3; k++) {
            assert_int_equal(ps_region_commit(r, k * n, n), PS_OK);
            memset(p + k * n, (int)k + 1, (size_t)n);
        }
        for (int round = 0; round < 3; round++) {
            ps_region_decommit(r, n, n, NULL);
            check_stats(d, 2 * n, n, 3 * n);
            assert_int_equal(resident_bytes(p, 5 * n), 2 * n);
            if (PS_DEBUG >= 2) assert_int_equal(is_writable(p + n), 0); /* a fork would make faults of its own */
            assert_int_equal(ps_region_commit(r, 4 * n, n), PS_OK);     /* elsewhere */
            check_stats(d, 3 * n, 0, 3 * n);
            check_pages(p + 4 * n, n, 2);
            ps_region_decommit(r, 4 * n, n, NULL);
            assert_int_equal(ps_region_commit(other, n, n), PS_OK); /* in another region */
            check_pages(q + n, n, 2);
            ps_region_decommit(other, n, n, NULL);
            char *block = block_new(d, n); /* as a block, and back */
            check_stats(d, 3 * n, 0, 3 * n);
            check_pages(block, n, 2);
            ps_device_free(d, block, n, NULL);
            assert_int_equal(ps_region_commit(r, n, n), PS_OK);
            check_stats(d, 3 * n, 0, 3 * n);
            check_pages(p + n, n, 2);
            check_pages(p, n, 1); /* neighbours are untouched */
            check_pages(p + 2 * n, n, 3);
            assert_int_equal(resident_bytes(p, 5 * n), 3 * n);
        }
        ps_region_destroy(r);
        ps_region_destroy(other);
        check_stats(d, 0, 0, 3 * n);
        ps_device_destroy(d);
    }
}

/* Kept pages of regions are dropped as others are: for room, when nothing is to be kept, and with the device. */
static void test_kept_pages_of_regions_make_room(void **state)
{
    (void)state;
    ps_device *d = device_new(&ps_device_cpu_ops, 10 * PAGE);
    ps_region *r = region_new(d, 20 * PAGE), *mixed = region_new(d, 20 * PAGE);
    char *p = ps_region_base(r);
    assert_int_equal(ps_region_commit(r, 0, 4 * PAGE), PS_OK);
    assert_int_equal(ps_region_commit(r, 4 * PAGE, 4 * PAGE), PS_OK);
    memset(p, 5, 8 * (size_t)PAGE);
    ps_region_decommit(r, 0, 4 * PAGE, NULL);
    ps_region_decommit(r, 4 * PAGE, 4 * PAGE, NULL);
    check_stats(d, 0, 8 * PAGE, 8 * PAGE);
    assert_int_equal(ps_region_commit(mixed, 0, 3 * PAGE), PS_OK); /* no such size is kept: one has to go */
    check_stats(d, 3 * PAGE, 4 * PAGE, 8 * PAGE);
    assert_int_equal(ps_region_commit(mixed, 3 * PAGE, PAGE), PS_OK);
    ps_region_decommit(mixed, 0, 3 * PAGE, NULL); /* of differing sizes: not kept */
    check_stats(d, PAGE, 4 * PAGE, 8 * PAGE);
    assert_int_equal(ps_region_commit(r, 8 * PAGE, 4 * PAGE), PS_OK);
    check_stats(d, 5 * PAGE, 0, 8 * PAGE);
    check_pages(p + 8 * PAGE, 4 * PAGE, 5);
    ps_region_decommit(r, 8 * PAGE, 4 * PAGE, NULL);
    check_stats(d, PAGE, 4 * PAGE, 8 * PAGE);
    ps_device_set_keep(d, false);
    check_stats(d, PAGE, 0, 8 * PAGE);
    assert_int_equal(ps_region_commit(r, 0, 4 * PAGE), PS_OK);
    if (PS_DEBUG < 3) assert_int_equal(p[0], 0); /* new pages */
    ps_region_decommit(r, 0, 4 * PAGE, NULL);
    check_stats(d, PAGE, 0, 8 * PAGE);
    assert_int_equal(resident_bytes(p, 20 * PAGE), 0);
    ps_device_set_keep(d, true);
    assert_int_equal(ps_region_commit(r, 0, 4 * PAGE), PS_OK);
    ps_region_decommit(r, 0, 4 * PAGE, NULL); /* kept beyond its region, until the device goes */
    ps_region_destroy(r);
    ps_region_destroy(mixed);
    check_stats(d, 0, 4 * PAGE, 8 * PAGE);
    ps_device_destroy(d);
}

/* From now on this process's mremap says `error` when its flags are those. */
static void refuse_mremap(unsigned flags, unsigned error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, flags, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = PS_ARRAY_LEN(code), .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(77);
}

#define MOVE_IN (MREMAP_MAYMOVE | MREMAP_FIXED)
#define MOVE_OUT (MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)

/* In a process of its own: a region works without that mremap; what is kept after each commit and decommit. */
static void check_refused(unsigned flags, unsigned error, int64_t kept_before, int64_t kept_after)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool ok = true;
        ps_device *d = NULL;
        ps_region *r = NULL;
        ok = ok && ps_device_create(&ps_device_cpu_ops, "host", 8 * PAGE, &d) == PS_OK;
        ok = ok && ps_region_create(d, 16 * PAGE, &r) == PS_OK;
        refuse_mremap(flags, error);
        char *p = ps_region_base(r);
        for (int round = 0; round < 3 && ok; round++) {
            ok = ok && ps_region_commit(r, 4 * PAGE, 4 * PAGE) == PS_OK;
            ok = ok && ps_device_get_stats(d).kept_bytes == kept_before;
            ok = ok && (PS_DEBUG >= 3 || p[4 * PAGE] == 0); /* new pages */
            if (ok) memset(p + 4 * PAGE, 7, 4 * (size_t)PAGE);
            ps_region_decommit(r, 4 * PAGE, 4 * PAGE, NULL);
            ok = ok && ps_device_get_stats(d).used_bytes == 0 && ps_device_get_stats(d).kept_bytes == kept_after;
        }
        ps_region_destroy(r);
        ps_device_destroy(d);
        _exit(ok && ps_mem_live_bytes() == 0 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip(); /* no filters here */
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_regions_work_where_pages_cannot_move(void **state)
{
    (void)state;
    check_refused(MOVE_OUT, EINVAL, 0, 0); /* Linux before 5.7 */
    check_refused(MOVE_OUT, ENOSYS, 0, 0);
    check_refused(MOVE_OUT, ENOMEM, 0, 0);
    check_refused(MOVE_IN, ENOMEM, 0, 4 * PAGE);
}

/* With vm.overcommit_memory = 2 the system counts what may be written, whether it has memory or not. */
static void test_reserved_is_not_counted(void **state)
{
    (void)state;
    ps_device *d = device_new(&ps_device_cpu_ops, 8 * PAGE);
    ps_region *r = NULL;
    assert_int_equal(ps_region_create(d, 64 * PAGE, &r), PS_OK);
    const char *p = ps_region_base(r);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(is_writable(p + 5 * PAGE), 0);
        assert_int_equal(ps_region_commit(r, 4 * PAGE, 4 * PAGE), PS_OK);
        assert_int_equal(is_writable(p + 5 * PAGE), 1);
        assert_int_equal(is_writable(p + 9 * PAGE), 0);
        ps_region_decommit(r, 4 * PAGE, 4 * PAGE, NULL);
    }
    ps_region_destroy(r);
    ps_device_destroy(d);
}

/* So many reservations would not fit the address space if a failure kept them. */
static void test_failed_region_gives_addresses_back(void **state)
{
    (void)state;
    ps_device *d = device_new(&ps_device_sim_ops, PAGE);
    for (int i = 0; i < 1000; i++) {
        ps_region *r = NULL;
        ps_fault_arm(PS_FAULT_ALLOC, 1, false);
        assert_int_equal(ps_region_create(d, 256 * PS_GIB, &r), PS_ENOMEM_HOST);
        assert_non_null(strstr(ps_last_error(), "bookkeeping"));
        assert_true(ps_fault_has_struck(PS_FAULT_ALLOC));
    }
    ps_device_destroy(d);
}

/* What is kept next to a block counts, so it may be resident; when its room is wanted it is not. */
static void test_block_is_resident_as_allocated(void **state)
{
    (void)state;
    ps_device *d = device_new(&ps_device_cpu_ops, 16 * PS_MIB);
    const int64_t bytes = 3 * PS_MIB;
    char *a = block_new(d, bytes), *b = block_new(d, bytes);
    check_stats(d, 2 * bytes, 0, 2 * bytes);
    memset(a, 1, (size_t)bytes);
    if (PS_DEBUG < 3) assert_in_range(resident_bytes(b, bytes), 0, PS_MIB); /* of the large page that a ends in */
    assert_int_equal(resident_bytes(a, bytes), bytes);
    memset(b, 2, (size_t)bytes);
    assert_int_equal(a[bytes - 1], 1);
    ps_device_free(d, b, bytes, NULL);
    char *c = block_new(d, 13 * PS_MIB);
    check_stats(d, 16 * PS_MIB, 0, 16 * PS_MIB);
    assert_int_equal(is_writable(b), -1);
    assert_int_equal(resident_bytes(a, bytes), bytes);
    assert_int_equal(a[bytes - 1], 1);
    ps_device_free(d, a, bytes, NULL);
    ps_device_free(d, c, 13 * PS_MIB, NULL);
    ps_device_destroy(d);
}

/* Of anonymous memory that begins at p, in huge pages. */
static int64_t huge_bytes(const void *p)
{
    unsigned long long first, end;
    long long kb = 0;
    char line[512];
    bool here = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "%llx-%llx ", &first, &end) == 2) here = (uintptr_t)p >= first && (uintptr_t)p < end;
        if (here && sscanf(line, "AnonHugePages: %lld kB", &kb) == 1) break;
    }
    fclose(f);
    return kb * 1024;
}

/* Four of 512 KiB lie side by side: the other three are kept, new, and of the budget. Where that has no room for them a
 * block is alone. */
static void test_small_blocks_share_a_huge_page(void **state)
{
    (void)state;
    const int64_t bytes = 512 * PS_KIB;
    ps_device *d = device_new(&ps_device_cpu_ops, 3 * PS_MIB);
    char *alone = block_new(d, 2 * PS_MIB), *p[4];
    memset(alone, 1, 2 * (size_t)PS_MIB);
    const bool has_huge_pages = huge_bytes(alone) > 0;
    p[0] = block_new(d, bytes);
    check_stats(d, 2 * PS_MIB + bytes, 0, 2 * PS_MIB + bytes); /* two more would fill no huge page */
    ps_device_free(d, p[0], bytes, NULL);
    ps_device_free(d, alone, 2 * PS_MIB, NULL);
    ps_device_set_keep(d, false);
    ps_device_set_keep(d, true);
    for (int i = 0; i < 4; i++) {
        p[i] = block_new(d, bytes);
        assert_ptr_equal(p[i], p[0] + i * bytes);
        assert_int_equal(ps_device_gave_zeros(d), PS_DEBUG < 3);
        check_stats(d, (i + 1) * bytes, (3 - i) * bytes, 2 * PS_MIB + bytes);
        memset(p[i], i + 1, (size_t)bytes);
    }
    if (has_huge_pages) assert_int_equal(huge_bytes(p[0]), 2 * PS_MIB);
    ps_device_free(d, p[1], bytes, NULL);
    ps_device_free(d, p[2], bytes, NULL);
    char *wide = block_new(d, 3 * PS_MIB / 2); /* the older one of both goes for it */
    assert_int_equal(is_writable(p[1]), -1);
    assert_int_equal(is_writable(p[2]), 1);
    assert_true(p[0][bytes - 1] == 1 && p[3][0] == 4);
    check_stats(d, 2 * PS_MIB + bytes, bytes, 2 * PS_MIB + bytes);
    assert_ptr_equal(block_new(d, bytes), p[2]);
    assert_false(ps_device_gave_zeros(d));
    for (int i = 0; i < 4; i++)
        if (i != 1) ps_device_free(d, p[i], bytes, NULL);
    ps_device_free(d, wide, 3 * PS_MIB / 2, NULL);
    ps_device_destroy(d);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

static void test_what_is_not_there_traps(void **state)
{
    (void)state;
    ps_device *sim = device_new(&ps_device_sim_ops, PS_MIB), *cpu = device_new(&ps_device_cpu_ops, PS_MIB);
    ps_region *r = NULL;
    void *p = block_new(sim, PAGE);
    assert_true(dies(touch, p));
    ps_device_free(sim, p, PAGE, NULL);
    assert_int_equal(ps_region_create(cpu, PS_MIB, &r), PS_OK);
    assert_int_equal(ps_region_commit(r, 0, 2 * PAGE), PS_OK);
    ps_region_decommit(r, PAGE, PAGE, NULL);
    char *base = ps_region_base(r);
    assert_false(dies(touch, base));
    if (PS_DEBUG >= 2) {
        assert_true(dies(touch, base + PAGE));
        assert_true(dies(touch, base + 2 * PAGE));
    }
    ps_region_destroy(r);
    ps_device_destroy(sim);
    ps_device_destroy(cpu);
}

static void commit_twice(void *r)
{
    if (ps_region_commit(r, 70 * PAGE, 4 * PAGE) != PS_OK) _exit(0);
}

static void decommit_uncommitted(void *r)
{
    ps_region_decommit(r, 60 * PAGE, 4 * PAGE, NULL);
}

static void commit_outside(void *r)
{
    if (ps_region_commit(r, 200 * PAGE, PAGE) != PS_OK) _exit(0);
}

static void test_mistakes_with_regions_assert(void **state)
{
    (void)state;
    if (PS_DEBUG == 0) skip();
    ps_device *d = device_new(&ps_device_sim_ops, 1000 * PAGE);
    ps_region *r = NULL;
    assert_int_equal(ps_region_create(d, 200 * PAGE, &r), PS_OK);
    assert_false(dies(commit_twice, r));
    assert_int_equal(ps_region_commit(r, 63 * PAGE, 130 * PAGE), PS_OK); /* over three words of the bitmap */
    assert_true(dies(commit_twice, r));
    assert_true(dies(decommit_uncommitted, r));
    assert_true(dies(commit_outside, r));
    ps_region_decommit(r, 64 * PAGE, 64 * PAGE, NULL);
    assert_false(dies(commit_twice, r));
    ps_region_destroy(r);
    ps_device_destroy(d);
}

static void check_content(const char *p, int64_t bytes, char content)
{
    for (int64_t i = 0; i < bytes; i++) assert_int_equal(p[i], content);
}

/* Random steps against a naive count; no two blocks share pages. */
static void test_random_use_keeps_the_books(void **state)
{
    (void)state;
    enum { BLOCKS = 24, UNITS = 16 };
    for (size_t o = 0; o < PS_ARRAY_LEN(all_ops); o++) {
        ps_device *d = device_new(all_ops[o], 64 * PAGE);
        ps_region *r = NULL;
        void *block[BLOCKS] = {NULL};
        bool committed[UNITS] = {false};
        int64_t used = 0;
        unsigned seed = 7;
        assert_int_equal(ps_region_create(d, UNITS * PAGE, &r), PS_OK);
        for (int step = 0; step < 5000; step++) {
            const unsigned x = (seed = seed * 1664525u + 1013904223u) >> 8;
            const unsigned i = x % BLOCKS, u = x / BLOCKS % UNITS;
            const int64_t bytes = (int64_t)(i % 7 + 1) * PAGE;
            if (x & 0x8000) {
                const bool fits = used + PAGE <= 64 * PAGE;
                char *page = (char *)ps_region_base(r) + u * PAGE;
                if (committed[u]) {
                    if (ps_device_has_memory(d)) check_content(page, PAGE, (char)(u + 100));
                    ps_region_decommit(r, u * PAGE, PAGE, NULL), committed[u] = false, used -= PAGE;
                } else if (ps_region_commit(r, u * PAGE, PAGE) == PS_OK) {
                    if (ps_device_has_memory(d)) memset(page, (int)(u + 100), (size_t)PAGE);
                    assert_true(fits), committed[u] = true, used += PAGE;
                } else {
                    assert_false(fits);
                }
            } else if (block[i] != NULL) {
                if (ps_device_has_memory(d)) check_content(block[i], bytes, (char)i);
                ps_device_free(d, block[i], bytes, NULL), block[i] = NULL, used -= bytes;
            } else if (ps_device_alloc(d, bytes, &block[i]) == PS_OK) {
                used += bytes;
                if (ps_device_has_memory(d)) memset(block[i], (int)i, (size_t)bytes);
            } else {
                assert_true(used + bytes > 64 * PAGE);
            }
            const ps_device_stats s = ps_device_get_stats(d);
            assert_int_equal(s.used_bytes, used);
            assert_true(s.kept_bytes >= 0 && s.used_bytes + s.kept_bytes <= s.budget_bytes);
        }
        for (unsigned i = 0; i < BLOCKS; i++) ps_device_free(d, block[i], (int64_t)(i % 7 + 1) * PAGE, NULL);
        ps_region_destroy(r);
        assert_int_equal(ps_device_get_stats(d).used_bytes, 0);
        ps_device_destroy(d);
    }
    assert_int_equal(ps_mem_live_bytes(), 0);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

/* A chain in which each copy reads what the one before wrote, longer than the queue. */
static void test_copies_run_in_order(void **state)
{
    (void)state;
    enum { N = 1500 };
    int *cell = calloc(N + 1, sizeof *cell);
    ps_event last = {NULL, 0};
    ps_device *d = device_new(&ps_device_cpu_ops, PAGE);
    ps_queue *s = NULL;
    assert_non_null(cell);
    assert_int_equal(ps_queue_create(d, "to-host", PS_QUEUE_COPY, &s), PS_OK);
    assert_true(ps_event_is_done(ps_queue_event(s)));
    assert_int_equal(ps_event_wait(ps_queue_event(s)), PS_OK);
    cell[0] = 42;
    for (int i = 0; i < N; i++) {
        assert_int_equal(ps_queue_copy(s, &cell[i + 1], &cell[i], sizeof cell[0]), PS_OK);
        assert_true(ps_queue_event(s).ticket > last.ticket);
        last = ps_queue_event(s);
    }
    assert_int_equal(ps_event_wait(last), PS_OK);
    assert_true(ps_event_is_done(last));
    assert_int_equal(cell[N], 42);
    ps_queue_destroy(s);
    ps_device_destroy(d);
    free(cell);
}

static void test_destroy_drains(void **state)
{
    (void)state;
    const size_t bytes = 4 * (size_t)PS_MIB;
    char *a = malloc(bytes), *b = calloc(1, bytes);
    ps_device *d = device_new(&ps_device_cpu_ops, PAGE);
    ps_queue *s = NULL;
    assert_non_null(a), assert_non_null(b);
    memset(a, 3, bytes);
    assert_int_equal(ps_queue_create(d, "a name longer than the system's fifteen", PS_QUEUE_COPY, &s), PS_OK);
    for (size_t i = 0; i < bytes; i += bytes / 64)
        assert_int_equal(ps_queue_copy(s, b + i, a + i, (int64_t)bytes / 64), PS_OK);
    ps_queue_destroy(s);
    assert_memory_equal(a, b, bytes);
    ps_queue_destroy(NULL);
    ps_device_destroy(d);
    free(a);
    free(b);
}

static void test_sim_copies_touch_nothing(void **state)
{
    (void)state;
    ps_device *d = device_new(&ps_device_sim_ops, 4 * PAGE);
    ps_queue *s = NULL;
    void *a = block_new(d, PAGE), *b = block_new(d, PAGE);
    assert_ptr_not_equal(a, b);
    assert_int_equal(ps_queue_create(d, "s", PS_QUEUE_COPY, &s), PS_OK);
    assert_int_equal(ps_queue_copy(s, a, b, PAGE), PS_OK);
    assert_true(ps_event_is_done(ps_queue_event(s)));
    assert_int_equal(ps_event_wait(ps_queue_event(s)), PS_OK);
    ps_queue_destroy(s);
    ps_device_free(d, a, PAGE, NULL);
    ps_device_free(d, b, PAGE, NULL);
    ps_device_destroy(d);
}

/* Cell by cell, each with its event. */
static void copy_cells(ps_queue *s, const char *from, char *to, int n, ps_event *done)
{
    for (int i = 0; i < n; i++) {
        assert_int_equal(ps_queue_copy(s, &to[i], &from[i], 1), PS_OK);
        done[i] = ps_queue_event(s);
    }
}

static void test_failed_copy_is_told_once_at_its_wait(void **state)
{
    (void)state;
    for (size_t o = 0; o < PS_ARRAY_LEN(all_ops); o++) {
        ps_device *d = device_new(all_ops[o], PAGE);
        ps_queue *s = NULL;
        ps_event t[4];
        char from[4] = "abc", to[4] = "xyz";
        assert_int_equal(ps_queue_create(d, "s", PS_QUEUE_COPY, &s), PS_OK);
        ps_fault_arm(PS_FAULT_COPY, 1, false);
        copy_cells(s, from, to, 4, t);
        assert_int_equal(ps_event_wait(t[0]), PS_OK);
        assert_int_equal(ps_event_wait(t[2]), PS_EDEVICE);
        assert_true(ps_event_is_done(t[1]));
        assert_int_equal(ps_event_wait(t[1]), PS_OK);
        assert_int_equal(ps_event_wait(t[3]), PS_OK);
        if (all_ops[o] == &ps_device_cpu_ops) assert_string_equal(to, "ayc"); /* what failed moved nothing */
        ps_fault_arm(PS_FAULT_COPY, 0, true);
        copy_cells(s, from, to, 3, t);
        ps_fault_arm(PS_FAULT_COPY, -1, false);
        assert_int_equal(ps_event_wait(t[1]), PS_EDEVICE);
        assert_int_equal(ps_event_wait(t[1]), PS_OK);
        assert_int_equal(ps_event_wait(t[2]), PS_EDEVICE);
        assert_int_equal(ps_event_wait(t[2]), PS_OK);
        ps_queue_destroy(s);
        ps_device_destroy(d);
    }
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

/* Everything once. On failure frees what it has; the device's books must be at zero either way. */
static ps_status use_device(const ps_device_ops *ops)
{
    ps_status st;
    ps_device *d = NULL;
    ps_region *r = NULL;
    ps_queue *s = NULL;
    void *a = NULL, *b = NULL;
    PS_TRY_GOTO(ps_device_create(ops, "device", 64 * PAGE, &d));
    PS_TRY_GOTO(ps_device_alloc(d, 4 * PAGE, &a));
    ps_device_free(d, a, 4 * PAGE, NULL);
    a = NULL;
    PS_TRY_GOTO(ps_device_alloc(d, 4 * PAGE, &a));
    PS_TRY_GOTO(ps_device_alloc(d, 4 * PAGE, &b));
    PS_TRY_GOTO(ps_region_create(d, 100 * PAGE, &r));
    PS_TRY_GOTO(ps_region_commit(r, 0, 10 * PAGE));
    PS_TRY_GOTO(ps_region_commit(r, 10 * PAGE, 46 * PAGE));
    ps_region_decommit(r, 5 * PAGE, 10 * PAGE, NULL);
    PS_TRY_GOTO(ps_queue_create(d, "s", PS_QUEUE_COPY, &s));
    for (int i = 0; i < 3; i++) {
        PS_TRY_GOTO(ps_queue_copy(s, a, b, 4 * PAGE));
        PS_TRY_GOTO(ps_event_wait(ps_queue_event(s)));
    }
out:
    ps_queue_destroy(s);
    ps_region_destroy(r);
    if (d != NULL) {
        ps_device_free(d, a, 4 * PAGE, NULL);
        ps_device_free(d, b, 4 * PAGE, NULL);
        assert_int_equal(ps_device_get_stats(d).used_bytes, 0);
    }
    ps_device_destroy(d);
    return st;
}

static void test_every_fault_is_reported_and_nothing_leaks(void **state)
{
    (void)state;
    const struct {
        ps_fault_kind kind;
        int calls; /* at least so many must have been walked */
    } cases[] = {{PS_FAULT_ALLOC, 10}, {PS_FAULT_COPY, 3}};
    for (size_t c = 0; c < PS_ARRAY_LEN(cases); c++) {
        for (size_t o = 0; o < 2 * PS_ARRAY_LEN(all_ops); o++) {
            int n = 0;
            for (;; n++) {
                ps_fault_arm(cases[c].kind, n, o % 2 != 0);
                const ps_status st = use_device(all_ops[o / 2]);
                const bool struck = ps_fault_has_struck(cases[c].kind);
                ps_fault_arm(cases[c].kind, -1, false);
                assert_int_equal(ps_mem_live_bytes(), 0);
                assert_int_equal(st != PS_OK, struck);
                if (!struck) break;
                if (cases[c].kind == PS_FAULT_COPY) assert_int_equal(st, PS_EDEVICE);
            }
            assert_true(n >= cases[c].calls);
        }
    }
}

/* The device says whether the bytes that it has just given are zeros, and then they are. DEBUG=3 writes over them. */
static void check_zeros(const ps_device *d, char *p, int64_t bytes, bool expected)
{
    assert_int_equal(ps_device_gave_zeros(d), expected && PS_DEBUG < 3);
    for (int64_t i = 0; i < bytes && ps_device_gave_zeros(d); i++) assert_int_equal(p[i], 0);
    memset(p, 1, (size_t)bytes);
}

static void test_zeros_of_blocks(void **state)
{
    (void)state;
    ps_device *d = device_new(&ps_device_cpu_ops, 8 * PAGE);
    void *none = NULL;
    char *p = block_new(d, 2 * PAGE);
    check_zeros(d, p, 2 * PAGE, true);
    ps_device_free(d, p, 2 * PAGE, NULL);
    p = block_new(d, 2 * PAGE);
    check_zeros(d, p, 2 * PAGE, false); /* kept */
    ps_device_free(d, p, 2 * PAGE, NULL);
    p = block_new(d, 7 * PAGE);
    check_zeros(d, p, 7 * PAGE, true); /* what was kept made room */
    assert_int_equal(ps_device_alloc(d, 2 * PAGE, &none), PS_ENOMEM_DEV);
    assert_int_equal(ps_device_gave_zeros(d), PS_DEBUG < 3); /* that of the last success */
    ps_device_free(d, p, 7 * PAGE, NULL);
    ps_device_set_keep(d, false);
    for (int round = 0; round < 2; round++) {
        p = block_new(d, 7 * PAGE);
        check_zeros(d, p, 7 * PAGE, true);
        ps_device_free(d, p, 7 * PAGE, NULL);
    }
    ps_device_destroy(d);
}

static void test_zeros_of_regions(void **state)
{
    (void)state;
    for (int64_t n = PAGE; n <= 2 * PS_MIB; n *= 512) {
        ps_device *d = device_new(&ps_device_cpu_ops, 4 * n);
        ps_region *r = region_new(d, 4 * n);
        char *const p = ps_region_base(r);
        assert_int_equal(ps_region_commit(r, 0, n), PS_OK);
        check_zeros(d, p, n, true);
        ps_region_decommit(r, 0, n, NULL);
        assert_int_equal(ps_region_commit(r, n, n), PS_OK);
        check_zeros(d, p + n, n, false); /* pages moved */
        assert_int_equal(ps_region_commit(r, 2 * n, n), PS_OK);
        check_zeros(d, p + 2 * n, n, true);
        ps_region_decommit(r, n, 2 * n, NULL); /* from now on pieces differ in size, and pages go back to the system */
        assert_int_equal(ps_region_commit(r, 0, 3 * n), PS_OK);
        check_zeros(d, p, 3 * n, true);
        ps_region_destroy(r);
        ps_device_destroy(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget_is_exact),
        cmocka_unit_test(test_bad_arguments_are_refused),
        cmocka_unit_test(test_freed_blocks_are_reused),
        cmocka_unit_test(test_kept_blocks_make_room_oldest_first),
        cmocka_unit_test(test_many_kept_blocks),
        cmocka_unit_test(test_region_is_resident_as_committed),
        cmocka_unit_test(test_pages_of_regions_are_reused),
        cmocka_unit_test(test_kept_pages_of_regions_make_room),
        cmocka_unit_test(test_regions_work_where_pages_cannot_move),
        cmocka_unit_test(test_reserved_is_not_counted),
        cmocka_unit_test(test_failed_region_gives_addresses_back),
        cmocka_unit_test(test_block_is_resident_as_allocated),
        cmocka_unit_test(test_small_blocks_share_a_huge_page),
        cmocka_unit_test(test_zeros_of_blocks),
        cmocka_unit_test(test_zeros_of_regions),
        cmocka_unit_test(test_what_is_not_there_traps),
        cmocka_unit_test(test_mistakes_with_regions_assert),
        cmocka_unit_test(test_random_use_keeps_the_books),
        cmocka_unit_test(test_copies_run_in_order),
        cmocka_unit_test(test_destroy_drains),
        cmocka_unit_test(test_sim_copies_touch_nothing),
        cmocka_unit_test(test_failed_copy_is_told_once_at_its_wait),
        cmocka_unit_test(test_every_fault_is_reported_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
