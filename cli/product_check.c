#include "product_check.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/base.h"
#include "engine/settings.h"
#include "kernel/cpu/cpu_signature.h"
#include "kernel/product_trial.h"

/* A trial takes some hundredths of a second; a library that hangs is broken too. */
#define TRIAL_LIMIT_S 60

#define KEY_MAX (PS_CPU_SIGNATURE_MAX + 64)

/* ---- what worked before: a file whose name and content are the key ------------------------------------------------------- */

/* The folder, made when it is missing, as a descriptor; -1 when it cannot be had or is not this user's own. Links are not
 * followed: somebody else may have put them there. */
static int open_cache(void)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char path[1024];
    const bool is_xdg = base != NULL && base[0] == '/';
    if (!is_xdg && (home == NULL || home[0] != '/')) return -1;
    const int n = snprintf(path, sizeof path, "%s%s", is_xdg ? base : home, is_xdg ? "" : "/.cache");
    if (n < 0 || n >= (int)sizeof path) return -1;
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return -1;
    const int parent = open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    if (parent < 0) return -1;
    int folder = -1;
    if (mkdirat(parent, "patrickstar", 0700) == 0 || errno == EEXIST)
        folder = openat(parent, "patrickstar", O_DIRECTORY | O_NOFOLLOW | O_RDONLY | O_CLOEXEC);
    close(parent);
    struct stat s;
    if (folder >= 0 && fstat(folder, &s) == 0 && s.st_uid == geteuid() && (s.st_mode & (S_IWGRP | S_IWOTH)) == 0)
        return folder;
    if (folder >= 0) close(folder);
    return -1;
}

static bool is_remembered(int folder, const char *name, const char *key)
{
    char text[KEY_MAX + 1];
    struct stat s;
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    const bool is_own = fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid();
    const ssize_t n = is_own ? read(fd, text, sizeof text) : -1;
    close(fd);
    return n == (ssize_t)strlen(key) && memcmp(text, key, (size_t)n) == 0;
}

/* All of it or nothing; a failure only means another trial next time. */
static void remember(int folder, const char *name, const char *key)
{
    char fresh[64];
    snprintf(fresh, sizeof fresh, "%.40s.%ld", name, (long)getpid());
    const int fd = openat(folder, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return;
    const bool is_written = write(fd, key, strlen(key)) == (ssize_t)strlen(key);
    const bool is_closed = close(fd) == 0;
    if (!is_written || !is_closed || renameat(folder, fresh, folder, name) != 0) unlinkat(folder, fresh, 0);
}

/* ---- the trial ------------------------------------------------------------------------------------------------------------- */

/* In the child: one thread, since threads that the parent may have are not here. */
static int try_products(ps_cpu_isa isa, int out)
{
    ps_backend *b = NULL;
    alarm(TRIAL_LIMIT_S);
    ps_status st = ps_backend_create_cpu(isa, 1, &b);
    if (st == PS_OK) st = ps_backend_try_products(b);
    if (st == PS_OK) return 0;
    const char *says = ps_last_error();
    return write(out, says, strlen(says)) >= 0 ? 1 : 2;
}

static ps_status refuse(ps_cpu_isa isa, const char *what)
{
    static const char *const lower[PS_CPU_ISA_COUNT] = {[PS_CPU_PORTABLE] = NULL,
                                                        [PS_CPU_AVX2] = "portable",
                                                        [PS_CPU_AVX512] = "avx2",
                                                        [PS_CPU_AVX512_BF16] = "avx512",
                                                        [PS_CPU_AMX] = "avx512_bf16"};
    char way[64] = "";
    if (lower[isa] != NULL) snprintf(way, sizeof way, "train.isa=%s, ", lower[isa]);
    return PS_FAIL(
        PS_EDEVICE,
        "matrix products with %s instructions do not work on this processor: %s. Try %sONEDNN_MAX_CPU_ISA=AVX2 in the "
        "environment, or train.backend=ref (slow)",
        ps_cpu_isa_name(isa), what, way);
}

/* False: there was no means to try. The status and what the child said before it ended. */
static bool run_child(ps_cpu_isa isa, int *status, char *says, size_t size)
{
    int pipe_fd[2];
    if (pipe2(pipe_fd, O_CLOEXEC) != 0) return false;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) _exit(try_products(isa, pipe_fd[1]));
    close(pipe_fd[1]);
    ssize_t n = 0;
    pid_t ended = -1;
    if (pid > 0) {
        n = read(pipe_fd[0], says, size - 1);
        while ((ended = waitpid(pid, status, 0)) < 0 && errno == EINTR) continue;
    }
    close(pipe_fd[0]);
    says[n > 0 ? n : 0] = '\0';
    return ended > 0;
}

/* *worked is false too when there was no means to try: that is no reason to refuse, and none to remember anything. */
static ps_status try_in_child(ps_cpu_isa isa, bool *worked)
{
    int status = 0;
    char says[512], what[640];
    /* who ignores the end of children is not told how they ended, and whoever started us may have set that */
    struct sigaction before, usual = {.sa_handler = SIG_DFL};
    *worked = false;
    if (sigaction(SIGCHLD, &usual, &before) != 0) return PS_OK;
    const bool is_tried = run_child(isa, &status, says, sizeof says);
    sigaction(SIGCHLD, &before, NULL);
    if (!is_tried) return PS_OK;
    *worked = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (*worked) return PS_OK;
    if (WIFSIGNALED(status))
        snprintf(what, sizeof what, "the trial ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(what, sizeof what, "%s", says);
    return refuse(isa, what);
}

static ps_status check_isa(ps_cpu_isa isa)
{
    char signature[PS_CPU_SIGNATURE_MAX], key[KEY_MAX], name[40];
    ps_cpu_signature(signature);
    snprintf(key, sizeof key, "pstar %d.%d.%d %s %s\n", PS_VERSION_MAJOR, PS_VERSION_MINOR, PS_VERSION_PATCH,
             ps_cpu_isa_name(isa), signature);
    snprintf(name, sizeof name, "products-%016" PRIx64, (uint64_t)XXH3_64bits(key, strlen(key)));
    const int cache = open_cache();
    ps_status st = PS_OK;
    if (cache < 0 || !is_remembered(cache, name, key)) {
        bool worked;
        st = try_in_child(isa, &worked);
        if (worked && cache >= 0) remember(cache, name, key);
    }
    if (cache >= 0) close(cache);
    return st;
}

ps_status product_check(const ps_options *o)
{
    const ps_cpu_isa isa = ps_settings_isa(o);
    if (o->train_backend == PS_CONFIG_BACKEND_REF || isa > ps_cpu_isa_detect())
        return PS_OK; /* the engine says why not */
    return check_isa(isa);
}

ps_status product_check_best(void)
{
    return check_isa(ps_cpu_isa_detect());
}
