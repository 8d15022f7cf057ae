/* order_ranges.h - the last accesses to each byte: the memory of the checker of order (order.c).
 *
 *   ranges   |-- A --|------ B ------|        |-- C --|       sorted; each has the accesses that count
 *                            |
 *                            '--> compute 12 writes --> to-host 4 reads --> compute 14 reads
 *
 * An access is kept until the host is ordered after it, as everything issued later then is; or until a later access
 * hides it: a write hides all accesses before it, a read the reads before it. An item that is not ordered with a hidden
 * access is not ordered with the one that hides it either, so each item with a conflict is reported at least once. */
#ifndef PS_DEVICE_ORDER_RANGES_H
#define PS_DEVICE_ORDER_RANGES_H

#include "base/mem.h"
#include "device/order.h"

typedef struct ps_touch {
    ps_order_access access;
    int32_t lane; /* -1: the host, or what it has waited for: not kept */
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

/* A number for each lane below as many as ps_mem_bytes says, and 0 beyond: the last known item of each lane. NULL:
 * none. */
typedef uint64_t *ps_vector_clock;

static inline bool ps_clock_knows(ps_vector_clock c, int32_t lane, uint64_t seq)
{
    return lane >= 0 && (size_t)lane < ps_mem_bytes(c) / sizeof *c && c[lane] >= seq;
}

/* The current order. */
typedef struct ps_order_view {
    ps_vector_clock host; /* known to all items issued later */
    ps_vector_clock item; /* additionally known to the item that is added; its lane may be missing */
    void (*report)(void *user, const ps_touch *a, const ps_touch *b); /* b, added now, is not ordered after a */
    void *user;
} ps_order_view;

void ps_order_ranges_init(ps_order_ranges *r);
void ps_order_ranges_deinit(ps_order_ranges *r);
/* Adds access b. On failure nothing has changed. */
PS_NODISCARD ps_status ps_order_ranges_add(ps_order_ranges *r, const ps_order_view *v, const ps_touch *b);
/* Forgets all accesses to these bytes. On failure nothing has changed. */
PS_NODISCARD ps_status ps_order_ranges_forget(ps_order_ranges *r, uint64_t begin, uint64_t end);
/* Forgets accesses that the host is ordered after, when there are enough of them. */
void ps_order_ranges_sweep(ps_order_ranges *r, const ps_order_view *v);

#endif
