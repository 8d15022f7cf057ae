/* observer.h - events of queues, devices and the disk, and their subscribers. Each place announces an event once:
 *
 *     places       queue.c, device.c, disk.c, the queues of cuda/
 *     events       ISSUED, DONE, WAITED, TOUCHED, FORGOTTEN
 *     subscribers  the checker of order (order.h), the clock of a simulated queue (sim_time.h), the recorder
 *                  (base/profile.h): the table of observer.c
 *
 * Waits that block a thread are counted in any case (blocking.h). Without a subscriber an event costs one comparison. A
 * new event is a line of ps_notice_kind, the place that announces it, and a subscriber that handles it. */
#ifndef PS_DEVICE_OBSERVER_H
#define PS_DEVICE_OBSERVER_H

#include <stdatomic.h>

#include "device/queue.h"

typedef enum ps_notice_kind {
    PS_NOTICE_ISSUED,    /* item `ticket`, which comes after `after`: `item`, `name`, `uses`; of a copy its `bytes` */
    PS_NOTICE_DONE,      /* a copy or mark was done from begin_ns to end_ns; `link` as passed to ps_queue_set_profile */
    PS_NOTICE_WAITED,    /* the host has waited for item `ticket` */
    PS_NOTICE_TOUCHED,   /* the host touches uses[0], under the name `name` */
    PS_NOTICE_FORGOTTEN, /* the addresses of uses[0] are no longer valid */
} ps_notice_kind;

typedef enum ps_queue_item_kind {
    PS_QUEUE_ITEM_CALL,
    PS_QUEUE_ITEM_COPY,
    PS_QUEUE_ITEM_FILL,
    PS_QUEUE_ITEM_WAIT,
    PS_QUEUE_ITEM_MARK
} ps_queue_item_kind;

typedef struct ps_notice {
    ps_notice_kind kind;
    ps_ticket ticket;
    ps_queue_item_kind item; /* of the disk, of host code: CALL */
    const ps_events *after;  /* NULL: nothing */
    const char *name;
    const ps_use *uses;
    int n_uses;
    int64_t bytes; /* of a copy; -1: it takes none of the queue's time */
    int lane;      /* of a transfer of the disk: its lane in sim_time.h */
    int64_t begin_ns, end_ns;
    uint8_t link;
} ps_notice;

typedef enum ps_observer_kind { PS_OBSERVER_ORDER, PS_OBSERVER_CLOCK, PS_OBSERVER_RECORDER } ps_observer_kind;

/* Of a queue or a device: its subscribers, and its identifier in each. */
typedef struct ps_observed {
    _Atomic unsigned observers; /* a bit for each kind; 0: none. The host writes, threads that carry items out read */
    struct ps_order *order;
    int order_id;               /* of a queue, in the checker of order */
    struct ps_sim_clock *clock; /* of the queue */
    ps_profile *profile;
    uint8_t profile_link;
} ps_observed;

typedef void ps_observer(const ps_observed *w, const ps_notice *n);

static inline void ps_observe(ps_observed *w, ps_observer_kind kind, bool looks_on)
{
    const unsigned now = atomic_load_explicit(&w->observers, memory_order_relaxed);
    atomic_store_explicit(&w->observers, looks_on ? now | 1u << kind : now & ~(1u << kind), memory_order_relaxed);
}

/* Slow path of ps_announce, when there is a subscriber. */
void ps_announce_to_all(const ps_observed *w, const ps_notice *n);

static inline void ps_announce(const ps_observed *w, const ps_notice *n)
{
    if (atomic_load_explicit(&w->observers, memory_order_relaxed) != 0) ps_announce_to_all(w, n);
}

#endif
