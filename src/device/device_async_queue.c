/* device_async_queue.c - the host's side of the fake GPU's queues: items become commands of a line.
 *
 *     ring of a line    | done | ... taken |== issued, not done ==| put ...        taken <= put <= taken + RING
 *
 * One item is one command, but a copy from or to memory that the helper does not have: it goes through the staging ring
 * in pieces, of which the last carries the ticket. */
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "device/async_impl.h"
#include "device/worker.h"

/* Something that a thread of the host waits for, in the order of issue. */
typedef struct foreign {
    ps_event event;
    bool ignores_failure;
} foreign;

typedef struct async_queue {
    ps_queue base;
    ps_async *device;
    ps_async_line *line;
    int index;         /* of the line */
    ps_ticket first;   /* what the line had done when the queue was created: ticket t is the line's first + t */
    uint64_t staged;   /* bytes put into the staging ring so far */
    uint64_t recorded; /* lock: commands that the profile knows of */
    pthread_t waiter;
    bool has_waiter;
    pthread_mutex_t lock;
    pthread_cond_t has_work;
    bool stops;                  /* lock */
    uint64_t n_foreign;          /* lock: issued; with those of the queues that had the line before */
    foreign ring[PS_ASYNC_RING]; /* lock: number n is at n % PS_ASYNC_RING */
} async_queue;

static const ps_queue_ops ops;

/* ---- looking on ---- */

/* Copies and marks that the helper has come past since: it cannot write into a profile. */
static void record_done(async_queue *q)
{
    pthread_mutex_lock(&q->lock);
    const uint64_t taken = atomic_load(&q->line->taken);
    if (!ps_profile_is_on(q->base.profile)) q->recorded = taken; /* nobody wants them */
    for (; q->recorded < taken; q->recorded++) {
        const ps_async_command *c = &q->line->ring[q->recorded % PS_ASYNC_RING];
        const ps_ticket t = c->ticket - q->first;
        if (c->kind == PS_ASYNC_MARK) ps_queue_record_mark(&q->base, t, c->begin_ns);
        if (c->kind == PS_ASYNC_COPY && c->is_last) ps_queue_record_copy(&q->base, t, c->begin_ns, c->end_ns);
    }
    pthread_mutex_unlock(&q->lock);
}

/* ---- waiting ---- */

static ps_status wait_until(const ps_async *a, const _Atomic uint64_t *counter, uint64_t least)
{
    ps_async_shared *s = a->shared;
    if (atomic_load(counter) >= least) return ps_async_check(a);
    atomic_fetch_add(&s->n_waiting, 1);
    ps_async_wake(&s->wake); /* it may hold something back until the host waits */
    for (;;) {
        const uint32_t seen = atomic_load(&s->progress);
        if (atomic_load(counter) >= least || atomic_load(&s->is_lost)) break;
        ps_async_sleep(&s->progress, seen, INT64_MAX);
    }
    atomic_fetch_sub(&s->n_waiting, 1);
    return ps_async_check(a);
}

static ps_status wait_for_room(const async_queue *q, const _Atomic uint64_t *counter, uint64_t least)
{
    if (atomic_load(counter) < least) ps_block_note(PS_BLOCK_FULL);
    return wait_until(q->device, counter, least);
}

static ps_status wait_for(ps_queue *queue, ps_ticket t, bool tells)
{
    (void)tells;
    async_queue *q = (async_queue *)queue;
    const ps_ticket ticket = q->first + t;
    PS_TRY(ps_async_admit(q->device));
    PS_TRY(wait_until(q->device, &q->line->done, ticket));
    record_done(q);
    const ps_ticket failed_at = atomic_load(&q->line->failed_at);
    if (failed_at == 0 || failed_at > ticket) return PS_OK;
    return PS_FAIL(q->line->failure.st, "%s", q->line->failure.why);
}

static bool is_done(ps_queue *queue, ps_ticket t)
{
    async_queue *q = (async_queue *)queue;
    if (atomic_load(&q->line->done) < q->first + t) return atomic_load(&q->device->shared->is_lost);
    record_done(q);
    return true;
}

/* ---- commands ---- */

/* The next command, to be filled in; nothing of it counts until `issue`. */
static ps_status next_command(async_queue *q, ps_async_kind kind, ps_async_command **out)
{
    const uint64_t put = atomic_load(&q->line->put);
    if (put >= PS_ASYNC_RING) PS_TRY(wait_for_room(q, &q->line->taken, put - PS_ASYNC_RING + 1));
    PS_TRY(ps_async_check(q->device));
    record_done(q);
    ps_async_command *c = &q->line->ring[put % PS_ASYNC_RING];
    c->kind = kind;
    c->is_last = c->is_lost = c->ignores_failure = false;
    c->ticket = q->first + q->base.issued;
    c->staged = 0;
    *out = c;
    return PS_OK;
}

static void issue(async_queue *q)
{
    atomic_fetch_add(&q->line->put, 1);
    ps_async_wake(&q->device->shared->wake);
}

/* The last command of an item. */
static void issue_last(async_queue *q, ps_async_command *c)
{
    c->ticket = q->first + q->base.issued + 1;
    c->is_last = true;
    c->is_lost = ps_fault_hit(PS_FAULT_LOST);
    issue(q);
}

static ps_status submit_copy(async_queue *q, char *dst, const char *src, int64_t bytes)
{
    ps_async_command *c;
    PS_TRY(next_command(q, PS_ASYNC_COPY, &c));
    c->copy.dst = dst;
    c->copy.src = src;
    c->copy.bytes = bytes;
    issue_last(q, c);
    return PS_OK;
}

/* Room in the staging ring in one piece, of at most `bytes`: a quarter of it at once, so that pieces overlap. */
static ps_status take_staging(async_queue *q, int64_t bytes, char **out, int64_t *n)
{
    const int64_t at = (int64_t)(q->staged % PS_ASYNC_STAGING_BYTES);
    *n = ps_min_i64(bytes, ps_min_i64(PS_ASYNC_STAGING_BYTES / 4, PS_ASYNC_STAGING_BYTES - at));
    q->staged += (uint64_t)*n;
    if (q->staged > PS_ASYNC_STAGING_BYTES)
        PS_TRY(wait_for_room(q, &q->line->staging_taken, q->staged - PS_ASYNC_STAGING_BYTES));
    *out = q->line->staging + at;
    return PS_OK;
}

/* A piece of a put or get, whose staging has just been taken. */
static ps_status issue_staged(async_queue *q, char *dst, const char *src, int64_t n, bool is_last)
{
    ps_async_command *c;
    PS_TRY(next_command(q, PS_ASYNC_COPY, &c));
    c->copy.dst = dst;
    c->copy.src = src;
    c->copy.bytes = n;
    c->staged = q->staged;
    if (is_last)
        issue_last(q, c);
    else
        issue(q);
    return PS_OK;
}

static ps_status submit_put(async_queue *q, char *dst, const char *src, int64_t bytes)
{
    for (int64_t n; bytes > 0; dst += n, src += n, bytes -= n) {
        char *staging;
        PS_TRY(take_staging(q, bytes, &staging, &n));
        memcpy(staging, src, (size_t)n);
        PS_TRY(issue_staged(q, dst, staging, n, n == bytes));
    }
    return PS_OK;
}

static ps_status submit_get(async_queue *q, char *dst, const char *src, int64_t bytes)
{
    for (int64_t n; bytes > 0; dst += n, src += n, bytes -= n) {
        char *staging;
        PS_TRY(take_staging(q, bytes, &staging, &n));
        PS_TRY(issue_staged(q, staging, src, n, n == bytes));
        PS_TRY(wait_until(q->device, &q->line->taken, atomic_load(&q->line->put)));
        memcpy(dst, staging, (size_t)n);
    }
    return PS_OK;
}

/* ---- waits ---- */

static void *wait_for_others(void *arg)
{
    async_queue *q = arg;
    ps_async_line *l = q->line;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        const uint64_t n = atomic_load(&l->foreign_done) + 1;
        while (n > q->n_foreign && !q->stops) pthread_cond_wait(&q->has_work, &q->lock);
        if (n > q->n_foreign || (q->stops && atomic_load(&q->device->shared->is_lost))) break;
        const foreign f = q->ring[n % PS_ASYNC_RING];
        pthread_mutex_unlock(&q->lock);
        const ps_status st = f.event.queue->ops->wait(f.event.queue, f.event.ticket, !f.ignores_failure);
        if (st != PS_OK && !f.ignores_failure && l->foreign_failed_at == 0) {
            l->foreign_failure.st = st;
            snprintf(l->foreign_failure.why, sizeof l->foreign_failure.why, "%s", ps_last_error());
            l->foreign_failed_at = n;
        }
        ps_event_unwatch(f.event);
        atomic_store(&l->foreign_done, n);
        ps_async_wake(&q->device->shared->wake);
        pthread_mutex_lock(&q->lock);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static ps_status submit_foreign(async_queue *q, ps_event e, bool ignores_failure)
{
    ps_async_command *c;
    if (!q->has_waiter) {
        PS_TRY(ps_worker_start(q->base.name, wait_for_others, q, &q->waiter));
        q->has_waiter = true;
    }
    PS_TRY(next_command(q, PS_ASYNC_WAIT_FOREIGN, &c));
    pthread_mutex_lock(&q->lock);
    q->n_foreign++;
    q->ring[q->n_foreign % PS_ASYNC_RING] = (foreign){e, ignores_failure};
    ps_event_watch(e);
    c->foreign = q->n_foreign;
    pthread_cond_signal(&q->has_work);
    pthread_mutex_unlock(&q->lock);
    issue_last(q, c);
    return PS_OK;
}

/* Nothing is left to wait for, or to be told: the queue of the event may be gone soon. */
static bool is_settled(ps_event e, bool ignores_failure)
{
    return ps_event_is_done(e) && (ignores_failure || e.queue->ops->wait(e.queue, e.ticket, false) == PS_OK);
}

static ps_status submit_wait(async_queue *q, ps_event e, bool ignores_failure)
{
    const async_queue *other = (const async_queue *)e.queue;
    const bool is_foreign = e.queue->ops != &ops || other->device != q->device;
    ps_async_command *c;
    if (is_foreign && !is_settled(e, ignores_failure)) return submit_foreign(q, e, ignores_failure);
    PS_TRY(next_command(q, PS_ASYNC_WAIT, &c));
    c->ignores_failure = ignores_failure;
    c->wait.line = is_foreign ? q->index : other->index;
    c->wait.ticket = is_foreign ? 0 : other->first + e.ticket;
    issue_last(q, c);
    return PS_OK;
}

/* ---- items ---- */

/* The helper has memory of its own at any other address: a command that named one would read what was there when it was
 * forked, or end it. */
static ps_status check_memory(const async_queue *q, const char *what, const void *p, int64_t bytes)
{
    const ps_async *a = q->device;
    if (bytes == 0 || ps_async_memory_has(&a->device, p, bytes) || ps_async_memory_has(&a->pinned, p, bytes))
        return PS_OK;
    return PS_FAIL(PS_EINVAL, "queue %s: %s of %lld bytes at %p, which is neither device nor pinned memory",
                   q->base.name, what, (long long)bytes, p);
}

static ps_status check_host_memory(const async_queue *q, const char *what, const void *p, int64_t bytes)
{
    if (bytes == 0 || !ps_async_memory_has(&q->device->device, p, 1)) return PS_OK;
    return PS_FAIL(PS_EINVAL, "queue %s: %s of %lld bytes at %p, which is device memory", q->base.name, what,
                   (long long)bytes, p);
}

static ps_status submit_any_copy(async_queue *q, const ps_item *item)
{
    char *dst = item->copy.dst;
    const char *src = item->copy.src;
    const int64_t bytes = item->copy.bytes;
    const bool is_put = item->copy.is_put && bytes > 0, is_get = item->copy.is_get && bytes > 0;
    PS_TRY(is_put ? check_host_memory(q, "put", src, bytes) : check_memory(q, "copy from", src, bytes));
    PS_TRY(is_get ? check_host_memory(q, "get", dst, bytes) : check_memory(q, "copy to", dst, bytes));
    if (is_put) return submit_put(q, dst, src, bytes);
    if (is_get) return submit_get(q, dst, src, bytes);
    return submit_copy(q, dst, src, bytes);
}

static ps_status submit_fill(async_queue *q, void *dst, uint8_t byte, int64_t bytes)
{
    ps_async_command *c;
    PS_TRY(check_memory(q, "fill", dst, bytes));
    PS_TRY(next_command(q, PS_ASYNC_FILL, &c));
    c->fill.dst = dst;
    c->fill.bytes = bytes;
    c->fill.byte = byte;
    issue_last(q, c);
    return PS_OK;
}

static ps_status submit_call(async_queue *q, const ps_call *call)
{
    ps_async_command *c;
    for (int i = 0; i < call->n_uses; i++) {
        const ps_use *u = &call->uses[i];
        if (ps_async_memory_has(&q->device->device, u->address, u->bytes)) continue;
        return PS_FAIL(PS_EINVAL, "queue %s: %s %s %s: %lld bytes at %p, which is not device memory", q->base.name,
                       call->name, u->is_write ? "writes" : "reads", u->name, (long long)u->bytes, u->address);
    }
    PS_TRY(next_command(q, PS_ASYNC_CALL, &c));
    c->call.name = call->name;
    c->call.run = call->run;
    c->call.self = call->self;
    if (call->args_bytes > 0) memcpy(c->args, call->args, call->args_bytes);
    issue_last(q, c);
    return PS_OK;
}

static ps_status submit_mark(async_queue *q)
{
    ps_async_command *c;
    PS_TRY(next_command(q, PS_ASYNC_MARK, &c));
    issue_last(q, c);
    return PS_OK;
}

static ps_status submit(ps_queue *queue, const ps_item *item, ps_ticket *out)
{
    async_queue *q = (async_queue *)queue;
    PS_TRY(ps_async_admit(q->device));
    switch (item->kind) {
    case PS_ITEM_COPY: PS_TRY(submit_any_copy(q, item)); break;
    case PS_ITEM_FILL: PS_TRY(submit_fill(q, item->fill.dst, item->fill.byte, item->fill.bytes)); break;
    case PS_ITEM_CALL: PS_TRY(submit_call(q, &item->call)); break;
    case PS_ITEM_WAIT: PS_TRY(submit_wait(q, item->wait.event, item->wait.ignores_failure)); break;
    case PS_ITEM_MARK: PS_TRY(submit_mark(q)); break;
    }
    *out = queue->issued + 1;
    return PS_OK;
}

ps_status ps_async_queue_poison(ps_queue *queue, void *p, int64_t bytes, const ps_events *after, ps_event *out)
{
    async_queue *q = (async_queue *)queue;
    PS_TRY(ps_async_check(q->device));
    for (int i = 0; i < after->n; i++) {
        PS_TRY(submit_wait(q, after->event[i], true));
        queue->issued++;
    }
    PS_TRY(submit_fill(q, p, 0xff, bytes));
    queue->issued++;
    *out = ps_queue_event(queue);
    return PS_OK;
}

/* ---- create, destroy ---- */

static void release(async_queue *q)
{
    if (q->has_waiter) {
        pthread_mutex_lock(&q->lock);
        q->stops = true;
        pthread_cond_signal(&q->has_work);
        pthread_mutex_unlock(&q->lock);
        pthread_join(q->waiter, NULL);
        for (uint64_t n = atomic_load(&q->line->foreign_done) + 1; n <= q->n_foreign; n++)
            ps_event_unwatch(q->ring[n % PS_ASYNC_RING].event); /* the device is lost */
    }
    pthread_cond_destroy(&q->has_work);
    pthread_mutex_destroy(&q->lock);
    ps_mem_free(q);
}

/* A line whose queue has failed is given to nobody: who still waits for its events is to be told. */
static void destroy(ps_queue *queue)
{
    async_queue *q = (async_queue *)queue;
    ps_async *a = q->device;
    (void)wait_until(a, &q->line->taken, atomic_load(&q->line->put));
    (void)wait_until(a, &q->line->done, q->first + queue->issued); /* which the next to have the line begins with */
    record_done(q);
    if (a->space.foreign == queue) a->space.foreign = NULL;
    pthread_mutex_lock(&a->lock);
    a->line_given[q->index] = atomic_load(&q->line->failed_at) != 0;
    pthread_mutex_unlock(&a->lock);
    release(q);
}

static const ps_queue_ops ops = {submit, wait_for, is_done, destroy};

static int take_line(ps_async *a)
{
    int i = 0;
    pthread_mutex_lock(&a->lock);
    while (i < PS_ASYNC_LINES && a->line_given[i]) i++;
    if (i < PS_ASYNC_LINES) a->line_given[i] = true;
    pthread_mutex_unlock(&a->lock);
    return i;
}

ps_status ps_async_queue_create(ps_async *a, const char *name, ps_queue **out)
{
    async_queue *q = NULL;
    PS_TRY(ps_async_check(a));
    PS_TRY(ps_mem_alloc(1, sizeof *q, &q));
    q->index = take_line(a);
    if (q->index == PS_ASYNC_LINES) {
        ps_mem_free(q);
        return PS_FAIL(PS_EDEVICE, "cpu_async: more than %d queues", PS_ASYNC_LINES);
    }
    q->base.ops = &ops;
    q->base.needs_uses = true;
    snprintf(q->base.name, sizeof q->base.name, "%s", name);
    q->device = a;
    q->line = &a->shared->lines[q->index];
    snprintf(q->line->name, sizeof q->line->name, "%s", name);
    q->first = atomic_load(&q->line->done);
    q->staged = atomic_load(&q->line->staging_taken);
    q->recorded = atomic_load(&q->line->taken);
    q->n_foreign = atomic_load(&q->line->foreign_done);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->has_work, NULL);
    *out = &q->base;
    return PS_OK;
}
