/* gpu_queue.c - a stream as a queue: each item is followed by an event of the driver's, in a ring.
 *
 *     ring       | done ... |== issued, not done ==|          issued - done <= PS_GPU_RING
 *     commands   0 ......... 410 .. 411 .. 415 .. 420         at the end of each item; 420 - 410 <= stream_commands
 *
 * What is outstanding on the stream is bounded, so that no call blocks within the driver (gpu.h). Who issues waits for its
 * own event instead, and then until half of the bound is free, so as not to wait for each item.
 *
 * The event of a done item is reused by the item PS_GPU_RING later, but not while a thread waits with it: the driver
 * would then wait for the later item. */
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/machine.h"
#include "base/mem.h"
#include "device/cuda/gpu_impl.h"
#include "device/stall.h"

/* Times are measured from a reference event that is no older than this, as they are floats. */
#define REBASE_MS 10000.f
/* Of a host thread, where an item takes room but no command. */
#define HOST_ITEMS 4096

static const ps_queue_ops ops;

ps_gpu_queue *ps_gpu_queue_of(ps_queue *queue, const ps_gpu *g)
{
    ps_gpu_queue *q = (ps_gpu_queue *)queue;
    return queue->ops == &ops && q->gpu == g ? q : NULL;
}

ps_cu_stream ps_gpu_stream(const ps_queue *q)
{
    PS_ASSERT(q->ops == &ops);
    return ((const ps_gpu_queue *)q)->stream;
}

static ps_gpu_slot *slot_of(ps_gpu_queue *q, ps_ticket t)
{
    return &q->ring[t % PS_GPU_RING];
}

static ps_status check(ps_gpu_queue *q, ps_cu_result r)
{
    return ps_gpu_check(q->gpu, r, q->base.name);
}

/* ---- profiling ---- */

/* Time of a timed event, by the host's clock. */
static int64_t time_of(ps_gpu_queue *q, ps_cu_event e, float *ms)
{
    *ms = 0;
    (void)q->gpu->driver->event_elapsed(ms, q->base_event, e);
    return q->base_ns + (int64_t)(1e6 * (double)*ms);
}

/* The lock is held; item t is done. */
static void record_item(ps_gpu_queue *q, ps_gpu_slot *s, ps_ticket t)
{
    float begin_ms, end_ms;
    const int64_t begin_ns = time_of(q, s->begin, &begin_ms), end_ns = time_of(q, s->end, &end_ms);
    if (s->is_copy) ps_queue_announce_done(&q->base, PS_QUEUE_ITEM_COPY, t, begin_ns, end_ns);
    if (s->is_mark) ps_queue_announce_done(&q->base, PS_QUEUE_ITEM_MARK, t, end_ns, end_ns);
    s->is_copy = s->is_mark = false;
    if (end_ms < REBASE_MS) return;
    const ps_cu_event before = q->base_event;
    q->base_event = s->end;
    q->base_ns = end_ns;
    s->end = before != q->gpu->base ? before : NULL;
}

/* Records copies and marks that have ended since. The lock is held. */
static void record_done(ps_gpu_queue *q)
{
    const ps_ticket done = atomic_load(&q->done);
    for (; q->recorded < done; q->recorded++) {
        ps_gpu_slot *s = slot_of(q, q->recorded + 1);
        if (s->is_copy || s->is_mark) record_item(q, s, q->recorded + 1);
    }
}

/* Timed events around an item that a profile records. */
static ps_status record_time(ps_gpu_queue *q, ps_cu_event *e)
{
    const ps_cuda_driver *d = q->gpu->driver;
    PS_TRY(ps_gpu_queue_reserve(q, 1));
    if (*e == NULL) PS_TRY(check(q, d->event_create(e, PS_CU_EVENT_BLOCKING)));
    return check(q, d->event_record(*e, q->stream));
}

/* ---- waiting ---- */

/* The lock is held. */
static void reach(ps_gpu_queue *q, ps_ticket t)
{
    if (t > atomic_load(&q->done)) {
        atomic_store(&q->done, t);
        ps_stall_progress();
    }
    record_done(q);
    pthread_cond_broadcast(&q->has_changed);
}

/* Waits until item t is done, failed or not; PS_EDEVICE when the device is lost. */
static ps_status wait_until(ps_gpu_queue *q, ps_ticket t)
{
    ps_gpu *g = q->gpu;
    if (t <= atomic_load(&q->done)) return PS_OK;
    PS_TRY(ps_gpu_check_lost(g));
    PS_TRY(ps_gpu_check(g, g->driver->context_set(g->context), "context"));
    pthread_mutex_lock(&q->lock);
    if (t <= atomic_load(&q->done)) {
        pthread_mutex_unlock(&q->lock);
        return PS_OK;
    }
    ps_gpu_slot *s = slot_of(q, t);
    s->n_users++;
    pthread_mutex_unlock(&q->lock);
    const ps_cu_result r = g->driver->event_wait(s->done);
    pthread_mutex_lock(&q->lock);
    s->n_users--;
    if (r == PS_CU_SUCCESS)
        reach(q, t);
    else
        pthread_cond_broadcast(&q->has_changed);
    pthread_mutex_unlock(&q->lock);
    return check(q, r);
}

static ps_status wait_for(ps_queue *queue, ps_ticket t, bool tells)
{
    ps_gpu_queue *q = (ps_gpu_queue *)queue;
    /* memory whose uses were not waited for would be freed while the device uses it */
    if (tells && ps_fault_hit(PS_FAULT_DEVICE)) return PS_FAIL(PS_EDEVICE, "cuda: the call failed");
    PS_TRY(ps_gpu_check_lost(q->gpu)); /* whether earlier items were computed is unknown */
    PS_TRY(wait_until(q, t));
    const ps_ticket failed_at = atomic_load(&q->failed_at);
    return failed_at == 0 || failed_at > t ? PS_OK : PS_FAIL(q->failure, "%s", q->why);
}

static bool is_done(ps_queue *queue, ps_ticket t)
{
    ps_gpu_queue *q = (ps_gpu_queue *)queue;
    if (t <= atomic_load(&q->done) || !ps_gpu_enter_quietly(q->gpu)) return true;
    pthread_mutex_lock(&q->lock);
    const bool was_done = t <= atomic_load(&q->done);
    const ps_cu_result r = was_done ? PS_CU_SUCCESS : q->gpu->driver->event_query(slot_of(q, t)->done);
    if (r == PS_CU_SUCCESS) reach(q, t);
    pthread_mutex_unlock(&q->lock);
    if (r == PS_CU_SUCCESS || r == PS_CU_NOT_READY) return r == PS_CU_SUCCESS;
    (void)check(q, r);
    return true; /* who polls stops; the wait that follows reports the error */
}

/* ---- room ---- */

/* The first item up to which so many commands are counted; none: the last one. */
static ps_ticket item_of(ps_gpu_queue *q, int64_t n_commands)
{
    ps_ticket t = atomic_load(&q->done) + 1;
    while (t < q->base.issued && slot_of(q, t)->n_commands < n_commands) t++;
    return t < q->base.issued ? t : q->base.issued;
}

static int64_t outstanding(ps_gpu_queue *q)
{
    const ps_ticket done = atomic_load(&q->done);
    if (done > 0) q->n_commands_done = ps_max_i64(q->n_commands_done, slot_of(q, done)->n_commands);
    return q->n_commands - q->n_commands_done;
}

static ps_status wait_for_items(ps_gpu_queue *q, int64_t n_commands)
{
    const ps_ticket t = item_of(q, n_commands);
    if (t <= atomic_load(&q->done) || is_done(&q->base, t)) return ps_gpu_check_lost(q->gpu);
    ps_block_note(PS_BLOCK_FULL);
    return wait_until(q, t);
}

/* The commands of one item are as many as the bound: no thread knows its event yet. */
static ps_status wait_for_own(ps_gpu_queue *q)
{
    const ps_cuda_driver *d = q->gpu->driver;
    if (q->current == NULL) return PS_OK;
    ps_block_note(PS_BLOCK_FULL);
    PS_TRY(check(q, d->event_record(q->current->done, q->stream)));
    PS_TRY(check(q, d->event_wait(q->current->done)));
    q->n_commands_done = q->n_commands;
    return PS_OK;
}

/* The record of wait_for_own takes the one that is kept free. */
ps_status ps_gpu_queue_reserve(ps_gpu_queue *q, int n)
{
    const int64_t most = q->gpu->options.stream_commands - 1;
    if (outstanding(q) + n > most && outstanding(q) > 0) {
        PS_TRY(wait_for_items(q, q->n_commands + n - most / 2));
        if (outstanding(q) + n > most && outstanding(q) > 0) PS_TRY(wait_for_own(q));
    }
    q->n_commands += n;
    return PS_OK;
}

ps_status ps_gpu_will_issue(ps_gpu *g, ps_cu_stream stream, int n_commands)
{
    pthread_mutex_lock(&g->lock);
    ps_gpu_queue *q = g->queues;
    while (q != NULL && q->stream != stream) q = q->next;
    pthread_mutex_unlock(&g->lock);
    return q == NULL ? PS_OK : ps_gpu_queue_reserve(q, n_commands);
}

/* ---- items ---- */

/* The event of the next item, once its earlier item is done and no thread waits with it. */
static ps_status take_slot(ps_gpu_queue *q, const char *name, ps_gpu_slot **out)
{
    const ps_cuda_driver *d = q->gpu->driver;
    const ps_ticket t = q->base.issued + 1;
    ps_gpu_slot *s = slot_of(q, t);
    if (t > PS_GPU_RING && !is_done(&q->base, t - PS_GPU_RING)) {
        ps_block_note(PS_BLOCK_FULL);
        PS_TRY(wait_until(q, t - PS_GPU_RING));
    }
    pthread_mutex_lock(&q->lock);
    record_done(q);
    while (s->n_users > 0) pthread_cond_wait(&q->has_changed, &q->lock);
    s->is_copy = s->is_mark = false;
    snprintf(s->name, sizeof s->name, "%s", name);
    pthread_mutex_unlock(&q->lock);
    if (s->done == NULL) PS_TRY(check(q, d->event_create(&s->done, PS_CU_EVENT_BLOCKING | PS_CU_EVENT_NO_TIME)));
    q->current = *out = s;
    return PS_OK;
}

/* No item is left to wait for or to record. */
static bool is_stable(ps_event e, bool ignores_failure)
{
    return ps_event_is_done(e) && (ignores_failure || ps_queue_await(e.queue, e.ticket, false) == PS_OK);
}

static ps_status wait_for_stream(ps_gpu_queue *q, ps_ticket t, ps_gpu_queue *other, ps_ticket until, bool ignores)
{
    ps_cu_result r = PS_CU_SUCCESS;
    PS_TRY(ps_gpu_queue_reserve(q, 1));
    pthread_mutex_lock(&other->lock);
    ps_gpu_slot *s = until > atomic_load(&other->done) ? slot_of(other, until) : NULL;
    if (s != NULL) s->n_users++;
    pthread_mutex_unlock(&other->lock);
    if (s != NULL) {
        r = q->gpu->driver->stream_wait_event(q->stream, s->done, 0);
        pthread_mutex_lock(&other->lock);
        s->n_users--;
        pthread_cond_broadcast(&other->has_changed);
        pthread_mutex_unlock(&other->lock);
    }
    if (!ignores) ps_gpu_pending_waits_inherit(q, t, other, until);
    return check(q, r);
}

static ps_status wait_for_event(ps_gpu_queue *q, ps_ticket t, ps_event e, bool ignores_failure)
{
    ps_gpu_queue *other = ps_gpu_queue_of(e.queue, q->gpu);
    if (other != NULL) return wait_for_stream(q, t, other, e.ticket, ignores_failure);
    return is_stable(e, ignores_failure) ? PS_OK : ps_gpu_fence_wait(q, t, e, ignores_failure);
}

static ps_status do_copy(ps_gpu_queue *q, const ps_queue_item *item)
{
    const ps_cu_address dst = (ps_cu_address)(uintptr_t)item->copy.dst, src = (ps_cu_address)(uintptr_t)item->copy.src;
    const int64_t bytes = item->copy.bytes;
    if (bytes == 0) return PS_OK;
    if (item->copy.is_put) return ps_gpu_staging_put(q, dst, item->copy.src, bytes);
    if (item->copy.is_get) return ps_gpu_staging_get(q, item->copy.dst, src, bytes);
    PS_TRY(ps_gpu_queue_reserve(q, 1));
    return check(q, q->gpu->driver->copy(dst, src, (size_t)bytes, q->stream));
}

static ps_status do_fill(ps_gpu_queue *q, const void *dst, uint8_t byte, int64_t bytes)
{
    if (bytes == 0) return PS_OK;
    PS_TRY(ps_gpu_queue_reserve(q, 1));
    return check(q, q->gpu->driver->fill((ps_cu_address)(uintptr_t)dst, byte, (size_t)bytes, q->stream));
}

/* Of a stream of the program's all that it has issued since the last mark. */
static ps_status count_mark(ps_gpu_queue *q)
{
    return q->is_external ? ps_gpu_queue_reserve(q, PS_GPU_PROGRAM_COMMANDS) : PS_OK;
}

static ps_status do_item(ps_gpu_queue *q, const ps_queue_item *item)
{
    switch (item->kind) {
    case PS_QUEUE_ITEM_COPY: return do_copy(q, item);
    case PS_QUEUE_ITEM_FILL: return do_fill(q, item->fill.dst, item->fill.byte, item->fill.bytes);
    case PS_QUEUE_ITEM_CALL: return item->call.run(item->call.self, item->call.args); /* issues to the stream */
    case PS_QUEUE_ITEM_WAIT: return wait_for_event(q, q->base.issued + 1, item->wait.event, item->wait.ignores_failure);
    case PS_QUEUE_ITEM_MARK: return count_mark(q);
    }
    return PS_OK;
}

/* Records its event. An item that was issued in part, or has no event, gets no ticket to wait for: what the stream has
 * of it ends before its failure is reported. */
static ps_status end_item(ps_gpu_queue *q, ps_gpu_slot *s, ps_status st)
{
    const ps_cuda_driver *d = q->gpu->driver;
    if (st == PS_OK) st = ps_gpu_queue_reserve(q, 1);
    if (st == PS_OK) st = check(q, d->event_record(s->done, q->stream));
    q->current = NULL;
    s->n_commands = q->n_commands;
    if (st == PS_OK) return PS_OK;
    const ps_cu_result r = d->stream_wait(q->stream);
    q->n_commands_done = q->n_commands;
    if (r != PS_CU_SUCCESS) ps_gpu_lose(q->gpu, r, q->base.name); /* its progress is unknown */
    return st;
}

static ps_status submit(ps_queue *queue, const ps_queue_item *item, ps_ticket *out)
{
    ps_gpu_queue *q = (ps_gpu_queue *)queue;
    const bool is_dead = atomic_load(&q->failed_at) != 0; /* later items are not executed */
    const bool is_copy = item->kind == PS_QUEUE_ITEM_COPY, is_mark = item->kind == PS_QUEUE_ITEM_MARK;
    const bool is_timed = ps_profile_is_on(queue->observed.profile) && (is_copy || is_mark);
    ps_gpu_slot *s;
    PS_TRY(ps_gpu_enter(q->gpu));
    PS_TRY(take_slot(q, ps_queue_item_name(item), &s));
    ps_status st = is_timed ? record_time(q, &s->begin) : PS_OK;
    if (st == PS_OK && !is_dead) st = do_item(q, item);
    if (st == PS_OK && is_timed) st = record_time(q, &s->end);
    PS_TRY(end_item(q, s, st));
    s->is_copy = is_timed && is_copy;
    s->is_mark = is_timed && is_mark;
    *out = queue->issued + 1;
    return PS_OK;
}

ps_status ps_gpu_queue_release(ps_queue *queue, void *p, int64_t bytes, const ps_events *after, ps_event *out)
{
    ps_gpu_queue *q = (ps_gpu_queue *)queue;
    ps_gpu_slot *s;
    PS_TRY(ps_gpu_check_lost(q->gpu));
    PS_TRY(ps_gpu_check(q->gpu, q->gpu->driver->context_set(q->gpu->context), "context"));
    PS_TRY(take_slot(q, "freed memory", &s));
    ps_status st = PS_OK;
    for (int i = 0; st == PS_OK && i < after->n; i++) st = wait_for_event(q, queue->issued + 1, after->event[i], true);
    if (st == PS_OK) st = do_fill(q, p, 0xff, bytes);
    PS_TRY(end_item(q, s, st));
    queue->issued++;
    *out = ps_queue_event(queue);
    return PS_OK;
}

/* ---- create, destroy ---- */

static void join_gpu(ps_gpu_queue *q)
{
    pthread_mutex_lock(&q->gpu->lock);
    q->next = q->gpu->queues;
    q->gpu->queues = q;
    pthread_mutex_unlock(&q->gpu->lock);
}

static void leave_gpu(ps_gpu_queue *q)
{
    pthread_mutex_lock(&q->gpu->lock);
    ps_gpu_queue **p = &q->gpu->queues;
    while (*p != q) p = &(*p)->next;
    *p = q->next;
    pthread_mutex_unlock(&q->gpu->lock);
}

/* Its work is done, or the device is lost and it never will be. */
static void destroy(ps_queue *queue)
{
    ps_gpu_queue *q = (ps_gpu_queue *)queue;
    const ps_cuda_driver *d = q->gpu->driver;
    (void)wait_until(q, queue->issued);
    ps_gpu_fence_destroy(q);
    leave_gpu(q);
    if (q->gpu->space.external == queue) q->gpu->space.external = NULL;
    (void)d->context_set(q->gpu->context);
    if (!q->is_external && q->stream != NULL) (void)d->stream_destroy(q->stream);
    ps_gpu_staging_destroy(q);
    if (q->base_event != NULL && q->base_event != q->gpu->base) (void)d->event_destroy(q->base_event);
    for (int i = 0; i < PS_GPU_RING; i++) {
        ps_gpu_slot *s = &q->ring[i];
        if (s->done != NULL) (void)d->event_destroy(s->done);
        if (s->begin != NULL) (void)d->event_destroy(s->begin);
        if (s->end != NULL) (void)d->event_destroy(s->end);
    }
    pthread_cond_destroy(&q->has_changed);
    pthread_mutex_destroy(&q->lock);
    ps_mem_free(q);
}

/* Of its items in the ring. The driver is not asked: a call of it may be what hangs. */
static void describe(ps_queue *queue, ps_ticket t, char *text, size_t bytes)
{
    ps_gpu_queue *q = (ps_gpu_queue *)queue;
    if (pthread_mutex_trylock(&q->lock) != 0) return;
    const ps_ticket done = atomic_load(&q->done);
    const bool is_there = t > done && t <= done + PS_GPU_RING && t <= queue->issued;
    if (is_there)
        snprintf(text, bytes, "%s; it is at item %llu or later, %s", slot_of(q, t)->name, (unsigned long long)done + 1,
                 slot_of(q, done + 1)->name);
    pthread_mutex_unlock(&q->lock);
}

static const ps_queue_ops ops = {submit, wait_for, is_done, destroy, describe};

ps_status ps_gpu_queue_create(ps_gpu *g, const char *name, ps_cu_stream stream, int priority, ps_queue **out)
{
    ps_gpu_queue *q = NULL;
    *out = NULL;
    PS_TRY(ps_gpu_enter(g));
    PS_TRY(ps_mem_alloc(1, sizeof *q, &q));
    q->base.ops = &ops;
    snprintf(q->base.name, sizeof q->base.name, "%s", name);
    q->gpu = g;
    q->stream = stream;
    q->is_external = stream != NULL;
    q->base_event = g->base;
    q->base_ns = g->base_ns;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->has_changed, NULL);
    join_gpu(q);
    ps_status st = PS_OK;
    if (stream == NULL) st = check(q, g->driver->stream_create(&q->stream, PS_CU_STREAM_NON_BLOCKING, priority));
    if (st != PS_OK)
        destroy(&q->base);
    else
        *out = &q->base;
    return st;
}

ps_status ps_gpu_queue_create_of(ps_device *dev, const char *name, ps_queue_kind kind, ps_queue **out)
{
    if (ps_device_host_can_touch(dev) && kind == PS_QUEUE_COMPUTE) {
        PS_TRY(ps_gpu_enter(ps_device_driver(dev)));
        return ps_queue_thread_create(name, HOST_ITEMS, out);
    }
    /* priorities apply to kernels, not to copies */
    return ps_gpu_queue_create(ps_device_driver(dev), name, NULL, kind == PS_QUEUE_COLLECTIVES ? -1 : 0, out);
}

ps_status ps_gpu_open_external(ps_gpu *g, const char *name, void *stream, ps_queue **out)
{
    *out = NULL;
    if (stream == NULL)
        return PS_FAIL(PS_EINVAL, "cuda: the default stream (NULL) cannot be shared: make one (in PyTorch: "
                                  "torch.cuda.Stream()) and work on it");
    PS_TRY(ps_gpu_queue_create(g, name, stream, 0, out));
    g->space.external = *out;
    return PS_OK;
}

/* ---- release of memory ---- */

ps_event ps_gpu_release(ps_device *dev, void *p, int64_t bytes, const ps_events *after)
{
    static const ps_events none;
    ps_gpu *g = ps_device_driver(dev);
    ps_queue *q = g->releases[ps_device_host_can_touch(dev)];
    ps_event e;
    if (after == NULL) after = &none;
    bytes = g->options.poisons ? ps_round_up(bytes, g->page_bytes) : 0;
    pthread_mutex_lock(&g->release_lock);
    if (ps_gpu_queue_release(q, p, bytes, after, &e) != PS_OK) { /* the device is lost, or the host has no memory */
        for (int i = 0; i < after->n; i++) ps_event_outlast(after->event[i], PS_BLOCK_FREE);
        e = ps_queue_event(q); /* earlier releases are still waited for */
    }
    pthread_mutex_unlock(&g->release_lock);
    return e;
}
