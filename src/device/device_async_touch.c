/* device_async_touch.c - who touches memory of the fake GPU from the host gets a fault; this says so before it takes
 * its way. A handler has no arguments, so the open devices stand in a table of the process: in debug builds only. */
#include "device/async_impl.h"

#if PS_DEBUG >= 1

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define DEVICES 64

static _Atomic(const ps_async *) devices[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int n_devices;           /* lock */
static struct sigaction before; /* lock: SIGSEGV without us */

/* The access is tried again when this returns, and then the handler before us has it, or the process ends. */
static void tell(int sig, siginfo_t *info, void *context)
{
    const char *p = info->si_addr;
    (void)context;
    for (int i = 0; i < DEVICES; i++) {
        const ps_async *a = atomic_load(&devices[i]);
        if (a == NULL || a->host != getpid() || !ps_async_memory_has(&a->device, p, 1)) continue;
        char text[128];
        const int n = snprintf(text, sizeof text, "the host touched device memory at %p: cpu_async, offset %lld\n",
                               (const void *)p, (long long)(p - a->device.base));
        if (write(STDERR_FILENO, text, (size_t)n) < 0) break;
    }
    sigaction(sig, &before, NULL);
}

void ps_async_tell_touches(ps_async *a)
{
    const struct sigaction ours = {.sa_sigaction = tell, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < DEVICES && atomic_load(&devices[i]) != NULL) i++;
    if (i < DEVICES) {
        atomic_store(&devices[i], a);
        if (n_devices++ == 0) sigaction(SIGSEGV, &ours, &before);
    }
    pthread_mutex_unlock(&lock);
}

void ps_async_forget_touches(ps_async *a)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < DEVICES; i++) {
        if (atomic_load(&devices[i]) != a) continue;
        atomic_store(&devices[i], NULL);
        if (--n_devices == 0) sigaction(SIGSEGV, &before, NULL);
    }
    pthread_mutex_unlock(&lock);
}

#else

void ps_async_tell_touches(ps_async *a)
{
    (void)a;
}

void ps_async_forget_touches(ps_async *a)
{
    (void)a;
}

#endif
