#include "device/disk_gate.h"

#include "base/mem.h"
#include "device/queue_impl.h"
#include "device/worker.h"

struct ps_disk_gated {
    ps_disk_gated *next;
    ps_disk_transfer *transfer;
    ps_events after;
};

static bool are_done(const ps_events *all)
{
    for (int i = 0; i < all->n; i++)
        if (!ps_event_is_done(all->event[i])) return false;
    return true;
}

/* When a queue has failed the content for the transfer was not computed. The failure of an earlier transfer is reported
 * by waits for that one. */
static ps_status outlast(const ps_disk_gate *g, const ps_events *all)
{
    ps_status first = PS_OK;
    for (int i = 0; i < all->n && first == PS_OK; i++) {
        const ps_event e = all->event[i];
        const ps_status st = ps_queue_await(e.queue, e.ticket, false);
        if (e.queue != (const ps_queue *)g->disk) first = st;
    }
    return first;
}

static void *let_go(void *arg)
{
    ps_disk_gate *g = arg;
    pthread_mutex_lock(&g->lock);
    for (;;) {
        while (g->first == NULL && !g->stops) pthread_cond_wait(&g->has_work, &g->lock);
        if (g->first == NULL) break;
        ps_disk_gated *one = g->first;
        g->first = one->next;
        if (g->first == NULL) g->last = NULL;
        pthread_mutex_unlock(&g->lock);
        const ps_status st = outlast(g, &one->after);
        for (int i = 0; i < one->after.n; i++) ps_event_unwatch(one->after.event[i]);
        ps_disk_admit(g->disk, one->transfer, st);
        ps_mem_free(one);
        pthread_mutex_lock(&g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

void ps_disk_gate_init(ps_disk_gate *g, ps_disk *d)
{
    g->disk = d;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->has_work, NULL);
}

ps_status ps_disk_gate_pass(ps_disk_gate *g, ps_disk_transfer *t, const ps_events *after)
{
    static const ps_events none;
    if (after == NULL) after = &none;
    if (are_done(after)) {
        ps_disk_admit(g->disk, t, outlast(g, after));
        return PS_OK;
    }
    ps_disk_gated *one = NULL;
    if (!g->is_open) PS_TRY(ps_worker_start("ps-disk-gate", let_go, g, &g->thread));
    g->is_open = true;
    PS_TRY(ps_mem_alloc(1, sizeof *one, &one));
    *one = (ps_disk_gated){.transfer = t, .after = *after};
    for (int i = 0; i < after->n; i++) ps_event_watch(after->event[i]);
    pthread_mutex_lock(&g->lock);
    *(g->last != NULL ? &g->last->next : &g->first) = one;
    g->last = one;
    pthread_cond_signal(&g->has_work);
    pthread_mutex_unlock(&g->lock);
    return PS_OK;
}

void ps_disk_gate_drain(ps_disk_gate *g)
{
    if (!g->is_open) return;
    pthread_mutex_lock(&g->lock);
    g->stops = true;
    pthread_cond_signal(&g->has_work);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
    g->is_open = false;
}

void ps_disk_gate_deinit(ps_disk_gate *g)
{
    pthread_cond_destroy(&g->has_work);
    pthread_mutex_destroy(&g->lock);
}
