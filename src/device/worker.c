#include "device/worker.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

ps_status ps_worker_start(const char *name, void *(*main)(void *), void *arg, pthread_t *out)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* inherited by the new thread */
    const int rc = pthread_create(out, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) return PS_FAIL(PS_ENOMEM_HOST, "cannot start thread %s: %s", name, strerror(rc));
    char cut[16]; /* the system's limit, with the terminator */
    snprintf(cut, sizeof cut, "%.15s", name);
    pthread_setname_np(*out, cut);
    return PS_OK;
}

int64_t ps_worker_processor_ns(pthread_t t)
{
    clockid_t clock;
    struct timespec taken;
    if (pthread_getcpuclockid(t, &clock) != 0 || clock_gettime(clock, &taken) != 0) return 0;
    return (int64_t)taken.tv_sec * 1000000000 + taken.tv_nsec;
}
