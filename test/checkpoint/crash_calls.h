/* crash_calls.h - a process that dies at its n-th change of a folder. The linker takes these functions for those of the
 * C library: each counts, ends the process when its turn has come, or does what the system does. For one test program,
 * included once. */
#ifndef CRASH_CALLS_H
#define CRASH_CALLS_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    long n_left;         /* changes until the process dies; negative: never */
    bool cannot_swap;    /* as on NFS */
    bool cannot_rename;  /* renameat fails, as where the folder may be read only */
    char synced[8][256]; /* folders and files that were synced, the last 8 */
    int n_synced;
} crash = {.n_left = -1};

enum { CRASHED = 42 };

static inline void crash_count(void)
{
    if (crash.n_left == 0) _exit(CRASHED);
    if (crash.n_left > 0) crash.n_left--;
}

int rename(const char *from, const char *to)
{
    crash_count();
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int a, const char *from, int b, const char *to)
{
    crash_count();
    if (crash.cannot_rename) return errno = EACCES, -1;
    return (int)syscall(SYS_renameat2, a, from, b, to, 0);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    crash_count();
    if (crash.cannot_swap && flags != 0) return errno = EINVAL, -1;
    return (int)syscall(SYS_renameat2, a, from, b, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
    crash_count();
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int unlinkat(int folder, const char *name, int flags)
{
    crash_count();
    return (int)syscall(SYS_unlinkat, folder, name, flags);
}

int fsync(int fd)
{
    char link[64];
    crash_count();
    char *path = crash.synced[crash.n_synced++ % 8];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, 255);
    path[n > 0 ? n : 0] = '\0';
    return (int)syscall(SYS_fsync, fd);
}

static inline bool crash_has_synced(const char *path)
{
    for (int i = 0; i < 8; i++)
        if (strcmp(crash.synced[i], path) == 0) return true;
    return false;
}

/* Does `work` in a process that dies at its n-th change. False: it came to its end. */
static inline bool crash_at(long n, void (*work)(void))
{
    int status;
    const pid_t child = fork();
    if (child < 0) fail_msg("fork");
    if (child == 0) {
        crash.n_left = n;
        work();
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child) fail_msg("waitpid");
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == CRASHED));
    return WEXITSTATUS(status) == CRASHED;
}

#endif
