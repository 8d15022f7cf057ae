#include "measuring.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/machine.h"

enum {
    SAID_BYTES = 1 << 15, /* a description has some 2 KB */
    LIMIT_S = 10,         /* it takes two on an idle machine */
    LIMIT_GPU_S = 30,     /* as the driver starts slowly */
};

typedef struct child {
    pid_t pid;
    int out, err; /* its output; -1: closed */
    int limit_s;
    int64_t deadline_ns;
    bool is_late; /* killed because of the time limit */
} child;

/* Both ends; closed in the child except the duplicate. */
static ps_status make_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) == 0) return PS_OK;
    ends[0] = ends[1] = -1;
    return PS_FAIL(PS_EIO, "no pipe to the process that measures: %s", strerror(errno));
}

static void close_end(int fd)
{
    if (fd >= 0) close(fd);
}

/* This program's file. */
static int spawn(char *const *argv, int out, int err, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed != 0) return failed;
    failed = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (failed == 0) failed = posix_spawn_file_actions_adddup2(&actions, out, 1);
    if (failed == 0) failed = posix_spawn_file_actions_adddup2(&actions, err, 2);
    if (failed == 0) failed = posix_spawn(pid, "/proc/self/exe", &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed;
}

static ps_status start(const machine_use *use, child *c)
{
    char threads[16], format[16], isa[32], disk[MACHINE_PATH_BYTES];
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    *c = (child){.out = -1, .err = -1};
    snprintf(threads, sizeof threads, "%d", use->n_threads);
    snprintf(format, sizeof format, "%s", ps_dtype_name(use->format));
    snprintf(isa, sizeof isa, "%s", ps_cpu_isa_name(use->isa));
    snprintf(disk, sizeof disk, "%s", use->disk_folder != NULL ? use->disk_folder : "");
    /* posix_spawn does not modify them, but its type lacks const */
    const char *const words[] = {
        "pstar",    "info",        "--quick",   "--measure", "-",
        "--format", format,        "--threads", threads,     "--isa",
        isa,        "--disk-path", disk,        "--backend", use->gpu[0] != '\0' ? "cuda" : "cpu",
        NULL};
    char *argv[PS_ARRAY_LEN(words)];
    memcpy(argv, words, sizeof argv);
    ps_status st = make_pipe(out);
    if (st == PS_OK) st = make_pipe(err);
    if (st == PS_OK) {
        const int failed = spawn(argv, out[1], err[1], &c->pid);
        if (failed != 0) st = PS_FAIL(PS_EIO, "the process that measures cannot be started: %s", strerror(failed));
    }
    close_end(out[1]);
    close_end(err[1]);
    if (st == PS_OK) {
        c->out = out[0], c->err = err[0];
        c->limit_s = use->gpu[0] != '\0' ? LIMIT_GPU_S : LIMIT_S;
        c->deadline_ns = ps_clock_ns() + (int64_t)c->limit_s * 1000000000;
        return PS_OK;
    }
    close_end(out[0]);
    close_end(err[0]);
    return st;
}

/* Wait until it has more output or has ended, at most until the deadline. */
static void await(child *c, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n = 0;
    while (!c->is_late && n == 0) {
        const int64_t left_ns = c->deadline_ns - ps_clock_ns();
        n = left_ns > 0 ? poll(&p, 1, (int)(left_ns / 1000000 + 1)) : 0;
        if (n < 0 && errno == EINTR) n = 0;
        if (n == 0 && left_ns <= 0) {
            kill(c->pid, SIGKILL);
            c->is_late = true;
        }
    }
}

/* Read to the end, as much as fits. */
static void hear(child *c, int fd, char text[SAID_BYTES])
{
    size_t n = 0;
    for (;;) {
        char more[4096];
        await(c, fd);
        const ssize_t got = read(fd, more, sizeof more);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        const size_t fits = (size_t)ps_min_i64(got, (int64_t)(SAID_BYTES - 1 - n));
        memcpy(text + n, more, fits);
        n += fits;
    }
    text[n] = '\0';
}

static int end_of(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return status;
}

/* Its stderr is short, so reading one pipe after the other cannot block it. */
static ps_status listen_to(child *c, char said[SAID_BYTES], ps_hardware *out, bool *was_busy)
{
    hear(c, c->out, said);
    const bool has_ended = said[0] != '\0';
    ps_status st = has_ended ? ps_hardware_parse(said, "the process that measures", out) : PS_OK;
    char why[512];
    if (st != PS_OK) snprintf(why, sizeof why, "%s", ps_last_error());
    hear(c, c->err, said);
    const int status = end_of(c->pid);
    if (c->is_late) return PS_FAIL(PS_EIO, "the process that measures took more than %d s, and was ended", c->limit_s);
    if (st != PS_OK) return PS_FAIL(st, "%s", why);
    *was_busy = said[0] != '\0';
    if (has_ended && WIFEXITED(status) && WEXITSTATUS(status) == 0) return PS_OK;
    said[strcspn(said, "\n")] = '\0';
    if (WIFSIGNALED(status))
        return PS_FAIL(PS_EIO, "the process that measures was ended by signal %d", WTERMSIG(status));
    return PS_FAIL(PS_EIO, "%.400s", said[0] != '\0' ? said : "the process that measures says nothing");
}

ps_status measuring_run(const machine_use *use, ps_hardware *out, bool *was_busy)
{
    child c;
    PS_TRY(start(use, &c));
    char *said = malloc(SAID_BYTES);
    ps_status st = PS_OK;
    if (said != NULL) {
        st = listen_to(&c, said, out, was_busy);
    } else {
        (void)end_of(c.pid);
        st = PS_FAIL(PS_ENOMEM_HOST, "no memory for the description of this machine");
    }
    free(said);
    close_end(c.out);
    close_end(c.err);
    return st;
}
