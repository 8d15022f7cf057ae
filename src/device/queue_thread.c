/* queue_thread.c - a queue with a thread that does one item after the other: copies of RAM in parallel with computing,
 * and calls that may run late. */
#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "device/queue_progress.h"
#include "device/worker.h"

/* An item in the ring, with the arguments of its call. */
typedef struct slot {
    ps_queue_item item;
    _Alignas(max_align_t) char args[PS_CALL_ARGS_BYTES_MAX];
} slot;

/* Item number t (from 1) is in ring[t % n_items] from its issue until it is done. */
typedef struct thread_queue {
    ps_queue base;
    pthread_t thread;
    ps_queue_progress progress; /* written by the thread; items after a failed call are not done */
    pthread_cond_t has_work;    /* uses the lock of progress, which guards: */
    bool stop;
    ps_ticket issued;  /* only the user's thread writes */
    ps_ticket n_items; /* limit of items in flight */
    slot ring[];       /* [n_items] */
} thread_queue;

static void *run_thread(void *arg)
{
    thread_queue *q = arg;
    ps_queue_progress *p = &q->progress;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (q->issued == p->done && !q->stop) pthread_cond_wait(&q->has_work, &p->lock);
        if (q->issued == p->done) break;
        const ps_ticket ticket = p->done + 1;
        const ps_queue_item *item = &q->ring[ticket % q->n_items].item; /* stays while it is not done */
        const bool is_dead = p->failed_at != 0;
        pthread_mutex_unlock(&p->lock);
        const ps_status st = is_dead ? PS_OK : ps_queue_execute(&q->base, item, ticket);
        if (item->kind == PS_QUEUE_ITEM_WAIT) ps_event_unwatch(item->wait.event);
        pthread_mutex_lock(&p->lock);
        ps_queue_progress_reach(p, ticket, st);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void release(thread_queue *q)
{
    pthread_cond_destroy(&q->has_work);
    ps_queue_progress_deinit(&q->progress);
    ps_mem_free(q);
}

static void destroy(ps_queue *queue)
{
    thread_queue *q = (thread_queue *)queue;
    pthread_mutex_lock(&q->progress.lock);
    q->stop = true;
    pthread_cond_signal(&q->has_work);
    pthread_mutex_unlock(&q->progress.lock);
    pthread_join(q->thread, NULL); /* ends when the ring is empty */
    release(q);
}

static ps_status submit(ps_queue *queue, const ps_queue_item *item, ps_ticket *out)
{
    thread_queue *q = (thread_queue *)queue;
    ps_queue_progress *p = &q->progress;
    pthread_mutex_lock(&p->lock);
    if (q->issued - p->done == q->n_items) ps_block_note(PS_BLOCK_FULL);
    while (q->issued - p->done == q->n_items) pthread_cond_wait(&p->has_changed, &p->lock);
    q->issued++;
    slot *s = &q->ring[q->issued % q->n_items];
    s->item = *item;
    if (item->kind == PS_QUEUE_ITEM_CALL) {
        if (item->call.args_bytes > 0) memcpy(s->args, item->call.args, item->call.args_bytes);
        s->item.call.args = s->args;
    }
    if (item->kind == PS_QUEUE_ITEM_WAIT) ps_event_watch(item->wait.event);
    *out = q->issued;
    pthread_cond_signal(&q->has_work);
    if (item->kind == PS_QUEUE_ITEM_COPY && item->copy.is_put) ps_block_note(PS_BLOCK_FULL); /* no room for a copy */
    while (item->kind == PS_QUEUE_ITEM_COPY && (item->copy.is_put || item->copy.is_get) && p->done < *out)
        pthread_cond_wait(&p->has_changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return PS_OK;
}

static bool is_done(ps_queue *queue, ps_ticket t)
{
    const thread_queue *q = (const thread_queue *)queue;
    return t <= q->progress.done;
}

static ps_status wait_for(ps_queue *queue, ps_ticket t, bool tells)
{
    (void)tells;
    return ps_queue_progress_wait(&((thread_queue *)queue)->progress, t);
}

static const ps_queue_ops ops = {submit, wait_for, is_done, destroy, NULL};

ps_status ps_queue_thread_create(const char *name, int n_items, ps_queue **out)
{
    thread_queue *q = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *q + (size_t)n_items * sizeof q->ring[0], &q));
    q->base.ops = &ops;
    q->n_items = (ps_ticket)n_items;
    ps_queue_progress_init(&q->progress);
    pthread_cond_init(&q->has_work, NULL);
    const ps_status st = ps_worker_start(name, run_thread, q, &q->thread);
    if (st != PS_OK)
        release(q);
    else
        *out = &q->base;
    return st;
}
