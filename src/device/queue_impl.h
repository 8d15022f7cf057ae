/* queue_impl.h - the interface inside queues: queue.c has the public calls, a table of ps_queue_ops implements them. */
#ifndef PS_DEVICE_QUEUE_IMPL_H
#define PS_DEVICE_QUEUE_IMPL_H

#include <stdatomic.h>

#include "device/blocking.h"
#include "device/observer.h"
#include "device/order.h"

/* An item to issue: valid during `submit`, which copies what it keeps. */
typedef struct ps_queue_item {
    ps_queue_item_kind kind;
    union {
        struct {
            void *dst;
            const void *src;
            int64_t bytes; /* 0: a copy that a test makes fail; it still takes a ticket */
            bool is_put;   /* src may be reused when submit returns */
            bool is_get;   /* dst is filled when submit returns */
        } copy;
        struct {
            void *dst;
            int64_t bytes;
            uint8_t byte;
        } fill;
        ps_call call;
        struct {
            ps_event event; /* of another queue */
            bool ignores_failure;
        } wait;
    };
} ps_queue_item;

typedef struct ps_queue_ops {
    /* The next item; *out: its ticket, one more than the last one's. Need not be thread-safe. */
    ps_status (*submit)(ps_queue *q, const ps_queue_item *item, ps_ticket *out);
    /* Any thread. Returns a failure of an item up to t; failures that are returned once, only when `tells`. */
    ps_status (*wait)(ps_queue *q, ps_ticket t, bool tells);
    bool (*is_done)(ps_queue *q, ps_ticket t); /* any thread */
    void (*destroy)(ps_queue *q);              /* waits until idle */
    /* What item t is, and what the queue is at, for reports of a stall; any thread, and no lock is waited for. NULL: there
     * is nothing to say. */
    void (*describe)(ps_queue *q, ps_ticket t, char *text, size_t bytes);
} ps_queue_ops;

/* First member of every queue. queue.c fills it except ops, which create sets. */
struct ps_queue {
    const ps_queue_ops *ops;
    ps_device *dev;           /* NULL: of no device */
    char name[32];            /* truncated */
    _Atomic ps_ticket issued; /* the last ticket; reports of a stall read it on another thread */
    atomic_int n_watchers;    /* waits for its events by other threads that have not ended: the queue outlives them */
    _Atomic ps_ticket failed_first,
        failed_last;   /* injected failures of copies, not returned yet; last 0, or before first: none */
    bool is_at_once;   /* set by create: items are done when submit returns */
    ps_block block;    /* what the host waits for when it waits for it */
    bool in_any_order; /* set by create: items are done independently */
    bool is_of_ranks;  /* its items are transfers between ranks: other ranks may be why they are late */
    ps_observed observed;
};

/* "a copy", or the name of the call. */
const char *ps_queue_item_name(const ps_queue_item *item);
/* Executes item t now, on this thread. */
PS_NODISCARD ps_status ps_queue_execute(const ps_queue *q, const ps_queue_item *item, ps_ticket t);
/* A copy or a mark of the queue was done from begin_ns to end_ns. */
void ps_queue_announce_done(const ps_queue *q, ps_queue_item_kind item, ps_ticket t, int64_t begin_ns, int64_t end_ns);
/* The item issued last: of its notice kind and ticket are filled in. */
static inline void ps_queue_announce_issued(const ps_queue *q, ps_notice n)
{
    n.kind = PS_NOTICE_ISSUED;
    n.ticket = q->issued;
    ps_announce(&q->observed, &n);
}

/* Registers another thread's wait for the event; and its end. */
void ps_event_watch(ps_event e);
void ps_event_unwatch(ps_event e);
/* Every wait for an item: until it is done, as ps_queue_ops.wait; a stall names it. No lock is held. */
PS_NODISCARD ps_status ps_queue_await(ps_queue *q, ps_ticket t, bool tells);
/* Waits without taking the failure, which is still returned to users of the failed items. */
void ps_event_outlast(ps_event e, ps_block why);
/* The failure of a copy up to the event that was not returned yet. */
PS_NODISCARD ps_status ps_event_report_failed_copy(ps_event e);

/* queue_now.c: everything is done within the call that issues it; nothing at all where addresses have no memory. */
PS_NODISCARD ps_status ps_queue_now_create(bool does_nothing, ps_queue **out);
/* queue_thread.c: a thread does one item after the other; while n_items are in flight, issuing another blocks. */
PS_NODISCARD ps_status ps_queue_thread_create(const char *name, int n_items, ps_queue **out);

#endif
