/* order.h - a checker of order: it finds two accesses to the same bytes, one of them a write, that nothing orders.
 *
 * It is told of all that is issued to the queues it looks at, with the bytes that each item reads and writes, of waits
 * for events, and of what the host touches. What is ordered follows from that alone, never from when things happened to
 * be done: so one run finds what another schedule would break, and a trial on simulated tiers what real ones would.
 *
 *     host       copy A -> M      wait(compute, A)      gelu reads M      free M
 *     copies     |===== A =====|
 *     compute                  '------------------------> |=== gelu ===|             A before gelu: the wait
 *                                                                   '..?..'          gelu and free: a report
 *
 * Item a is before item b when they are of one queue and a was issued first; when b's queue has waited for an event of
 * a or of what is after a; when the host had done so as it issued b. What the host touches is before all that it issues
 * later, and after what it has waited for. To ask whether an event is done orders nothing.
 *
 * What is given back is not forgotten: who gets it next must come after whoever had it, by release events. Only
 * addresses that a simulated device gives back to the system are, which may be of another one next.
 *
 * The host is the thread that made the checker. It issues, waits and touches; waits of other threads order nothing, and
 * what they issue is reported. Work of other threads is an item of a queue: of one with a thread, or of a host queue
 * (ps_host_queue_begin_item). Any function here may be called by any thread.
 *
 * Memory (base/mem.h) is taken for what the host has not waited for yet: it must do so now and then. When none is to be
 * had the checker gives up, which it reports. Queues without a checker pay for one comparison. */
#ifndef PS_DEVICE_ORDER_H
#define PS_DEVICE_ORDER_H

#include "device/device.h"
#include "device/disk.h"

typedef struct ps_order ps_order;

/* ---- places that wait ---- */

/* Each place in the code that waits for events, and what it is for. A test switches off one after the other and expects
 * a report: a wait that nobody misses is not needed. */
#define PS_WAIT_SITES(XX)                                                                                              \
    XX(ARRIVAL, "arrival", "a moment computes after its chunks have arrived")                                          \
    XX(CHANGE, "change", "a chunk is changed, or begins, after what used its memory before")                           \
    XX(WRITE_BACK, "write-back", "a chunk is copied on after what changes it")                                         \
    XX(ROOM, "room", "a chunk's memory is filled after what used it before")                                           \
    XX(EXCHANGE, "exchange", "operators use chunks after other ranks' parts have arrived")                             \
    XX(BOUNCE, "bounce", "a piece between disk and device is filled after what it held before has left")               \
    XX(BOUNCED, "bounced", "what such a piece holds goes on when all of it is there")                                  \
    XX(ACTIVATIONS, "activations", "memory of activations is used after what used it before")                          \
    XX(BLOCK, "block", "what the host computes next is brought after what it computed before")                         \
    XX(BROUGHT, "brought", "the host computes after the device has brought what it needs")                             \
    XX(RESULT, "result", "the device goes on after what the host has computed for it")                                 \
    XX(FREE, "free", "the host takes memory back after what used it")

typedef enum ps_wait_site {
#define XX(site, name, text) PS_WAIT_##site,
    PS_WAIT_SITES(XX)
#undef XX
        PS_WAIT_SITE_COUNT,
} ps_wait_site;

const char *ps_wait_site_name(ps_wait_site site);
const char *ps_wait_site_text(ps_wait_site site);

/* As their namesakes of queue.h, unless the checker of the queue, or for the host of the event's, skips the site. */
PS_NODISCARD ps_status ps_queue_wait_at(ps_queue *q, ps_event e, ps_wait_site site);
PS_NODISCARD ps_status ps_queue_wait_all_at(ps_queue *q, const ps_events *all, ps_wait_site site);
/* The queue goes on when the event is done, well or not: who waits for it too is told of a failure. */
PS_NODISCARD ps_status ps_queue_outlast_at(ps_queue *q, ps_event e, ps_wait_site site);
/* ps_events_add, for what is handed to somebody who waits for all of them. */
void ps_events_add_at(ps_events *all, ps_event e, ps_wait_site site);
void ps_events_add_all_at(ps_events *all, const ps_events *more, ps_wait_site site);
PS_NODISCARD ps_status ps_event_wait_at(ps_event e, ps_wait_site site);
PS_NODISCARD ps_status ps_events_wait_at(const ps_events *all, ps_wait_site site);

/* ---- a checker ---- */

/* as_if_later: what is done within the call that issues it (queues of RAM for computing, all of sim) is taken as done
 * later, as a GPU does. */
PS_NODISCARD ps_status ps_order_create(bool as_if_later, ps_order **out);
bool ps_order_is_as_if_later(const ps_order *o);
void ps_order_destroy(ps_order *o); /* after all that it looks at; NULL is accepted */

/* Look at what is issued from now on: to all queues that will be made on the device, and at what is given back there;
 * to one queue; to the disk. NULL: no longer, and nothing may be under way. A simulated device gives memory as one that
 * works later when the checker takes it so: who gets it must wait for ps_device_gave_after. PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_device_set_order(ps_device *dev, ps_order *o);
ps_order *ps_device_order(const ps_device *dev);
void ps_queue_set_order(ps_queue *q, ps_order *o);
void ps_disk_set_order(ps_disk *d, ps_order *o);

/* The host touches bytes now. name: static text. o may be NULL. */
void ps_order_touch(ps_order *o, const char *name, const void *address, int64_t bytes, bool is_write);

/* ps_host_queue_begin of something that touches memory, after events that whoever does it waits for. name: static. */
ps_event ps_host_queue_begin_item(ps_queue *q, const char *name, const ps_events *after, const ps_use *uses,
                                  int n_uses);

/* Waits at this site do nothing from now on. */
void ps_order_skip(ps_order *o, ps_wait_site site);
/* Waits for a real event that came to this site so far, skipped or not. */
int64_t ps_order_n_waits(const ps_order *o, ps_wait_site site);

/* ---- what it found ---- */

typedef struct ps_order_stats {
    int64_t n_items, n_touches; /* seen so far */
    int64_t n_unnamed;          /* calls that named no bytes: of these nothing can be found */
    int64_t n_reports;
} ps_order_stats;

ps_order_stats ps_order_get_stats(const ps_order *o);

#define PS_ORDER_TEXTS_MAX 8

/* The i-th report as a line, or NULL. Kept are the first PS_ORDER_TEXTS_MAX that differ in more than numbers. */
const char *ps_order_text(const ps_order *o, int i);

typedef struct ps_order_access {
    const char *queue, *item; /* "host" and what it does; valid during the call of the listener */
    const char *use;          /* NULL: it has no name */
    ps_ticket ticket;         /* of the host: 0 */
    uint64_t begin, end;      /* addresses; of the file its offsets, with PS_ORDER_IN_FILE set */
    bool is_write;
} ps_order_access;

#define PS_ORDER_IN_FILE ((uint64_t)1 << 63)

/* Called for each pair, the one issued first in front, once for each range of bytes that they share. */
typedef void ps_order_listener(void *user, const ps_order_access *first, const ps_order_access *second);

void ps_order_set_listener(ps_order *o, ps_order_listener *listener, void *user);

/* ---- for queues, and tests ---- */

typedef enum ps_order_kind {
    PS_ORDER_IN_ORDER,  /* one item after the other, later */
    PS_ORDER_AT_ONCE,   /* done when the call that issues or waits returns */
    PS_ORDER_ANY_ORDER, /* later, each item for itself: transfers of the disk */
} ps_order_kind;

/* The number of a new queue, for the calls below; -1, which they accept, when the checker gave up. name: valid until it
 * is removed. */
int ps_order_add_queue(ps_order *o, const char *name, ps_order_kind kind);
void ps_order_remove_queue(ps_order *o, int queue); /* the host has waited for all of it */

/* Tickets of a queue ascend. uses: what the item touches; those of the disk have their offset as address, with
 * PS_ORDER_IN_FILE set. */
void ps_order_issue(ps_order *o, int queue, ps_ticket t, const char *item, const ps_use *uses, int n_uses);
/* Item t of the queue and those behind it wait for an event; in any order, the item issued next alone does. */
void ps_order_queue_wait(ps_order *o, int queue, ps_ticket t, int from, ps_ticket from_ticket);
void ps_order_host_wait(ps_order *o, int from, ps_ticket from_ticket);
/* These addresses are no more. o may be NULL. */
void ps_order_forget(ps_order *o, const void *address, int64_t bytes);
/* Whether a wait here is to be skipped; counts it. */
bool ps_order_skips(ps_order *o, ps_wait_site site);

#endif
