/* gpu_fence.c - stream waits for events of host code, and propagation of their failures.
 *
 *     stream     ...  wait for 7  ........|=== continues ===
 *     fence      event of the disk ... ended: write 7
 *
 * No such wait can be for ever because of what comes after it. An event exists when its host code has begun, and the
 * thread that ends it never waits for a thread that may be issuing to this stream:
 *
 *   the disk                  its threads; a thread of the gate waits for events, of items that were issued before
 *   messages between ranks    the worker; it issues, to streams of its own, few pieces at a time
 *   updates on the host       the thread of the host tier's queue
 *   collectives of NCCL       the watcher; it fails them when a rank is lost
 *
 * A thread that issues may wait for room on its own stream (gpu_queue.c), in no lock that these take, and never within the
 * driver, which would lock out the worker.
 *
 * Until such a wait ends it is a *pending wait*: it may still fail. It has dependents, the items that come after it:
 * the waiting item, and items of other queues that wait for one that comes after it. When it fails, they fail. */
#include <stdio.h>

#include "base/mem.h"
#include "device/cuda/gpu_impl.h"
#include "device/worker.h"

typedef struct dependents {
    ps_gpu_queue *queue; /* NULL: destroyed */
    ps_ticket ticket;
} dependents;

struct ps_gpu_pending_wait {
    ps_event event; /* of no queue: its holder ends it */
    bool ignores_failure;
    uint32_t number;
    ps_gpu_pending_wait *next, *next_of_queue;
    int n_dependents;
    dependents *dependents;
};

struct ps_gpu_fence {
    int word; /* of gpu->words */
    pthread_t thread;
    bool is_started;
    pthread_mutex_t lock;
    pthread_cond_t has_work;
    bool stops;                        /* lock */
    uint32_t n;                        /* lock: the last number waited for */
    ps_gpu_pending_wait *first, *last; /* lock: of this queue, in order */
};

/* ---- failures ---- */

static void fail_locked(ps_gpu_queue *q, ps_ticket t, ps_status st, const char *why)
{
    if (atomic_load(&q->failed_at) != 0) return;
    q->failure = st;
    snprintf(q->why, sizeof q->why, "%s", why);
    atomic_store(&q->failed_at, t);
}

void ps_gpu_queue_fail(ps_gpu_queue *q, ps_ticket t, ps_status st)
{
    pthread_mutex_lock(&q->gpu->lock);
    fail_locked(q, t, st, ps_last_error());
    pthread_mutex_unlock(&q->gpu->lock);
}

/* The gpu's lock is held. */
static ps_status add_dependent(ps_gpu_pending_wait *h, ps_gpu_queue *q, ps_ticket t)
{
    for (int i = 0; i < h->n_dependents; i++)
        if (h->dependents[i].queue == q) return PS_OK; /* an earlier item of it */
    PS_TRY(ps_mem_reserve(&h->dependents, (size_t)h->n_dependents + 1, sizeof h->dependents[0]));
    h->dependents[h->n_dependents++] = (dependents){q, t};
    return PS_OK;
}

void ps_gpu_pending_waits_inherit(ps_gpu_queue *q, ps_ticket t, const ps_gpu_queue *other, ps_ticket until)
{
    pthread_mutex_lock(&q->gpu->lock);
    const ps_ticket failed_at = atomic_load(&other->failed_at);
    if (failed_at != 0 && failed_at <= until) fail_locked(q, t, other->failure, other->why);
    for (ps_gpu_pending_wait *h = q->gpu->pending_waits; h != NULL; h = h->next)
        for (int i = 0; i < h->n_dependents; i++) {
            if (h->dependents[i].queue != other || h->dependents[i].ticket > until) continue;
            const ps_status st = add_dependent(h, q, t);
            if (st != PS_OK) fail_locked(q, t, st, ps_last_error()); /* better now than never */
            break;
        }
    pthread_mutex_unlock(&q->gpu->lock);
}

/* The wait is over, failed or not. Called before the stream continues, so a thread that sees the stream's progress sees
 * the failure. Items that are done by then did not depend on it. */
static void end_wait(ps_gpu *g, ps_gpu_pending_wait *wait, ps_status st)
{
    pthread_mutex_lock(&g->lock);
    for (int i = 0; st != PS_OK && i < wait->n_dependents; i++) {
        ps_gpu_queue *q = wait->dependents[i].queue;
        if (q == NULL) continue;
        const ps_ticket next = atomic_load(&q->done) + 1, first = wait->dependents[i].ticket;
        fail_locked(q, next > first ? next : first, st, ps_last_error());
    }
    ps_gpu_pending_wait **p = &g->pending_waits;
    while (*p != wait) p = &(*p)->next;
    *p = wait->next;
    pthread_mutex_unlock(&g->lock);
    if (wait->event.queue != NULL) ps_event_unwatch(wait->event);
    ps_mem_free(wait->dependents);
    ps_mem_free(wait);
}

ps_status ps_gpu_pending_wait_begin(ps_queue *queue, ps_gpu_pending_wait **out)
{
    ps_gpu_queue *q = (ps_gpu_queue *)queue;
    ps_gpu_pending_wait *wait = NULL;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *wait, &wait));
    const ps_status st = add_dependent(wait, q, queue->issued + 1);
    if (st != PS_OK) {
        ps_mem_free(wait);
        return st;
    }
    pthread_mutex_lock(&q->gpu->lock);
    wait->next = q->gpu->pending_waits;
    q->gpu->pending_waits = wait;
    pthread_mutex_unlock(&q->gpu->lock);
    *out = wait;
    return PS_OK;
}

void ps_gpu_pending_wait_end(ps_gpu *g, ps_gpu_pending_wait *wait, ps_status st)
{
    if (wait != NULL) end_wait(g, wait, st);
}

/* ---- the thread ---- */

static void *run(void *arg)
{
    ps_gpu_queue *q = arg;
    ps_gpu_fence *h = q->fence;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (h->first == NULL && !h->stops) pthread_cond_wait(&h->has_work, &h->lock);
        if (h->first == NULL || (h->stops && atomic_load(&q->gpu->is_lost))) break;
        ps_gpu_pending_wait *wait = h->first;
        pthread_mutex_unlock(&h->lock);
        ps_queue *other = wait->event.queue;
        ps_status st = ps_queue_await(other, wait->event.ticket, !wait->ignores_failure);
        if (wait->ignores_failure) st = PS_OK;
        const uint32_t number = wait->number;
        pthread_mutex_lock(&h->lock);
        h->first = wait->next_of_queue;
        pthread_mutex_unlock(&h->lock);
        end_wait(q->gpu, wait, st);
        atomic_store(&q->gpu->words[h->word], number);
        pthread_mutex_lock(&h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static int take_word(ps_gpu *g)
{
    int i = 0;
    pthread_mutex_lock(&g->lock);
    while (i < PS_GPU_WORDS && g->word_given[i]) i++;
    if (i < PS_GPU_WORDS) g->word_given[i] = true;
    pthread_mutex_unlock(&g->lock);
    return i;
}

static ps_status create(ps_gpu_queue *q)
{
    ps_gpu_fence *h = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *h, &h));
    h->word = take_word(q->gpu);
    if (h->word == PS_GPU_WORDS) {
        ps_mem_free(h);
        return PS_FAIL(PS_EDEVICE, "cuda: more than %d queues wait for host code", PS_GPU_WORDS);
    }
    h->n = atomic_load(&q->gpu->words[h->word]);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->has_work, NULL);
    q->fence = h;
    return PS_OK;
}

/* Separate from create: when the system has no thread now, the next wait tries again. */
static ps_status start(ps_gpu_queue *q)
{
    PS_TRY(ps_worker_start(q->base.name, run, q, &q->fence->thread));
    q->fence->is_started = true;
    return PS_OK;
}

void ps_gpu_fence_destroy(ps_gpu_queue *q)
{
    ps_gpu_fence *h = q->fence;
    ps_gpu *g = q->gpu;
    if (h != NULL && h->is_started) {
        pthread_mutex_lock(&h->lock);
        h->stops = true;
        pthread_cond_signal(&h->has_work);
        pthread_mutex_unlock(&h->lock);
        pthread_join(h->thread, NULL);
    }
    while (h != NULL && h->first != NULL) { /* the device is lost */
        ps_gpu_pending_wait *wait = h->first;
        h->first = wait->next_of_queue;
        end_wait(g, wait, PS_OK);
    }
    pthread_mutex_lock(&g->lock);
    for (ps_gpu_pending_wait *wait = g->pending_waits; wait != NULL; wait = wait->next)
        for (int i = 0; i < wait->n_dependents; i++)
            if (wait->dependents[i].queue == q) wait->dependents[i].queue = NULL;
    if (h != NULL) g->word_given[h->word] = false;
    pthread_mutex_unlock(&g->lock);
    if (h == NULL) return;
    pthread_cond_destroy(&h->has_work);
    pthread_mutex_destroy(&h->lock);
    ps_mem_free(h);
    q->fence = NULL;
}

/* ---- a wait ---- */

/* Without stream waits for values the host blocks instead. Host functions of the driver in the stream are no
 * alternative: the driver calls them one after the other on one thread, for all streams, so two that wait for each
 * other's work would deadlock. */
static ps_status wait_here(ps_gpu_queue *q, ps_ticket t, ps_event e, bool ignores_failure)
{
    ps_block_note(PS_BLOCK_EVENT);
    const ps_status st = ps_queue_await(e.queue, e.ticket, !ignores_failure);
    if (st != PS_OK && !ignores_failure) ps_gpu_queue_fail(q, t, st);
    return PS_OK;
}

static void add_wait(ps_gpu_queue *q, ps_gpu_pending_wait *wait)
{
    ps_gpu_fence *h = q->fence;
    pthread_mutex_lock(&q->gpu->lock);
    wait->next = q->gpu->pending_waits;
    q->gpu->pending_waits = wait;
    pthread_mutex_unlock(&q->gpu->lock);
    pthread_mutex_lock(&h->lock);
    *(h->first == NULL ? &h->first : &h->last->next_of_queue) = wait;
    h->last = wait;
    h->n = wait->number;
    pthread_cond_signal(&h->has_work);
    pthread_mutex_unlock(&h->lock);
}

ps_status ps_gpu_fence_wait(ps_gpu_queue *q, ps_ticket t, ps_event e, bool ignores_failure)
{
    ps_gpu *g = q->gpu;
    if (g->driver->stream_wait_value == NULL) return wait_here(q, t, e, ignores_failure);
    if (q->fence == NULL) PS_TRY(create(q));
    if (!q->fence->is_started) PS_TRY(start(q));
    ps_gpu_pending_wait *wait = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *wait, &wait));
    *wait = (ps_gpu_pending_wait){.event = e, .ignores_failure = ignores_failure, .number = q->fence->n + 1};
    ps_status st = ignores_failure ? PS_OK : add_dependent(wait, q, t);
    ps_cu_result r = PS_CU_SUCCESS;
    if (st == PS_OK) st = ps_gpu_queue_reserve(q, 1);
    if (st == PS_OK) {
        const ps_cu_address word = g->words_address + (ps_cu_address)q->fence->word * sizeof *g->words;
        r = g->driver->stream_wait_value(q->stream, word, wait->number, PS_CU_WAIT_GEQ);
        if (r != PS_CU_NOT_SUPPORTED) st = ps_gpu_check(g, r, q->base.name);
    }
    if (st == PS_OK && r == PS_CU_SUCCESS) {
        ps_event_watch(e);
        add_wait(q, wait);
        return PS_OK;
    }
    ps_mem_free(wait->dependents);
    ps_mem_free(wait);
    return st == PS_OK ? wait_here(q, t, e, ignores_failure) : st;
}
