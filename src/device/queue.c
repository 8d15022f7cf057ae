#include "device/queue.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/fault.h"
#include "device/device.h"
#include "device/queue_impl.h"
#include "device/stall.h"

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

/* Other waiters finish soon after the queue does, so only destroy waits for them. */
static void outlast_watchers(const ps_queue *q)
{
    while (atomic_load(&q->n_watchers) > 0) nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
}

/* The calling thread is about to block on the queue. */
static void note_block(const ps_queue *q, ps_block why)
{
    if (!q->is_at_once) ps_block_note(why);
}

void ps_queue_destroy(ps_queue *q)
{
    if (q == NULL) return;
    note_block(q, q->block);
    outlast_watchers(q);
    ps_queue_set_order(q, NULL); /* it will be idle */
    if (q->issued > 0)
        (void)!ps_queue_await(q, q->issued, false); /* in the table of stalls, which the queue leaves first */
    q->ops->destroy(q);
}

const char *ps_queue_name(const ps_queue *q)
{
    return q->name;
}

ps_status ps_queue_await(ps_queue *q, ps_ticket t, bool tells)
{
    ps_stall_entry s;
    if (q->is_at_once) return q->ops->wait(q, t, tells);
    ps_stall_begin_item(&s, "waits for", q, t, NULL);
    const ps_status st = q->ops->wait(q, t, tells);
    ps_stall_end(&s);
    return st;
}

/* Waits until it is done, failed or not. */
static ps_status outlast(ps_event e, bool tells)
{
    const ps_status st = ps_queue_await(e.queue, e.ticket, tells);
    ps_announce(&e.queue->observed, &(ps_notice){.kind = PS_NOTICE_WAITED, .ticket = e.ticket});
    return st;
}

/* ---- items ---- */

const char *ps_queue_item_name(const ps_queue_item *item)
{
    switch (item->kind) {
    case PS_QUEUE_ITEM_COPY: return "a copy";
    case PS_QUEUE_ITEM_FILL: return "a fill";
    case PS_QUEUE_ITEM_CALL: return item->call.name != NULL ? item->call.name : "a call";
    case PS_QUEUE_ITEM_WAIT: return "a wait";
    case PS_QUEUE_ITEM_MARK: return "a mark";
    }
    return "nothing";
}

/* It may wait for room. */
static ps_status issue(ps_queue *q, const ps_queue_item *item, ps_ticket *out)
{
    ps_stall_entry s;
    if (q->is_at_once) return q->ops->submit(q, item, out);
    ps_stall_begin_item(&s, "issues", q, q->issued + 1, ps_queue_item_name(item));
    const ps_status st = q->ops->submit(q, item, out);
    ps_stall_end(&s);
    return st;
}

static ps_status submit(ps_queue *q, const ps_queue_item *item)
{
    ps_ticket t = 0;
    PS_TRY(issue(q, item, &t));
    PS_ASSERT(t == q->issued + 1);
    q->issued = t;
    return PS_OK;
}

static bool has_untold_failure(const ps_queue *q)
{
    const ps_ticket last = q->failed_last;
    return last != 0 && q->failed_first <= last;
}

static bool is_asynchronous(const ps_queue *q)
{
    return q->dev != NULL && ps_device_is_asynchronous(q->dev);
}

/* An injected failure of a copy moves nothing: code that misses the error reads wrong bytes. A put may hold ids, which
 * kernels use unchecked: its failure is that of the call. So is any failure on an asynchronous device: there no check
 * happens before the bytes are used, and a failed item makes the queue fail permanently. */
static ps_status submit_copy(ps_queue *q, void *dst, const void *src, int64_t bytes, bool is_put, bool is_get)
{
    PS_ASSERT(bytes >= 0);
    const bool fails = ps_fault_hit(PS_FAULT_COPY);
    if (fails && (is_put || is_asynchronous(q))) return PS_FAIL(PS_EDEVICE, "%s: a copy to it failed", q->name);
    PS_TRY(
        submit(q, &(ps_queue_item){.kind = PS_QUEUE_ITEM_COPY, .copy = {dst, src, fails ? 0 : bytes, is_put, is_get}}));
    if (fails) {
        if (!has_untold_failure(q)) q->failed_first = q->issued;
        q->failed_last = q->issued;
    }
    const ps_use uses[] = {{src, bytes, false, NULL}, {dst, bytes, true, NULL}};
    if (is_put) ps_announce(&q->observed, &(ps_notice){.kind = PS_NOTICE_TOUCHED, .name = "put", .uses = uses});
    const char *name = is_put ? "put" : is_get ? "get" : "copy";
    const int64_t timed_bytes = is_put || is_get ? -1 : fails ? 0 : bytes;
    ps_queue_announce_issued(q, (ps_notice){.item = PS_QUEUE_ITEM_COPY,
                                            .name = name,
                                            .uses = uses + is_put,
                                            .n_uses = 2 - is_put,
                                            .bytes = timed_bytes});
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
    note_block(q, PS_BLOCK_READ);
    PS_TRY(submit_copy(q, dst, src, bytes, false, true));
    const ps_event e = ps_queue_event(q);
    PS_TRY(outlast(e, true));
    return ps_event_report_failed_copy(e);
}

ps_status ps_queue_fill(ps_queue *q, void *dst, uint8_t byte, int64_t bytes)
{
    PS_ASSERT(bytes >= 0);
    PS_TRY(submit(q, &(ps_queue_item){.kind = PS_QUEUE_ITEM_FILL, .fill = {.dst = dst, .bytes = bytes, .byte = byte}}));
    const ps_use use = {dst, bytes, true, NULL};
    ps_queue_announce_issued(q, (ps_notice){.item = PS_QUEUE_ITEM_FILL, .name = "fill", .uses = &use, .n_uses = 1});
    return PS_OK;
}

bool ps_queue_wants_uses(const ps_queue *q)
{
    return q->observed.order != NULL;
}

ps_status ps_queue_call(ps_queue *q, const ps_call *call)
{
    PS_ASSERT(call->args_bytes <= PS_CALL_ARGS_BYTES_MAX);
    PS_TRY(submit(q, &(ps_queue_item){.kind = PS_QUEUE_ITEM_CALL, .call = *call}));
    ps_queue_announce_issued(q, (ps_notice){.name = call->name, .uses = call->uses, .n_uses = call->n_uses});
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
    PS_TRY(submit(q, &(ps_queue_item){.kind = PS_QUEUE_ITEM_MARK}));
    ps_queue_announce_issued(q, (ps_notice){.item = PS_QUEUE_ITEM_MARK});
    *out = ps_queue_event(q);
    return PS_OK;
}

/* ---- events ---- */

ps_event ps_queue_event(const ps_queue *q)
{
    return (ps_event){(ps_queue *)(uintptr_t)q, q->issued};
}

/* Returns the failure to one waiter, a thread or a queue. */
ps_status ps_event_report_failed_copy(ps_event e)
{
    ps_queue *q = e.queue;
    ps_ticket first = q->failed_first;
    do {
        if (!has_untold_failure(q) || e.ticket < first) return PS_OK;
    } while (!atomic_compare_exchange_weak(&q->failed_first, &first, e.ticket + 1));
    return PS_FAIL(PS_EDEVICE, "%s: copy %llu failed", q->name, (unsigned long long)first);
}

static bool is_nothing(ps_event e)
{
    return e.queue == NULL || e.ticket == 0;
}

static ps_status wait_on(ps_queue *q, ps_event e, bool ignores_failure)
{
    PS_TRY(submit(q, &(ps_queue_item){.kind = PS_QUEUE_ITEM_WAIT, .wait = {e, ignores_failure}}));
    ps_queue_announce_issued(q, (ps_notice){.item = PS_QUEUE_ITEM_WAIT, .after = &(ps_events){1, {e}}});
    return PS_OK;
}

ps_status ps_queue_wait(ps_queue *q, ps_event e)
{
    if (is_nothing(e) || e.queue == q) return PS_OK;
    PS_TRY(ps_event_report_failed_copy(e));
    return wait_on(q, e, false);
}

void ps_event_outlast(ps_event e, ps_block why)
{
    if (is_nothing(e)) return;
    note_block(e.queue, why);
    (void)outlast(e, false);
}

ps_status ps_event_wait_as(ps_event e, ps_block why)
{
    if (is_nothing(e)) return PS_OK;
    note_block(e.queue, why);
    PS_TRY(outlast(e, true));
    return ps_event_report_failed_copy(e);
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
    if (is_nothing(e) || e.queue == q || ps_order_skips(q->observed.order, site)) return PS_OK;
    return ps_queue_wait(q, e);
}

ps_status ps_queue_wait_all_at(ps_queue *q, const ps_events *all, ps_wait_site site)
{
    for (int i = 0; i < all->n; i++) PS_TRY(ps_queue_wait_at(q, all->event[i], site));
    return PS_OK;
}

ps_status ps_queue_outlast_at(ps_queue *q, ps_event e, ps_wait_site site)
{
    if (is_nothing(e) || e.queue == q || ps_order_skips(q->observed.order, site)) return PS_OK;
    return wait_on(q, e, true);
}

void ps_events_add_at(ps_events *all, ps_event e, ps_wait_site site)
{
    if (!is_nothing(e) && !ps_order_skips(e.queue->observed.order, site)) ps_events_add(all, e);
}

void ps_events_add_all_at(ps_events *all, const ps_events *more, ps_wait_site site)
{
    for (int i = 0; i < more->n; i++) ps_events_add_at(all, more->event[i], site);
}

ps_status ps_event_wait_at(ps_event e, ps_wait_site site)
{
    if (is_nothing(e) || ps_order_skips(e.queue->observed.order, site)) return PS_OK;
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

/* ---- profiling ---- */

ps_event ps_host_queue_begin_item(ps_queue *q, const char *name, const ps_events *after, const ps_use *uses, int n_uses)
{
    const ps_event e = ps_host_queue_begin(q);
    ps_queue_announce_issued(q, (ps_notice){.after = after, .name = name, .uses = uses, .n_uses = n_uses});
    return e;
}

void ps_queue_set_order(ps_queue *q, ps_order *o)
{
    ps_observed *w = &q->observed;
    if (w->order != NULL) ps_order_remove_queue(w->order, w->order_id);
    w->order = o;
    ps_observe(w, PS_OBSERVER_ORDER, o != NULL);
    if (o == NULL) return;
    w->order_id = ps_order_add_queue(o, q->name,
                                     q->in_any_order ? PS_ORDER_ANY_ORDER
                                     : q->is_at_once ? PS_ORDER_AT_ONCE
                                                     : PS_ORDER_IN_ORDER);
}

void ps_queue_set_profile(ps_queue *q, ps_profile *p, int link)
{
    q->observed.profile = p;
    q->observed.profile_link = (uint8_t)link;
    ps_observe(&q->observed, PS_OBSERVER_RECORDER, p != NULL);
}

/* On the thread that executes the queue's items: the host's where they are done within the call. */
static ps_status wait_here(const ps_event *e, bool ignores_failure)
{
    note_block(e->queue, e->queue->block);
    const ps_status st = ps_queue_await(e->queue, e->ticket, !ignores_failure);
    return ignores_failure ? PS_OK : st;
}

static ps_status execute(const ps_queue *q, const ps_queue_item *item, ps_ticket t)
{
    const int64_t begin_ns = ps_profile_now(q->observed.profile);
    switch (item->kind) {
    case PS_QUEUE_ITEM_COPY:
        if (item->copy.bytes > 0) memcpy(item->copy.dst, item->copy.src, (size_t)item->copy.bytes);
        ps_queue_announce_done(q, item->kind, t, begin_ns, ps_profile_now(q->observed.profile));
        return PS_OK;
    case PS_QUEUE_ITEM_FILL:
        if (item->fill.bytes > 0) memset(item->fill.dst, item->fill.byte, (size_t)item->fill.bytes);
        return PS_OK;
    case PS_QUEUE_ITEM_CALL: return item->call.run(item->call.self, item->call.args);
    case PS_QUEUE_ITEM_WAIT: return wait_here(&item->wait.event, item->wait.ignores_failure);
    case PS_QUEUE_ITEM_MARK: ps_queue_announce_done(q, item->kind, t, begin_ns, begin_ns); return PS_OK;
    }
    return PS_OK;
}

ps_status ps_queue_execute(const ps_queue *q, const ps_queue_item *item, ps_ticket t)
{
    ps_stall_entry s;
    ps_stall_begin_item(&s, "executes", (ps_queue *)(uintptr_t)q, t, ps_queue_item_name(item));
    const ps_status st = execute(q, item, t);
    ps_stall_end(&s);
    return st;
}

void ps_queue_announce_done(const ps_queue *q, ps_queue_item_kind item, ps_ticket t, int64_t begin_ns, int64_t end_ns)
{
    ps_announce(&q->observed, &(ps_notice){.kind = PS_NOTICE_DONE,
                                           .ticket = t,
                                           .item = item,
                                           .begin_ns = begin_ns,
                                           .end_ns = end_ns,
                                           .link = q->observed.profile_link});
}
