/* order_ranges.h - which bytes were touched last, and by whom: what the checker of order (order.c) remembers.
 *
 *   ranges   |-- A --|------ B ------|        |-- C --|       sorted; each has the accesses that count
 *                            |
 *                            '--> compute 12 writes --> to-host 4 reads --> compute 14 reads
 *
 * An access stays until the host knows of it, as everything issued later does then; or until one behind it hides it: a
 * write hides all that is before it, a read the reads before it. Who is not ordered with what is hidden is not ordered
 * with what hides it either, so each item that has something to be reported for is reported for something. */
#ifndef PS_DEVICE_ORDER_RANGES_H
#define PS_DEVICE_ORDER_RANGES_H

#include "base/mem.h"
#include "device/order.h"

typedef struct ps_touch {
    ps_order_access access;
    int32_t lane; /* -1: the host, or what it has waited for: not remembered */
    uint64_t seq; /* in its lane */
    int32_t next; /* in its list; -1: none */
} ps_touch;

typedef struct ps_touched_range {
    uint64_t begin, end;
    int32_t first; /* of its list */
} ps_touched_range;

typedef struct ps_order_ranges {
    ps_touched_range *range;
    int32_t n, n_swept; /* now; after the last sweep */
    ps_touch *touch;
    int32_t n_touches, first_free, n_free;
} ps_order_ranges;

/* Numbers by lane, as many as ps_mem_bytes says, and 0 from there on: what is known of each lane. NULL: nothing. */
typedef uint64_t *ps_vector_clock;

static inline bool ps_clock_knows(ps_vector_clock c, int32_t lane, uint64_t seq)
{
    return lane >= 0 && (size_t)lane < ps_mem_bytes(c) / sizeof *c && c[lane] >= seq;
}

/* What orders now. */
typedef struct ps_order_view {
    ps_vector_clock host; /* what all know that is still to come */
    ps_vector_clock item; /* what the item that is told knows besides; its own lane need not be in it */
    void (*report)(void *user, const ps_touch *a, const ps_touch *b); /* nothing orders b, told now, after a */
    void *user;
} ps_order_view;

void ps_order_ranges_init(ps_order_ranges *r);
void ps_order_ranges_deinit(ps_order_ranges *r);
/* b happens now. On failure nothing has changed. */
PS_NODISCARD ps_status ps_order_ranges_add(ps_order_ranges *r, const ps_order_view *v, const ps_touch *b);
/* These bytes are no more, whoever touched them. On failure nothing has changed. */
PS_NODISCARD ps_status ps_order_ranges_forget(ps_order_ranges *r, uint64_t begin, uint64_t end);
/* Forget what the host knows, when that may be worth the while. */
void ps_order_ranges_sweep(ps_order_ranges *r, const ps_order_view *v);

#endif
