/* device_async.c - the fake GPU's life: what is mapped before the helper is forked, and who learns of its death. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/machine.h"
#include "base/mem.h"
#include "device/async_impl.h"
#include "device/worker.h"

#define DEVICE_BYTES (64 * PS_GIB)
#define PINNED_BYTES (16 * PS_GIB)
#define DEVICE_PAGE_BYTES (2 * PS_MIB)

static atomic_bool is_permitted = PS_DEBUG >= 1;

bool ps_async_is_permitted(void)
{
    return atomic_load(&is_permitted);
}

void ps_async_permit(void)
{
    atomic_store(&is_permitted, true);
}

/* ---- waiting for the other process ---- */

void ps_async_wake(_Atomic uint32_t *futex)
{
    atomic_fetch_add(futex, 1);
    syscall(SYS_futex, futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void ps_async_sleep(_Atomic uint32_t *futex, uint32_t seen, int64_t deadline_ns)
{
    struct timespec left = {0};
    if (deadline_ns != INT64_MAX) {
        const int64_t ns = deadline_ns - ps_clock_ns();
        if (ns <= 0) return;
        left = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    }
    syscall(SYS_futex, futex, FUTEX_WAIT, seen, deadline_ns != INT64_MAX ? &left : NULL, NULL, 0);
}

ps_status ps_async_check(const ps_async *a)
{
    return atomic_load(&a->shared->is_lost) ? PS_FAIL(PS_EDEVICE, "%s", a->how_lost) : PS_OK;
}

ps_status ps_async_admit(const ps_async *a)
{
    PS_TRY(ps_async_check(a));
    return ps_fault_hit(PS_FAULT_DEVICE) ? PS_FAIL(PS_EDEVICE, "cpu_async: the call failed") : PS_OK;
}

/* ---- the helper ---- */

static void describe_loss(ps_async *a, const siginfo_t *end)
{
    const char *busy_with = atomic_load(&a->shared->busy_with);
    char how[48], what[96] = "it had nothing to do";
    if (end->si_code == CLD_EXITED)
        snprintf(how, sizeof how, "ended with status %d", end->si_status);
    else
        snprintf(how, sizeof how, "was ended by signal %d", end->si_status);
    if (busy_with != NULL) {
        ps_async_line *l = &a->shared->lines[atomic_load(&a->shared->busy_line)];
        (void)atomic_load(&l->put); /* its name was written before: who checks threads sees nothing of the helper */
        snprintf(what, sizeof what, "it was at \"%.24s\" of queue %.31s", busy_with, l->name);
    }
    snprintf(a->how_lost, sizeof a->how_lost, "cpu_async: the device is lost: its process %s; %s", how, what);
}

/* Forks, and stays: the helper is to die with this process, but the system looks at the thread that forked only. */
static void *watch(void *arg)
{
    ps_async *a = arg;
    const pid_t helper = fork();
    if (helper == 0) ps_async_help(a);
    siginfo_t end = {0};
    if (helper < 0)
        snprintf(a->how_lost, sizeof a->how_lost, "cpu_async: cannot start a process: %s", strerror(errno));
    else {
        int rc;
        do rc = waitid(P_PID, (id_t)helper, &end, WEXITED);
        while (rc != 0 && errno == EINTR);
        describe_loss(a, &end);
    }
    atomic_store(&a->shared->is_lost, true);
    ps_async_wake(&a->shared->progress);
    return NULL;
}

static ps_status start_helper(ps_async *a)
{
    PS_TRY(ps_worker_start("cpu_async", watch, a, &a->watcher));
    a->is_watched = true;
    for (;;) {
        const uint32_t seen = atomic_load(&a->shared->progress);
        if (atomic_load(&a->shared->is_ready)) return PS_OK;
        if (atomic_load(&a->shared->is_lost)) return PS_FAIL(PS_ENOMEM_HOST, "%s", a->how_lost);
        ps_async_sleep(&a->shared->progress, seen, INT64_MAX);
    }
}

static void stop_helper(ps_async *a)
{
    if (!a->is_watched) return;
    atomic_store(&a->shared->stops, true);
    ps_async_wake(&a->shared->wake);
    pthread_join(a->watcher, NULL);
}

/* ---- open, close ---- */

static ps_status map_shared(ps_async_shared **out)
{
    const int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    void *p = mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (p == MAP_FAILED)
        return PS_FAIL(PS_ENOMEM_HOST, "cpu_async: cannot map %zu bytes: %s", sizeof **out, strerror(errno));
    *out = p;
    return PS_OK;
}

/* What this process forks later has no use for them, and would keep their memory. */
static void keep_from_children(ps_async *a)
{
    madvise(a->shared, sizeof *a->shared, MADV_DONTFORK);
    madvise(a->device.base, (size_t)a->device.bytes, MADV_DONTFORK);
    madvise(a->pinned.base, (size_t)a->pinned.bytes, MADV_DONTFORK);
}

void ps_async_close(ps_async *a)
{
    if (a == NULL) return;
    ps_queue_destroy(a->device.releases);
    ps_queue_destroy(a->pinned.releases);
    ps_async_forget_touches(a);
    stop_helper(a);
    ps_async_memory_deinit(&a->pinned);
    ps_async_memory_deinit(&a->device);
    if (a->shared != NULL) munmap(a->shared, sizeof *a->shared);
    pthread_mutex_destroy(&a->lock);
    ps_mem_free(a);
}

ps_space ps_async_plan_space(const ps_async_options *o)
{
    return (ps_space){.device = &ps_device_async_ops,
                      .host = &ps_device_pinned_ops,
                      .page_bytes = o->page_bytes > 0 ? o->page_bytes : DEVICE_PAGE_BYTES};
}

ps_status ps_async_open(const ps_async_options *o, ps_async **out)
{
    *out = NULL;
    ps_async *a = NULL;
    ps_status st;
    PS_TRY(ps_mem_alloc(1, sizeof *a, &a));
    a->options = *o;
    a->space = ps_async_plan_space(o);
    a->space.driver = a;
    a->options.page_bytes = a->space.page_bytes;
    if (a->options.device_bytes == 0) a->options.device_bytes = DEVICE_BYTES;
    if (a->options.pinned_bytes == 0) a->options.pinned_bytes = PINNED_BYTES;
    a->host = getpid();
    a->device.file = a->pinned.file = -1;
    pthread_mutex_init(&a->lock, NULL);
    PS_TRY_GOTO(map_shared(&a->shared));
    PS_TRY_GOTO(ps_async_memory_init(&a->device, a->options.device_bytes, a->options.page_bytes, false));
    PS_TRY_GOTO(ps_async_memory_init(&a->pinned, a->options.pinned_bytes, PS_PAGE_BYTES, true));
    PS_TRY_GOTO(start_helper(a));
    keep_from_children(a);
    ps_async_tell_touches(a);
    PS_TRY_GOTO(ps_async_queue_create(a, "releases", &a->device.releases));
    PS_TRY_GOTO(ps_async_queue_create(a, "pinned releases", &a->pinned.releases));
    *out = a;
    return PS_OK;
out:
    ps_async_close(a);
    return st;
}

ps_status ps_async_open_foreign(ps_async *a, const char *name, bool computes, ps_queue **out)
{
    PS_TRY(ps_async_queue_create(a, name, out));
    if (computes) a->space.foreign = *out;
    return PS_OK;
}

const ps_space *ps_async_space(const ps_async *a)
{
    return &a->space;
}

pid_t ps_async_process(const ps_async *a)
{
    return atomic_load(&a->shared->helper);
}

bool ps_async_is_device_memory(const ps_async *a, const void *p, int64_t bytes)
{
    return ps_async_memory_has(&a->device, p, bytes);
}
