/* test_disk_uring.c - io_uring where parts of it are refused, as containers do: the disk works with what is left. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "device/disk.h"

enum { SKIPPED = 77, BYTES = 1 << 20 };

/* From now on this process's io_uring_register says EPERM to that. */
static void refuse(unsigned what)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_register, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, what, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = PS_ARRAY_LEN(code), .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(SKIPPED);
}

static bool writes_and_reads(ps_disk *d)
{
    char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ps_event e;
    if (p == MAP_FAILED) return false;
    memset(p, 7, BYTES);
    bool ok = ps_disk_write(d, 0, p, BYTES, NULL, &e) == PS_OK && ps_event_wait(e) == PS_OK;
    memset(p, 0, BYTES);
    ok = ok && ps_disk_read(d, 0, p, BYTES, NULL, &e) == PS_OK && ps_event_wait(e) == PS_OK;
    ok = ok && p[0] == 7 && memcmp(p, p + 1, BYTES - 1) == 0;
    munmap(p, BYTES);
    return ok;
}

/* In a process of its own, which a transfer that never ends does not outlive. */
static void check_refused(unsigned what, const char *lacks)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ps_disk *d = NULL;
        alarm(20);
        refuse(what);
        const ps_status st = ps_disk_open("/tmp", PS_DISK_URING, 4, &d);
        if (st == PS_ENOSYS) _exit(SKIPPED);
        const bool ok = st == PS_OK && strstr(ps_disk_get_stats(d).ways, lacks) == NULL && writes_and_reads(d);
        ps_disk_close(d);
        _exit(ok && ps_mem_live_bytes() == 0 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == SKIPPED) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_a_ring_that_cannot_be_enabled(void **state)
{
    (void)state;
    check_refused(IORING_REGISTER_ENABLE_RINGS, "one issuer");
}

static void test_files_that_cannot_be_registered(void **state)
{
    (void)state;
    check_refused(IORING_REGISTER_FILES, "registered files");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_ring_that_cannot_be_enabled),
        cmocka_unit_test(test_files_that_cannot_be_registered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
