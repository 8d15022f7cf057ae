/* queue_impl.h - the seam inside queues: queue.c is what callers see, a table of ps_queue_ops does the work. */
#ifndef PS_DEVICE_QUEUE_IMPL_H
#define PS_DEVICE_QUEUE_IMPL_H

#include "device/blocking.h"
#include <stdatomic.h>

#include "device/order.h"

typedef enum ps_item_kind { PS_ITEM_COPY, PS_ITEM_FILL, PS_ITEM_CALL, PS_ITEM_WAIT, PS_ITEM_MARK } ps_item_kind;

/* What is issued: valid during `submit`, which copies what it keeps. */
typedef struct ps_item {
    ps_item_kind kind;
    union {
        struct {
            void *dst;
            const void *src;
            int64_t bytes; /* 0: a copy that a test makes fail; it still takes a ticket */
            bool is_put;   /* src is the caller's again when submit returns */
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
} ps_item;

typedef struct ps_queue_ops {
    /* The next item; *out: its ticket, one more than the last one's. Thread-safe is not asked for. */
    ps_status (*submit)(ps_queue *q, const ps_item *item, ps_ticket *out);
    /* Any thread. The failure of a call up to t; what is told once, only when `tells`. */
    ps_status (*wait)(ps_queue *q, ps_ticket t, bool tells);
    bool (*is_done)(ps_queue *q, ps_ticket t); /* any thread */
    void (*destroy)(ps_queue *q);              /* waits until idle */
} ps_queue_ops;

/* First member of every queue. queue.c fills it, but for ops, which create does. */
struct ps_queue {
    const ps_queue_ops *ops;
    ps_device *dev;   /* NULL: of no device */
    char name[32];    /* cut */
    ps_ticket issued; /* the last ticket */
    atomic_int
        n_watchers; /* waits for its events that other threads were given, and are not done with: it outlives them */
    _Atomic ps_ticket failed_first,
        failed_last;     /* copies that a test made fail and were not told yet; last 0, or before first: none */
    ps_profile *profile; /* NULL: none */
    uint8_t profile_link;
    bool is_at_once;            /* set by create, as the two below: what it is given is done when submit returns */
    bool needs_uses;            /* of each call: it must know its addresses */
    ps_block block;             /* what the host waits for when it waits for it */
    struct ps_sim_clock *clock; /* of a simulated queue that has time (sim_time_impl.h), its own; NULL: none */
    int order_id;               /* of the checker's */
    ps_order *order;            /* NULL: nobody looks at the order of items */
};

/* Do item t now, on this thread. */
PS_NODISCARD ps_status ps_queue_carry_out(const ps_queue *q, const ps_item *item, ps_ticket t);
/* For a profile: begin and end of the copy with this ticket; when the mark with this ticket was reached. */
void ps_queue_record_copy(const ps_queue *q, ps_ticket t, int64_t begin_ns, int64_t end_ns);
void ps_queue_record_mark(const ps_queue *q, ps_ticket t, int64_t at_ns);

/* To who looks at the order: the item issued last; that item t of the queue and all behind it come after an event. */
void ps_queue_tell_item(const ps_queue *q, const char *name, const ps_use *uses, int n_uses);
void ps_queue_tell_wait(const ps_queue *q, ps_ticket t, ps_event e);
/* Another thread is given a wait for the event; and it is done with that, or gives it up. */
void ps_event_watch(ps_event e);
void ps_event_unwatch(ps_event e);
/* The caller waits, and what failed is still to be told to who wants what it is about. */
void ps_event_outlast(ps_event e, ps_block why);
/* The failure of a copy up to the event that nobody was told of yet. */
PS_NODISCARD ps_status ps_event_tell_failed_copy(ps_event e);

/* queue_now.c: everything is done within the call that issues it; or nothing is, where addresses have no memory. */
PS_NODISCARD ps_status ps_queue_now_create(bool does_nothing, ps_queue **out);
/* queue_thread.c: a thread does one item after the other; when n_items are under way, who issues another waits. */
PS_NODISCARD ps_status ps_queue_thread_create(const char *name, int n_items, ps_queue **out);

#endif
