/* test_machine.c - reading /proc and the cgroups, on made-up trees and on garbage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/machine.h"
#include "base/mem.h"

static char root[256];

static void tree_remove(void)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
}

static int tree_make(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/ps-test-XXXXXX", tmp != NULL ? tmp : "/tmp");
    return mkdtemp(root) == NULL;
}

static int tree_unmake(void **state)
{
    (void)state;
    tree_remove();
    return 0;
}

static void put_bytes(const char *path, const char *text, size_t bytes)
{
    char whole[1024];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *s = whole + strlen(root) + 1; (s = strchr(s, '/')) != NULL; s++) {
        *s = '\0';
        mkdir(whole, 0700);
        *s = '/';
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, bytes, f), bytes);
    fclose(f);
}

static void put(const char *path, const char *text)
{
    put_bytes(path, text, strlen(text));
}

#define MEMINFO "MemTotal:       1000 kB\nMemFree: 100 kB\nMemAvailable:    800 kB\nCached: 50 kB\n"

static ps_machine_memory_info memory(void)
{
    ps_machine_memory_info m;
    assert_int_equal(ps_machine_memory(root, &m), PS_OK);
    return m;
}

static void test_meminfo_alone(void **state)
{
    (void)state;
    put("/proc/meminfo", MEMINFO);
    assert_int_equal(memory().total_bytes, 1000 * 1024);
    assert_int_equal(memory().available_bytes, 800 * 1024);
    put("/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nCached: 50 kB\n"); /* before Linux 3.14 */
    assert_int_equal(memory().available_bytes, 150 * 1024);
    put("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 5000 kB\n");
    assert_int_equal(memory().available_bytes, 1000 * 1024);
}

static void test_meminfo_garbage(void **state)
{
    (void)state;
    ps_machine_memory_info m;
    const char *bad[] = {"",
                         "\n\n",
                         "MemTotal",
                         "MemTotal:",
                         "MemTotal: x kB\n",
                         "MemTotal: -5 kB\n",
                         "MemTotal: 99999999999999999999999 kB\n",
                         "MemTotal: 9223372036854775807 kB\n",
                         "XMemTotal: 5 kB\n",
                         "MemTotalX: 5 kB\n"};
    assert_int_equal(ps_machine_memory("/no/such/root", &m), PS_EIO);
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
        put("/proc/meminfo", bad[i]);
        assert_int_equal(ps_machine_memory(root, &m), PS_EIO);
        assert_non_null(strstr(ps_last_error(), "/proc/meminfo"));
    }
    put_bytes("/proc/meminfo", "\0\0\377MemTotal: 1\n\0\nMemTotal: 7 kB\n", 33);
    assert_int_equal(memory().total_bytes, 7 * 1024);
}

/* Limits at two levels, the use of the outer one counted against its own. */
static void test_cgroup_v2(void **state)
{
    (void)state;
    put("/proc/meminfo", MEMINFO);
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/proc/self/mountinfo", "bogus\n30 20 0:1 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/memory.max", "512000\n");
    put("/sys/fs/cgroup/a/memory.current", "300000\n");
    assert_int_equal(memory().total_bytes, 512000);
    assert_int_equal(memory().available_bytes, 212000);
    put("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 100000\nactive_file 3\n");
    assert_int_equal(memory().available_bytes, 312000);
    put("/sys/fs/cgroup/a/b/memory.max", "400000\n");
    put("/sys/fs/cgroup/a/b/memory.current", "390000\n");
    assert_int_equal(memory().total_bytes, 400000);
    assert_int_equal(memory().available_bytes, 10000);
    put("/sys/fs/cgroup/a/b/memory.current", "999999\n"); /* over its limit for a moment */
    assert_int_equal(memory().available_bytes, 0);
}

static void test_cgroup_v1(void **state)
{
    (void)state;
    put("/proc/meminfo", MEMINFO);
    put("/proc/self/cgroup", "9:name=systemd:/\n4:cpuset,memory:/x/y\n1:cpu:/\n0::/\n");
    put("/proc/self/mountinfo", "33 31 0:30 / /cg/cpu rw - cgroup cgroup rw,cpu\n"
                                "34 31 0:31 /x /cg/memory rw - cgroup cgroup rw,cpuset,memory\n");
    put("/cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(memory().total_bytes, 1000 * 1024);
    put("/cg/memory/y/memory.limit_in_bytes", "600000\n");
    put("/cg/memory/y/memory.usage_in_bytes", "200000\n");
    put("/cg/memory/y/memory.stat", "inactive_file 1\ntotal_inactive_file 50000\n");
    assert_int_equal(memory().total_bytes, 600000);
    assert_int_equal(memory().available_bytes, 450000);
    put("/proc/self/cgroup", "4:memory:/elsewhere\n"); /* not below what is mounted: the mount point it is */
    put("/cg/memory/memory.limit_in_bytes", "700000\n");
    assert_int_equal(memory().total_bytes, 700000);
    put("/cg/out/memory.limit_in_bytes", "5\n");
    put("/proc/self/cgroup", "4:memory:/x/../out\n");
    assert_int_equal(memory().total_bytes, 700000);
    put("/cg/memorytra/memory.limit_in_bytes", "5\n");
    put("/proc/self/cgroup", "4:memory:/xtra\n");
    assert_int_equal(memory().total_bytes, 700000);
}

static void test_cgroup_garbage(void **state)
{
    (void)state;
    const char *groups[] = {"", ":", "::", "0::", "0::relative\n", "4:memory\n", "4:memory:/a\n", "0::/a\n"};
    const char *mounts[] = {"",
                            " - ",
                            "a - b",
                            "1 2 3 4 - cgroup2 x rw\n",
                            "1 2 3 / /m rw - cgroup2\n",
                            "1 2 3 / /m rw - cgroup2 x rw\n",
                            "1 2 3 / /m rw - cgroup x rw,memory\n"};
    char *big = malloc(100000);
    assert_non_null(big);
    memset(big, 'a', 100000);
    put("/proc/meminfo", MEMINFO);
    put("/m/a/memory.max", "garbage\n");
    put("/m/memory.max", "-1\n");
    put("/m/a/memory.limit_in_bytes", "");
    for (size_t g = 0; g < PS_ARRAY_LEN(groups); g++)
        for (size_t m = 0; m < PS_ARRAY_LEN(mounts); m++) {
            put("/proc/self/cgroup", groups[g]);
            put("/proc/self/mountinfo", mounts[m]);
            assert_int_equal(memory().total_bytes, 1000 * 1024);
            assert_true(ps_machine_cores(root) >= 1);
        }
    memcpy(big, "0::/", 4);
    put_bytes("/proc/self/cgroup", big, 100000);
    put_bytes("/proc/self/mountinfo", big, 100000);
    assert_int_equal(memory().total_bytes, 1000 * 1024);
    free(big);
}

static void test_cores(void **state)
{
    (void)state;
    const int all = ps_machine_cores("/no/such/root");
    assert_true(all >= 1);
    put("/proc/self/mountinfo", "1 2 0:1 / /cg rw - cgroup2 cgroup2 rw\n2 2 0:2 / /c1 rw - cgroup cgroup rw,cpu\n");
    put("/proc/self/cgroup", "0::/a\n");
    put("/cg/a/cpu.max", "max 100000\n");
    assert_int_equal(ps_machine_cores(root), all);
    put("/cg/cpu.max", "50000 100000\n");
    assert_int_equal(ps_machine_cores(root), 1);
    put("/cg/cpu.max", "100000 0\n");
    assert_int_equal(ps_machine_cores(root), all);
    put("/cg/a/cpu.max", "90000000000 100000\n");
    assert_int_equal(ps_machine_cores(root), all);
    if (all >= 2) {
        put("/cg/a/cpu.max", "150000 100000\n");
        assert_int_equal(ps_machine_cores(root), 2);
    }
    put("/proc/self/cgroup", "1:cpu,cpuacct:/\n");
    put("/c1/cpu.cfs_quota_us", "-1\n");
    put("/c1/cpu.cfs_period_us", "100000\n");
    assert_int_equal(ps_machine_cores(root), all);
    put("/c1/cpu.cfs_quota_us", "1000\n");
    assert_int_equal(ps_machine_cores(root), 1);
}

static void test_cpu_name(void **state)
{
    (void)state;
    char name[64], cut[8];
    ps_machine_cpu_name(root, name, sizeof name);
    assert_string_equal(name, "unknown CPU");
    put("/proc/cpuinfo", "processor\t: 0\nmodel name\nmodel name\t:\nmodel name\t: Some CPU @ 2 GHz\n");
    ps_machine_cpu_name(root, name, sizeof name);
    assert_string_equal(name, "Some CPU @ 2 GHz");
    ps_machine_cpu_name(root, cut, sizeof cut);
    assert_string_equal(cut, "Some CP");
}

static void test_rss(void **state)
{
    (void)state;
    ps_machine_rss_info r;
    const char *bad[] = {"", "x", "5", "5 x", "5 99999999999999999999", "5 9223372036854775807"};
    assert_int_equal(ps_machine_rss("/no/such/root", &r), PS_EIO);
    put("/proc/self/status", "VmPeak: 9 kB\nVmHWM:\t   77 kB\n");
    put("/proc/self/statm", "100 20 3 0 0 0 0\n");
    assert_int_equal(ps_machine_rss(root, &r), PS_OK);
    assert_int_equal(r.resident_bytes, 20 * sysconf(_SC_PAGESIZE));
    assert_int_equal(r.peak_bytes, 77 * 1024);
    for (size_t i = 0; i < PS_ARRAY_LEN(bad); i++) {
        put("/proc/self/statm", bad[i]);
        assert_int_equal(ps_machine_rss(root, &r), PS_EIO);
    }
}

static void test_this_machine(void **state)
{
    (void)state;
    const size_t bytes = 32 * (size_t)PS_MIB;
    char name[128];
    ps_machine_memory_info m;
    ps_machine_rss_info before, with, after;
    assert_int_equal(ps_machine_memory(NULL, &m), PS_OK);
    assert_true(m.total_bytes > 0 && m.available_bytes > 0 && m.available_bytes <= m.total_bytes);
    assert_in_range(ps_machine_cores(NULL), 1, sysconf(_SC_NPROCESSORS_CONF));
    ps_machine_cpu_name(NULL, name, sizeof name);
    assert_true(strlen(name) > 0);
    assert_int_equal(ps_machine_rss(NULL, &before), PS_OK);
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(ps_machine_rss(NULL, &with), PS_OK);
    munmap(p, bytes);
    assert_int_equal(ps_machine_rss(NULL, &after), PS_OK);
    assert_true(with.resident_bytes >= before.resident_bytes + (int64_t)bytes / 2);
    assert_true(after.resident_bytes < with.resident_bytes);
    assert_true(after.peak_bytes >= with.resident_bytes - PS_MIB); /* the kernel counts in batches */
    const int64_t t = ps_clock_ns();
    usleep(1000);
    assert_true(ps_clock_ns() >= t + 1000000);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

#define IN_A_TREE(f) cmocka_unit_test_setup_teardown(f, tree_make, tree_unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_TREE(test_meminfo_alone),
        IN_A_TREE(test_meminfo_garbage),
        IN_A_TREE(test_cgroup_v2),
        IN_A_TREE(test_cgroup_v1),
        IN_A_TREE(test_cgroup_garbage),
        IN_A_TREE(test_cores),
        IN_A_TREE(test_cpu_name),
        IN_A_TREE(test_rss),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
