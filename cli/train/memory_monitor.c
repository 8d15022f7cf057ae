#include "memory_monitor.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "client.h"

#define PERIOD_NS 10000000L

struct memory_monitor {
    pthread_t thread;
    atomic_bool stop;
    atomic_llong peak_bytes;
};

static void sample(memory_monitor *m)
{
    int64_t resident_bytes;
    if (client_rss(&resident_bytes, NULL) != PS_OK) return;
    long long peak = atomic_load(&m->peak_bytes);
    while (resident_bytes > peak && !atomic_compare_exchange_weak(&m->peak_bytes, &peak, resident_bytes)) {
    }
}

static void *run(void *user)
{
    memory_monitor *m = user;
    while (!atomic_load(&m->stop)) {
        sample(m);
        nanosleep(&(struct timespec){.tv_nsec = PERIOD_NS}, NULL);
    }
    return NULL;
}

ps_status memory_monitor_start(memory_monitor **out)
{
    memory_monitor *m = NULL;
    *out = NULL;
    TRY(client_alloc(1, sizeof *m, &m));
    if (pthread_create(&m->thread, NULL, run, m) != 0) {
        free(m);
        return client_fail(PS_ENOMEM_HOST, "cannot start the memory monitor's thread");
    }
    *out = m;
    return PS_OK;
}

void memory_monitor_stop(memory_monitor *m)
{
    if (m == NULL) return;
    atomic_store(&m->stop, true);
    pthread_join(m->thread, NULL);
    free(m);
}

int64_t memory_monitor_take_peak(memory_monitor *m)
{
    sample(m); /* a step may be shorter than the period */
    return atomic_exchange(&m->peak_bytes, 0);
}
