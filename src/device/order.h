/* order.h - a checker of order: it finds two accesses to the same bytes, one of them a write, that nothing orders.
 *
 * It observes all that is issued to queues, with the bytes that each item reads and writes, waits for events, and
 * accesses by the host. The order follows from these alone, never from when things happened to be done: so one run
 * finds what another schedule would break, and a trial on simulated tiers what real ones would.
 *
 *     host       copy A -> M      wait(compute, A)      gelu reads M      free M
 *     copies     |===== A =====|
 *     compute                  '------------------------> |=== gelu ===|             A before gelu: the wait
 *                                                                   '..?..'          gelu and free: a report
 *
 * Item a is before item b when they are of one queue and a was issued first; when b's queue has waited for an event of
 * a or of an item after a; or when the host had done so before it issued b. An access by the host is before all that it
 * issues later, and after all that it has waited for. Querying whether an event is done orders nothing.
 *
 * Accesses to freed memory are still remembered: accesses of the next owner must come after those of the earlier one,
 * by release events. Only addresses that a simulated device returns to the system are forgotten, as another one may get
 * them next.
 *
 * The host is the thread that created the checker. It issues, waits and accesses memory; waits of other threads order
 * nothing, and what they issue is reported. Work of other threads is an item of a queue: of one with a thread, or of a
 * host queue (ps_host_queue_begin_item). Any function here may be called by any thread.
 *
 * Memory (base/mem.h) is allocated for items that the host has not waited for: it must wait now and then. When
 * allocation fails the checker stops checking and reports that. Queues without a checker pay for one comparison. */
#ifndef PS_DEVICE_ORDER_H
#define PS_DEVICE_ORDER_H

#include "device/device.h"
#include "device/disk.h"
#include "device/observer.h"

typedef struct ps_order ps_order;

/* ---- places that wait ---- */

/* Each place in the code that waits for events, and the reason. A test disables one after the other and expects a
 * report: without a report the wait would be unnecessary. */
#define PS_WAIT_SITES(XX)                                                                                              \
    XX(ARRIVAL, "arrival", "a moment computes after its chunks have been copied in")                                   \
    XX(CHANGE, "change", "a chunk is written after earlier uses of its memory")                                        \
    XX(WRITE_BACK, "write-back", "a chunk is written back after the items that write it")                              \
    XX(ROOM, "room", "a chunk's memory is filled after earlier uses of it")                                            \
    XX(COLLECTIVE, "collective", "operators use chunks after the collective that brings them")                         \
    XX(BOUNCE, "bounce", "a bounce buffer is filled after its earlier content has been copied")                        \
    XX(BOUNCED, "bounced", "a bounce buffer is copied on after it has been filled")                                    \
    XX(ACTIVATIONS, "activations", "memory of activations is used after earlier uses of it")                           \
    XX(BLOCK, "block", "an input of the host is copied in after the host's earlier use")                               \
    XX(BROUGHT, "brought", "the host computes after its input has been copied in")                                     \
    XX(RESULT, "result", "the device uses a result of the host after it is computed")                                  \
    XX(FREE, "free", "the host frees memory after its last use")

typedef enum ps_wait_site {
#define XX(site, name, text) PS_WAIT_##site,
    PS_WAIT_SITES(XX)
#undef XX
        PS_WAIT_SITE_COUNT,
} ps_wait_site;

const char *ps_wait_site_name(ps_wait_site site);
const char *ps_wait_site_text(ps_wait_site site);

/* As their namesakes of queue.h, unless the checker of the queue (for the host: of the event's queue) skips the
 * site. */
PS_NODISCARD ps_status ps_queue_wait_at(ps_queue *q, ps_event e, ps_wait_site site);
PS_NODISCARD ps_status ps_queue_wait_all_at(ps_queue *q, const ps_events *all, ps_wait_site site);
/* The queue continues when the event is done, failed or not: another waiter is given the failure. */
PS_NODISCARD ps_status ps_queue_outlast_at(ps_queue *q, ps_event e, ps_wait_site site);
/* ps_events_add, for events that another party waits for. */
void ps_events_add_at(ps_events *all, ps_event e, ps_wait_site site);
void ps_events_add_all_at(ps_events *all, const ps_events *more, ps_wait_site site);
PS_NODISCARD ps_status ps_event_wait_at(ps_event e, ps_wait_site site);
PS_NODISCARD ps_status ps_events_wait_at(const ps_events *all, ps_wait_site site);

/* ---- a checker ---- */

/* as_if_later: work that is done within the call that issues it (compute queues of RAM, all queues of sim) is treated
 * as done later, as on a GPU. */
PS_NODISCARD ps_status ps_order_create(bool as_if_later, ps_order **out);
bool ps_order_is_as_if_later(const ps_order *o);
void ps_order_destroy(ps_order *o); /* after all that it observes; NULL is accepted */

/* Observe what is issued from now on: to all queues that will be created on the device, and memory that is freed there;
 * to one queue; to the disk. NULL: stop, while nothing is in flight. A simulated device then allocates as an
 * asynchronous one does if the checker is as_if_later: the new owner must wait for ps_device_gave_after.
 * PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_device_set_order(ps_device *dev, ps_order *o);
ps_order *ps_device_order(const ps_device *dev);
void ps_queue_set_order(ps_queue *q, ps_order *o);
void ps_disk_set_order(ps_disk *d, ps_order *o);

/* The host accesses bytes now. name: static text. o may be NULL. */
void ps_order_touch(ps_order *o, const char *name, const void *address, int64_t bytes, bool is_write);

/* ps_host_queue_begin of an operation that accesses memory, after events that the host code waits for. name: static. */
ps_event ps_host_queue_begin_item(ps_queue *q, const char *name, const ps_events *after, const ps_use *uses,
                                  int n_uses);

/* Waits at this site do nothing from now on. */
void ps_order_skip(ps_order *o, ps_wait_site site);
/* Waits at this site for an event of a queue so far, skipped or not. */
int64_t ps_order_n_waits(const ps_order *o, ps_wait_site site);

/* ---- results ---- */

typedef struct ps_order_stats {
    int64_t n_items, n_touches; /* observed so far */
    int64_t n_unnamed;          /* calls that named no bytes, in which conflicts cannot be found */
    int64_t n_reports;
} ps_order_stats;

ps_order_stats ps_order_get_stats(const ps_order *o);

#define PS_ORDER_TEXTS_MAX 8

/* The i-th report as a line, or NULL. The first PS_ORDER_TEXTS_MAX that differ in more than numbers are kept. */
const char *ps_order_text(const ps_order *o, int i);

typedef struct ps_order_access {
    const char *queue, *item; /* "host" and its operation; valid during the call of the listener */
    const char *use;          /* NULL: it has no name */
    ps_ticket ticket;         /* of the host: 0 */
    uint64_t begin, end;      /* addresses; offsets of the disk file, with PS_ORDER_IN_FILE set */
    bool is_write;
} ps_order_access;

#define PS_ORDER_IN_FILE ((uint64_t)1 << 63)

/* Called for each conflicting pair, in issue order, once for each range of bytes that both access. */
typedef void ps_order_listener(void *user, const ps_order_access *first, const ps_order_access *second);

void ps_order_set_listener(ps_order *o, ps_order_listener *listener, void *user);

/* ---- for queues, and tests ---- */

typedef enum ps_order_kind {
    PS_ORDER_IN_ORDER,  /* one item after the other, later */
    PS_ORDER_AT_ONCE,   /* done when the call that issues or waits returns */
    PS_ORDER_ANY_ORDER, /* later, items are independent: transfers of the disk */
} ps_order_kind;

/* The number of a new queue, for the calls below; -1, which they accept, when the checker has stopped. name: valid
 * until the queue is removed. */
int ps_order_add_queue(ps_order *o, const char *name, ps_order_kind kind);
void ps_order_remove_queue(ps_order *o, int queue); /* the host has waited for all of it */

/* Tickets of a queue ascend. uses: the bytes that the item accesses; for the disk the offset as address, with
 * PS_ORDER_IN_FILE set. */
void ps_order_issue(ps_order *o, int queue, ps_ticket t, const char *item, const ps_use *uses, int n_uses);
/* Item t of the queue and those after it wait for an event; of a queue in any order, only the item issued next
 * waits. */
void ps_order_queue_wait(ps_order *o, int queue, ps_ticket t, int from, ps_ticket from_ticket);
void ps_order_host_wait(ps_order *o, int from, ps_ticket from_ticket);
/* These addresses are no longer valid. o may be NULL. */
void ps_order_forget(ps_order *o, const void *address, int64_t bytes);
/* The observer of queues and devices (observer.h). */
void ps_order_observe(const ps_observed *w, const ps_notice *n);
/* Whether a wait here is to be skipped; counts the wait. */
bool ps_order_skips(ps_order *o, ps_wait_site site);

#endif
