/* queue_host.c - a queue whose items are host code, which reports its progress. */
#include <stdio.h>

#include "base/mem.h"
#include "device/queue_progress.h"
#include "device/sim_time_impl.h"

typedef struct host_queue {
    ps_queue base;
    ps_queue_progress progress;
    void (*watch)(void *user); /* NULL: none */
    void *user;
    void (*describe)(void *user, ps_ticket t, char *text, size_t bytes); /* NULL: none */
    void *described;
} host_queue;

static ps_status submit(ps_queue *q, const ps_queue_item *item, ps_ticket *out)
{
    (void)item, (void)out;
    return PS_FAIL(PS_EINVAL, "%s: a host queue takes no items", q->name);
}

static bool is_done(ps_queue *q, ps_ticket t)
{
    return t <= ((const host_queue *)q)->progress.done;
}

static ps_status wait_for(ps_queue *queue, ps_ticket t, bool tells)
{
    static const int64_t slice_ns = 1000000000;
    (void)tells;
    host_queue *q = (host_queue *)queue;
    while (q->watch != NULL && !ps_queue_progress_reaches(&q->progress, t, slice_ns)) q->watch(q->user);
    return ps_queue_progress_wait(&q->progress, t);
}

static void destroy(ps_queue *queue)
{
    host_queue *q = (host_queue *)queue;
    pthread_mutex_lock(&q->progress.lock);
    while (q->progress.done < q->base.issued) pthread_cond_wait(&q->progress.has_changed, &q->progress.lock);
    pthread_mutex_unlock(&q->progress.lock);
    ps_queue_progress_deinit(&q->progress);
    ps_sim_clock_destroy(queue->observed.clock);
    ps_mem_free(q);
}

static void describe(ps_queue *queue, ps_ticket t, char *text, size_t bytes)
{
    const host_queue *q = (const host_queue *)queue;
    if (q->describe != NULL) q->describe(q->described, t, text, bytes);
}

static const ps_queue_ops ops = {submit, wait_for, is_done, destroy, describe};

ps_status ps_host_queue_create(const char *name, ps_queue **out)
{
    *out = NULL;
    host_queue *q = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *q, &q));
    q->base.ops = &ops;
    snprintf(q->base.name, sizeof q->base.name, "%s", name);
    ps_queue_progress_init(&q->progress);
    *out = &q->base;
    return PS_OK;
}

ps_event ps_host_queue_begin(ps_queue *q)
{
    q->issued++;
    return ps_queue_event(q);
}

void ps_host_queue_set_watch(ps_queue *queue, void (*watch)(void *user), void *user)
{
    host_queue *q = (host_queue *)queue;
    q->watch = watch;
    q->user = user;
}

void ps_host_queue_set_ranks(ps_queue *queue, void (*describe_item)(void *user, ps_ticket t, char *text, size_t bytes),
                             void *user)
{
    host_queue *q = (host_queue *)queue;
    q->base.is_of_ranks = true;
    q->describe = describe_item;
    q->described = user;
}

void ps_host_queue_end(ps_queue *queue, ps_ticket t, ps_status st)
{
    host_queue *q = (host_queue *)queue;
    pthread_mutex_lock(&q->progress.lock);
    ps_queue_progress_reach(&q->progress, t, st);
    pthread_mutex_unlock(&q->progress.lock);
}
