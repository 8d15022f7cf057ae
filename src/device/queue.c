#include "device/queue.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/fault.h"
#include "device/device.h"
#include "device/queue_impl.h"

#define LOOK_AGAIN_NS 20000

static void fill_in(ps_queue *q, ps_device *dev, const char *name)
{
    q->dev = dev;
    snprintf(q->name, sizeof q->name, "%s", name);
    ps_queue_set_order(q, ps_device_order(dev));
}

ps_status ps_queue_create(ps_device *dev, const char *name, ps_queue_kind kind, ps_queue **out)
{
    *out = NULL;
    PS_TRY(ps_device_get_ops(dev)->queue_create(dev, name, kind, out));
    fill_in(*out, dev, name);
    return PS_OK;
}

void ps_event_watch(ps_event e)
{
    atomic_fetch_add(&e.queue->n_watchers, 1);
}

void ps_event_unwatch(ps_event e)
{
    atomic_fetch_sub(&e.queue->n_watchers, 1);
}

/* Who waits is done soon after the queue is: it need not be waited for but here. */
static void outlast_watchers(const ps_queue *q)
{
    while (atomic_load(&q->n_watchers) > 0) nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
}

void ps_queue_destroy(ps_queue *q)
{
    if (q == NULL) return;
    if (!q->is_at_once) ps_block_note(q->block);
    outlast_watchers(q);
    ps_queue_set_order(q, NULL); /* it will be idle */
    q->ops->destroy(q);
}

const char *ps_queue_name(const ps_queue *q)
{
    return q->name;
}

/* Until it is done, well or not. */
static ps_status outlast(ps_event e, bool tells)
{
    const ps_status st = e.queue->ops->wait(e.queue, e.ticket, tells);
    if (e.queue->order != NULL) ps_order_host_wait(e.queue->order, e.queue->order_id, e.ticket);
    return st;
}

/* ---- items ---- */

static ps_status submit(ps_queue *q, const ps_item *item)
{
    ps_ticket t = 0;
    PS_TRY(q->ops->submit(q, item, &t));
    PS_ASSERT(t == q->issued + 1);
    q->issued = t;
    return PS_OK;
}

void ps_queue_tell_item(const ps_queue *q, const char *name, const ps_use *uses, int n_uses)
{
    if (q->order != NULL) ps_order_issue(q->order, q->order_id, q->issued, name, uses, n_uses);
}

static bool has_untold_failure(const ps_queue *q)
{
    const ps_ticket last = q->failed_last;
    return last != 0 && q->failed_first <= last;
}

static bool works_later(const ps_queue *q)
{
    return q->dev != NULL && ps_device_works_later(q->dev);
}

/* A copy made to fail moves nothing, as a real one might: code that misses the error reads wrong bytes. What is put may
 * be ids, which kernels use unseen: its failure is that of the call. So it is where devices work later: there nobody
 * looks at a copy before its bytes are used, and what fails by itself is lost for good. */
static ps_status submit_copy(ps_queue *q, void *dst, const void *src, int64_t bytes, bool is_put, bool is_get)
{
    PS_ASSERT(bytes >= 0);
    const bool fails = ps_fault_hit(PS_FAULT_COPY);
    if (fails && (is_put || works_later(q))) return PS_FAIL(PS_EDEVICE, "%s: a copy to it failed", q->name);
    PS_TRY(submit(q, &(ps_item){.kind = PS_ITEM_COPY, .copy = {dst, src, fails ? 0 : bytes, is_put, is_get}}));
    if (fails) {
        if (!has_untold_failure(q)) q->failed_first = q->issued;
        q->failed_last = q->issued;
    }
    const ps_use uses[] = {{src, bytes, false, NULL}, {dst, bytes, true, NULL}};
    if (is_put) ps_order_touch(q->order, "put", src, bytes, false);
    ps_queue_tell_item(q, is_put ? "put" : is_get ? "get" : "copy", uses + is_put, 2 - is_put);
    return PS_OK;
}

ps_status ps_queue_copy(ps_queue *q, void *dst, const void *src, int64_t bytes)
{
    return submit_copy(q, dst, src, bytes, false, false);
}

ps_status ps_queue_put(ps_queue *q, void *dst, const void *src, int64_t bytes)
{
    return submit_copy(q, dst, src, bytes, true, false);
}

ps_status ps_queue_get(ps_queue *q, void *dst, const void *src, int64_t bytes)
{
    if (!q->is_at_once) ps_block_note(PS_BLOCK_READ);
    PS_TRY(submit_copy(q, dst, src, bytes, false, true));
    const ps_event e = ps_queue_event(q);
    PS_TRY(outlast(e, true));
    return ps_event_tell_failed_copy(e);
}

ps_status ps_queue_fill(ps_queue *q, void *dst, uint8_t byte, int64_t bytes)
{
    PS_ASSERT(bytes >= 0);
    PS_TRY(submit(q, &(ps_item){.kind = PS_ITEM_FILL, .fill = {.dst = dst, .bytes = bytes, .byte = byte}}));
    ps_queue_tell_item(q, "fill", &(ps_use){dst, bytes, true, NULL}, 1);
    return PS_OK;
}

bool ps_queue_wants_uses(const ps_queue *q)
{
    return q->needs_uses || q->order != NULL;
}

ps_status ps_queue_call(ps_queue *q, const ps_call *call)
{
    PS_ASSERT(call->args_bytes <= PS_CALL_ARGS_BYTES_MAX);
    PS_TRY(submit(q, &(ps_item){.kind = PS_ITEM_CALL, .call = *call}));
    ps_queue_tell_item(q, call->name, call->uses, call->n_uses);
    return PS_OK;
}

static ps_status compute_nothing(void *self, const void *args)
{
    (void)self, (void)args;
    return PS_OK;
}

ps_status ps_queue_issue_use(ps_queue *q, const char *name, const ps_use *use)
{
    return ps_queue_call(q, &(ps_call){.name = name, .run = compute_nothing, .uses = use, .n_uses = 1});
}

ps_status ps_queue_mark(ps_queue *q, ps_event *out)
{
    PS_TRY(submit(q, &(ps_item){.kind = PS_ITEM_MARK}));
    *out = ps_queue_event(q);
    return PS_OK;
}

/* ---- events ---- */

ps_event ps_queue_event(const ps_queue *q)
{
    return (ps_event){(ps_queue *)(uintptr_t)q, q->issued};
}

/* To who waits, whichever thread or queue that is: of several one. */
ps_status ps_event_tell_failed_copy(ps_event e)
{
    ps_queue *q = e.queue;
    ps_ticket first = q->failed_first;
    do {
        if (!has_untold_failure(q) || e.ticket < first) return PS_OK;
    } while (!atomic_compare_exchange_weak(&q->failed_first, &first, e.ticket + 1));
    return PS_FAIL(PS_EDEVICE, "%s: copy %llu failed", q->name, (unsigned long long)first);
}

void ps_queue_tell_wait(const ps_queue *q, ps_ticket t, ps_event e)
{
    if (q->order != NULL && e.queue->order == q->order)
        ps_order_queue_wait(q->order, q->order_id, t, e.queue->order_id, e.ticket);
}

static bool is_nothing(ps_event e)
{
    return e.queue == NULL || e.ticket == 0;
}

static ps_status wait_on(ps_queue *q, ps_event e, bool ignores_failure)
{
    PS_TRY(submit(q, &(ps_item){.kind = PS_ITEM_WAIT, .wait = {e, ignores_failure}}));
    ps_queue_tell_wait(q, q->issued, e);
    return PS_OK;
}

ps_status ps_queue_wait(ps_queue *q, ps_event e)
{
    if (is_nothing(e) || e.queue == q) return PS_OK;
    PS_TRY(ps_event_tell_failed_copy(e));
    return wait_on(q, e, false);
}

void ps_event_outlast(ps_event e, ps_block why)
{
    if (is_nothing(e)) return;
    if (!e.queue->is_at_once) ps_block_note(why);
    (void)outlast(e, false);
}

ps_status ps_event_wait_as(ps_event e, ps_block why)
{
    if (is_nothing(e)) return PS_OK;
    if (!e.queue->is_at_once) ps_block_note(why);
    PS_TRY(outlast(e, true));
    return ps_event_tell_failed_copy(e);
}

ps_status ps_event_wait(ps_event e)
{
    return is_nothing(e) ? PS_OK : ps_event_wait_as(e, e.queue->block);
}

bool ps_event_is_done(ps_event e)
{
    return is_nothing(e) || e.queue->ops->is_done(e.queue, e.ticket);
}

void ps_events_add(ps_events *all, ps_event e)
{
    if (is_nothing(e)) return;
    int i = 0;
    while (i < all->n && all->event[i].queue != e.queue) i++;
    PS_ASSERT(i < PS_EVENTS_MAX);
    if (i == all->n)
        all->event[all->n++] = e;
    else if (e.ticket > all->event[i].ticket)
        all->event[i] = e;
}

void ps_events_add_all(ps_events *all, const ps_events *more)
{
    for (int i = 0; i < more->n; i++) ps_events_add(all, more->event[i]);
}

ps_status ps_queue_wait_all(ps_queue *q, const ps_events *all)
{
    for (int i = 0; i < all->n; i++) PS_TRY(ps_queue_wait(q, all->event[i]));
    return PS_OK;
}

ps_status ps_events_wait(const ps_events *all)
{
    ps_status first = PS_OK;
    for (int i = 0; i < all->n; i++) {
        const ps_status st = ps_event_wait(all->event[i]);
        if (first == PS_OK) first = st;
    }
    return first;
}

/* ---- waits that a test can switch off ---- */

ps_status ps_queue_wait_at(ps_queue *q, ps_event e, ps_wait_site site)
{
    if (is_nothing(e) || e.queue == q || ps_order_skips(q->order, site)) return PS_OK;
    return ps_queue_wait(q, e);
}

ps_status ps_queue_wait_all_at(ps_queue *q, const ps_events *all, ps_wait_site site)
{
    for (int i = 0; i < all->n; i++) PS_TRY(ps_queue_wait_at(q, all->event[i], site));
    return PS_OK;
}

ps_status ps_queue_outlast_at(ps_queue *q, ps_event e, ps_wait_site site)
{
    if (is_nothing(e) || e.queue == q || ps_order_skips(q->order, site)) return PS_OK;
    return wait_on(q, e, true);
}

void ps_events_add_at(ps_events *all, ps_event e, ps_wait_site site)
{
    if (!is_nothing(e) && !ps_order_skips(e.queue->order, site)) ps_events_add(all, e);
}

void ps_events_add_all_at(ps_events *all, const ps_events *more, ps_wait_site site)
{
    for (int i = 0; i < more->n; i++) ps_events_add_at(all, more->event[i], site);
}

ps_status ps_event_wait_at(ps_event e, ps_wait_site site)
{
    if (is_nothing(e) || ps_order_skips(e.queue->order, site)) return PS_OK;
    return ps_event_wait(e);
}

ps_status ps_events_wait_at(const ps_events *all, ps_wait_site site)
{
    ps_status first = PS_OK;
    for (int i = 0; i < all->n; i++) {
        const ps_status st = ps_event_wait_at(all->event[i], site);
        if (first == PS_OK) first = st;
    }
    return first;
}

/* ---- looking on ---- */

void ps_queue_set_order(ps_queue *q, ps_order *o)
{
    if (q->order != NULL) ps_order_remove_queue(q->order, q->order_id);
    q->order = o;
    if (o != NULL) q->order_id = ps_order_add_queue(o, q->name, q->is_at_once ? PS_ORDER_AT_ONCE : PS_ORDER_IN_ORDER);
}

ps_event ps_host_queue_begin_item(ps_queue *q, const char *name, const ps_events *after, const ps_use *uses, int n_uses)
{
    const ps_event e = ps_host_queue_begin(q);
    for (int i = 0; i < after->n; i++) ps_queue_tell_wait(q, e.ticket, after->event[i]);
    ps_queue_tell_item(q, name, uses, n_uses);
    return e;
}

void ps_queue_set_profile(ps_queue *q, ps_profile *p, int link)
{
    q->profile = p;
    q->profile_link = (uint8_t)link;
}

/* On the thread that does the queue's items: the host's where these are done within the call. */
static ps_status wait_here(const ps_event *e, bool ignores_failure)
{
    if (!e->queue->is_at_once) ps_block_note(e->queue->block);
    const ps_status st = e->queue->ops->wait(e->queue, e->ticket, !ignores_failure);
    return ignores_failure ? PS_OK : st;
}

ps_status ps_queue_carry_out(const ps_queue *q, const ps_item *item, ps_ticket t)
{
    const int64_t begin_ns = ps_profile_now(q->profile);
    switch (item->kind) {
    case PS_ITEM_COPY:
        if (item->copy.bytes > 0) memcpy(item->copy.dst, item->copy.src, (size_t)item->copy.bytes);
        ps_queue_record_copy(q, t, begin_ns, ps_profile_now(q->profile));
        return PS_OK;
    case PS_ITEM_FILL:
        if (item->fill.bytes > 0) memset(item->fill.dst, item->fill.byte, (size_t)item->fill.bytes);
        return PS_OK;
    case PS_ITEM_CALL: return item->call.run(item->call.self, item->call.args);
    case PS_ITEM_WAIT: return wait_here(&item->wait.event, item->wait.ignores_failure);
    case PS_ITEM_MARK: ps_queue_record_mark(q, t, begin_ns); return PS_OK;
    }
    return PS_OK;
}

static void record(const ps_queue *q, ps_profile_kind kind, ps_ticket t, int64_t begin_ns, int64_t end_ns)
{
    ps_profile_add(q->profile, &(ps_profile_record){.kind = kind,
                                                    .chunk = -1,
                                                    .begin_ns = begin_ns,
                                                    .end_ns = end_ns,
                                                    .copy = {.ticket = t, .link = q->profile_link}});
}

void ps_queue_record_copy(const ps_queue *q, ps_ticket t, int64_t begin_ns, int64_t end_ns)
{
    record(q, PS_PROFILE_MOVED, t, begin_ns, end_ns);
}

void ps_queue_record_mark(const ps_queue *q, ps_ticket t, int64_t at_ns)
{
    record(q, PS_PROFILE_MARK, t, at_ns, at_ns);
}
