/* queue_thread.c - a queue with a thread of its own, which does one item after the other: copies of RAM beside
 * computing, and calls that may run late. */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "device/queue_impl.h"
#include "device/worker.h"

#define RING_LEN 256 /* items issued before the user has to wait */

/* An item in the ring, with the arguments of its call. */
typedef struct slot {
    ps_item item;
    _Alignas(max_align_t) char args[PS_CALL_ARGS_BYTES_MAX];
} slot;

/* Item number t (from 1) is in ring[t % RING_LEN] from its issue until it is done. */
typedef struct thread_queue {
    ps_queue base;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t has_work, has_progress;
    bool stop;              /* lock */
    ps_ticket issued;       /* lock to write; only the user's thread writes */
    _Atomic ps_ticket done; /* lock to write; only the thread writes */
    ps_ticket failed_at;    /* lock: the call that failed; nothing behind it is done. 0: none */
    ps_status failure;
    char why[512];
    slot ring[RING_LEN];
} thread_queue;

static ps_status carry_out(thread_queue *q, const ps_item *item, ps_ticket ticket)
{
    const int64_t begin_ns = ps_profile_now(q->base.profile);
    switch (item->kind) {
    case PS_ITEM_COPY:
        if (item->copy.bytes > 0) memcpy(item->copy.dst, item->copy.src, (size_t)item->copy.bytes);
        ps_queue_record_copy(&q->base, ticket, begin_ns);
        return PS_OK;
    case PS_ITEM_FILL:
        if (item->fill.bytes > 0) memset(item->fill.dst, item->fill.byte, (size_t)item->fill.bytes);
        return PS_OK;
    case PS_ITEM_CALL: return item->call.run(item->call.self, item->call.args);
    case PS_ITEM_WAIT: return item->wait.queue->ops->wait(item->wait.queue, item->wait.ticket);
    }
    return PS_OK;
}

static void *run_thread(void *arg)
{
    thread_queue *q = arg;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (q->issued == q->done && !q->stop) pthread_cond_wait(&q->has_work, &q->lock);
        if (q->issued == q->done) break;
        const ps_ticket ticket = q->done + 1;
        const ps_item *item = &q->ring[ticket % RING_LEN].item; /* stays while it is not done */
        const bool is_dead = q->failed_at != 0;
        pthread_mutex_unlock(&q->lock);
        const ps_status st = is_dead ? PS_OK : carry_out(q, item, ticket);
        pthread_mutex_lock(&q->lock);
        if (st != PS_OK) {
            q->failed_at = ticket;
            q->failure = st;
            strncpy(q->why, ps_last_error(), sizeof q->why - 1);
        }
        q->done++;
        pthread_cond_broadcast(&q->has_progress);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static void release(thread_queue *q)
{
    pthread_cond_destroy(&q->has_progress);
    pthread_cond_destroy(&q->has_work);
    pthread_mutex_destroy(&q->lock);
    ps_mem_free(q);
}

static void destroy(ps_queue *queue)
{
    thread_queue *q = (thread_queue *)queue;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_signal(&q->has_work);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL); /* ends when the ring is empty */
    release(q);
}

static ps_status submit(ps_queue *queue, const ps_item *item, ps_ticket *out)
{
    thread_queue *q = (thread_queue *)queue;
    pthread_mutex_lock(&q->lock);
    while (q->issued - q->done == RING_LEN) pthread_cond_wait(&q->has_progress, &q->lock);
    q->issued++;
    slot *s = &q->ring[q->issued % RING_LEN];
    s->item = *item;
    if (item->kind == PS_ITEM_CALL) {
        memcpy(s->args, item->call.args, item->call.args_bytes);
        s->item.call.args = s->args;
    }
    *out = q->issued;
    pthread_cond_signal(&q->has_work);
    while (item->kind == PS_ITEM_COPY && (item->copy.is_put || item->copy.is_get) && q->done < *out)
        pthread_cond_wait(&q->has_progress, &q->lock);
    pthread_mutex_unlock(&q->lock);
    return PS_OK;
}

static bool is_done(ps_queue *queue, ps_ticket t)
{
    const thread_queue *q = (const thread_queue *)queue;
    return t <= q->done;
}

static ps_status wait_for(ps_queue *queue, ps_ticket t)
{
    thread_queue *q = (thread_queue *)queue;
    ps_status st = PS_OK;
    pthread_mutex_lock(&q->lock);
    while (q->done < t) pthread_cond_wait(&q->has_progress, &q->lock);
    if (q->failed_at != 0 && q->failed_at <= t) st = PS_FAIL(q->failure, "%s", q->why);
    pthread_mutex_unlock(&q->lock);
    return st;
}

static const ps_queue_ops ops = {submit, wait_for, is_done, destroy};

ps_status ps_queue_thread_create(const char *name, ps_queue **out)
{
    thread_queue *q = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *q, &q));
    q->base.ops = &ops;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->has_work, NULL);
    pthread_cond_init(&q->has_progress, NULL);
    const ps_status st = ps_worker_start(name, run_thread, q, &q->thread);
    if (st != PS_OK)
        release(q);
    else
        *out = &q->base;
    return st;
}
