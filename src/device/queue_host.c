/* queue_host.c - a queue whose items are host code: it says how far it has come, others wait. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "device/queue_impl.h"

typedef struct host_queue {
    ps_queue base;
    pthread_mutex_t lock;
    pthread_cond_t has_progress;
    _Atomic ps_ticket done; /* lock to write */
    ps_ticket failed_at;    /* lock: the first that failed; 0: none */
    ps_status failure;
    char why[512];
} host_queue;

static ps_status submit(ps_queue *q, const ps_item *item, ps_ticket *out)
{
    (void)item, (void)out;
    return PS_FAIL(PS_EINVAL, "%s: a host queue takes no items", q->name);
}

static bool is_done(ps_queue *q, ps_ticket t)
{
    return t <= ((const host_queue *)q)->done;
}

static ps_status wait_for(ps_queue *queue, ps_ticket t)
{
    host_queue *q = (host_queue *)queue;
    ps_status st = PS_OK;
    pthread_mutex_lock(&q->lock);
    while (q->done < t) pthread_cond_wait(&q->has_progress, &q->lock);
    if (q->failed_at != 0 && q->failed_at <= t) st = PS_FAIL(q->failure, "%s", q->why);
    pthread_mutex_unlock(&q->lock);
    return st;
}

static void destroy(ps_queue *queue)
{
    host_queue *q = (host_queue *)queue;
    pthread_mutex_lock(&q->lock);
    while (q->done < q->base.issued) pthread_cond_wait(&q->has_progress, &q->lock);
    pthread_mutex_unlock(&q->lock);
    pthread_cond_destroy(&q->has_progress);
    pthread_mutex_destroy(&q->lock);
    ps_mem_free(q);
}

static const ps_queue_ops ops = {submit, wait_for, is_done, destroy};

ps_status ps_host_queue_create(const char *name, ps_queue **out)
{
    *out = NULL;
    host_queue *q = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *q, &q));
    q->base.ops = &ops;
    snprintf(q->base.name, sizeof q->base.name, "%s", name);
    q->base.failed_first = 1;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->has_progress, NULL);
    *out = &q->base;
    return PS_OK;
}

ps_event ps_host_queue_begin(ps_queue *q)
{
    q->issued++;
    return ps_queue_event(q);
}

void ps_host_queue_end(ps_queue *queue, ps_ticket t, ps_status st)
{
    host_queue *q = (host_queue *)queue;
    pthread_mutex_lock(&q->lock);
    if (st != PS_OK && q->failed_at == 0) {
        q->failed_at = t;
        q->failure = st;
        strncpy(q->why, ps_last_error(), sizeof q->why - 1);
    }
    if (t > q->done) q->done = t;
    pthread_cond_broadcast(&q->has_progress);
    pthread_mutex_unlock(&q->lock);
}
