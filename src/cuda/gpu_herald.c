/* gpu_herald.c - waits of streams for what host code ends, and whom its failure is handed on to.
 *
 *     stream     ...  wait for 7  ........|=== goes on ===
 *     herald     event of the disk ... ended: write 7
 *
 * Such a wait is a *hope* while it is not over: nobody knows whether it fails. It has the items that come after it: the
 * one that waits, and of other queues each that waits for one that comes after it. When it fails, so have they. */
#include <stdio.h>

#include "base/mem.h"
#include "cuda/gpu_impl.h"
#include "device/worker.h"

typedef struct behind {
    ps_gpu_queue *queue; /* NULL: gone */
    ps_ticket ticket;
} behind;

struct ps_gpu_hope {
    ps_event event; /* of no queue: whoever has it ends it */
    bool ignores_failure;
    uint32_t number;
    ps_gpu_hope *next, *next_of_queue;
    int n_behind;
    behind *behind;
};

struct ps_gpu_herald {
    int word; /* of the gpu's */
    pthread_t thread;
    bool is_started;
    pthread_mutex_t lock;
    pthread_cond_t has_work;
    bool stops;                /* lock */
    uint32_t n;                /* lock: the number waited for last */
    ps_gpu_hope *first, *last; /* lock: of this queue, in order */
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
static ps_status add_behind(ps_gpu_hope *h, ps_gpu_queue *q, ps_ticket t)
{
    for (int i = 0; i < h->n_behind; i++)
        if (h->behind[i].queue == q) return PS_OK; /* an earlier item of it */
    PS_TRY(ps_mem_reserve(&h->behind, (size_t)h->n_behind + 1, sizeof h->behind[0]));
    h->behind[h->n_behind++] = (behind){q, t};
    return PS_OK;
}

void ps_gpu_hopes_inherit(ps_gpu_queue *q, ps_ticket t, const ps_gpu_queue *other, ps_ticket until)
{
    pthread_mutex_lock(&q->gpu->lock);
    const ps_ticket failed_at = atomic_load(&other->failed_at);
    if (failed_at != 0 && failed_at <= until) fail_locked(q, t, other->failure, other->why);
    for (ps_gpu_hope *h = q->gpu->hopes; h != NULL; h = h->next)
        for (int i = 0; i < h->n_behind; i++) {
            if (h->behind[i].queue != other || h->behind[i].ticket > until) continue;
            const ps_status st = add_behind(h, q, t);
            if (st != PS_OK) fail_locked(q, t, st, ps_last_error()); /* rather than never */
            break;
        }
    pthread_mutex_unlock(&q->gpu->lock);
}

/* Over, well or not: before the stream goes on, so who finds the stream there finds the failure. What is done by then
 * had no need of it. */
static void end_hope(ps_gpu *g, ps_gpu_hope *hope, ps_status st)
{
    pthread_mutex_lock(&g->lock);
    for (int i = 0; st != PS_OK && i < hope->n_behind; i++) {
        ps_gpu_queue *q = hope->behind[i].queue;
        if (q == NULL) continue;
        const ps_ticket next = atomic_load(&q->done) + 1, first = hope->behind[i].ticket;
        fail_locked(q, next > first ? next : first, st, ps_last_error());
    }
    ps_gpu_hope **p = &g->hopes;
    while (*p != hope) p = &(*p)->next;
    *p = hope->next;
    pthread_mutex_unlock(&g->lock);
    if (hope->event.queue != NULL) ps_event_unwatch(hope->event);
    ps_mem_free(hope->behind);
    ps_mem_free(hope);
}

ps_status ps_gpu_hope_begin(ps_queue *queue, ps_gpu_hope **out)
{
    ps_gpu_queue *q = (ps_gpu_queue *)queue;
    ps_gpu_hope *hope = NULL;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *hope, &hope));
    const ps_status st = add_behind(hope, q, queue->issued + 1);
    if (st != PS_OK) {
        ps_mem_free(hope);
        return st;
    }
    pthread_mutex_lock(&q->gpu->lock);
    hope->next = q->gpu->hopes;
    q->gpu->hopes = hope;
    pthread_mutex_unlock(&q->gpu->lock);
    *out = hope;
    return PS_OK;
}

void ps_gpu_hope_end(ps_gpu *g, ps_gpu_hope *hope, ps_status st)
{
    if (hope != NULL) end_hope(g, hope, st);
}

/* ---- the thread ---- */

static void *run(void *arg)
{
    ps_gpu_queue *q = arg;
    ps_gpu_herald *h = q->herald;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (h->first == NULL && !h->stops) pthread_cond_wait(&h->has_work, &h->lock);
        if (h->first == NULL || (h->stops && atomic_load(&q->gpu->is_lost))) break;
        ps_gpu_hope *hope = h->first;
        pthread_mutex_unlock(&h->lock);
        ps_queue *other = hope->event.queue;
        ps_status st = other->ops->wait(other, hope->event.ticket, !hope->ignores_failure);
        if (hope->ignores_failure) st = PS_OK;
        const uint32_t number = hope->number;
        pthread_mutex_lock(&h->lock);
        h->first = hope->next_of_queue;
        pthread_mutex_unlock(&h->lock);
        end_hope(q->gpu, hope, st);
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
    ps_gpu_herald *h = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *h, &h));
    h->word = take_word(q->gpu);
    if (h->word == PS_GPU_WORDS) {
        ps_mem_free(h);
        return PS_FAIL(PS_EDEVICE, "cuda: more than %d queues wait for host code", PS_GPU_WORDS);
    }
    h->n = atomic_load(&q->gpu->words[h->word]);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->has_work, NULL);
    q->herald = h;
    return PS_OK;
}

/* Apart from create: when the system has no thread to give now, the next wait tries again. */
static ps_status start(ps_gpu_queue *q)
{
    PS_TRY(ps_worker_start(q->base.name, run, q, &q->herald->thread));
    q->herald->is_started = true;
    return PS_OK;
}

void ps_gpu_herald_destroy(ps_gpu_queue *q)
{
    ps_gpu_herald *h = q->herald;
    ps_gpu *g = q->gpu;
    if (h != NULL && h->is_started) {
        pthread_mutex_lock(&h->lock);
        h->stops = true;
        pthread_cond_signal(&h->has_work);
        pthread_mutex_unlock(&h->lock);
        pthread_join(h->thread, NULL);
    }
    while (h != NULL && h->first != NULL) { /* the device is lost */
        ps_gpu_hope *hope = h->first;
        h->first = hope->next_of_queue;
        end_hope(g, hope, PS_OK);
    }
    pthread_mutex_lock(&g->lock);
    for (ps_gpu_hope *hope = g->hopes; hope != NULL; hope = hope->next)
        for (int i = 0; i < hope->n_behind; i++)
            if (hope->behind[i].queue == q) hope->behind[i].queue = NULL;
    if (h != NULL) g->word_given[h->word] = false;
    pthread_mutex_unlock(&g->lock);
    if (h == NULL) return;
    pthread_cond_destroy(&h->has_work);
    pthread_mutex_destroy(&h->lock);
    ps_mem_free(h);
    q->herald = NULL;
}

/* ---- a wait ---- */

/* Without waits for values the host stands still instead. A function that the driver calls in the stream would do no
 * better: it calls them one after the other on one thread, of whatever stream they are, and two that wait for each
 * other's work would wait for ever. */
static ps_status wait_here(ps_gpu_queue *q, ps_ticket t, ps_event e, bool ignores_failure)
{
    ps_block_note(PS_BLOCK_EVENT);
    const ps_status st = e.queue->ops->wait(e.queue, e.ticket, !ignores_failure);
    if (st != PS_OK && !ignores_failure) ps_gpu_queue_fail(q, t, st);
    return PS_OK;
}

static void add_hope(ps_gpu_queue *q, ps_gpu_hope *hope)
{
    ps_gpu_herald *h = q->herald;
    pthread_mutex_lock(&q->gpu->lock);
    hope->next = q->gpu->hopes;
    q->gpu->hopes = hope;
    pthread_mutex_unlock(&q->gpu->lock);
    pthread_mutex_lock(&h->lock);
    *(h->first == NULL ? &h->first : &h->last->next_of_queue) = hope;
    h->last = hope;
    h->n = hope->number;
    pthread_cond_signal(&h->has_work);
    pthread_mutex_unlock(&h->lock);
}

ps_status ps_gpu_herald_wait(ps_gpu_queue *q, ps_ticket t, ps_event e, bool ignores_failure)
{
    ps_gpu *g = q->gpu;
    if (g->driver->stream_wait_value == NULL) return wait_here(q, t, e, ignores_failure);
    if (q->herald == NULL) PS_TRY(create(q));
    if (!q->herald->is_started) PS_TRY(start(q));
    ps_gpu_hope *hope = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *hope, &hope));
    *hope = (ps_gpu_hope){.event = e, .ignores_failure = ignores_failure, .number = q->herald->n + 1};
    ps_status st = ignores_failure ? PS_OK : add_behind(hope, q, t);
    ps_cu_result r = PS_CU_SUCCESS;
    if (st == PS_OK) {
        const ps_cu_address word = g->words_address + (ps_cu_address)q->herald->word * sizeof *g->words;
        r = g->driver->stream_wait_value(q->stream, word, hope->number, PS_CU_WAIT_GEQ);
        if (r != PS_CU_NOT_SUPPORTED) st = ps_gpu_check(g, r, q->base.name);
    }
    if (st == PS_OK && r == PS_CU_SUCCESS) {
        ps_event_watch(e);
        add_hope(q, hope);
        return PS_OK;
    }
    ps_mem_free(hope->behind);
    ps_mem_free(hope);
    return st == PS_OK ? wait_here(q, t, e, ignores_failure) : st;
}
