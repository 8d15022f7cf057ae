#include "memory_monitor.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/machine.h"
#include "base/mem.h"

#define PERIOD_NS 10000000L

struct memory_monitor {
    pthread_t thread;
    atomic_bool stop;
    atomic_llong peak_bytes;
};

static void sample(memory_monitor *m)
{
    ps_machine_rss_info rss;
    if (ps_machine_rss(NULL, &rss) != PS_OK) return;
    long long peak = atomic_load(&m->peak_bytes);
    while (rss.resident_bytes > peak && !atomic_compare_exchange_weak(&m->peak_bytes, &peak, rss.resident_bytes)) {
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
    PS_TRY(ps_mem_alloc(1, sizeof *m, &m));
    if (pthread_create(&m->thread, NULL, run, m) != 0) {
        ps_mem_free(m);
        return PS_FAIL(PS_ENOMEM_HOST, "cannot start the memory monitor's thread");
    }
    *out = m;
    return PS_OK;
}

void memory_monitor_stop(memory_monitor *m)
{
    if (m == NULL) return;
    atomic_store(&m->stop, true);
    pthread_join(m->thread, NULL);
    ps_mem_free(m);
}

int64_t memory_monitor_take_peak(memory_monitor *m)
{
    sample(m); /* a step may be shorter than the period */
    return atomic_exchange(&m->peak_bytes, 0);
}
