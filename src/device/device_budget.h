/* device_budget.h - a device inside: its budget, and what freed memory it keeps; shared by device.c and region.c. */
#ifndef PS_DEVICE_DEVICE_BUDGET_H
#define PS_DEVICE_DEVICE_BUDGET_H

#include "device/device.h"
#include "device/order.h"

/* Freed blocks remembered; more than these go back to the system, oldest first. */
#define KEPT_MAX 4096

typedef struct kept_block {
    void *p;
    int64_t bytes;
    bool is_new;  /* nobody had it before */
    char *region; /* of a piece that stayed (pieces_stay): base of its region; NULL: a block */
} kept_block;

struct ps_device {
    const ps_device_ops *ops;
    void *driver;
    int64_t page_bytes;
    char *name;
    int64_t budget_bytes, used_bytes, peak_bytes, kept_bytes; /* used + kept <= budget */
    bool keep;
    bool can_move; /* pages may go from a block to a region and back */
    bool gave_zeros;
    ps_order *order;     /* NULL: nobody looks at the order of what is done here */
    ps_queue *releases;  /* of a simulated device that is looked at as one that works later, or has time; else NULL */
    ps_queue *looked_at; /* the queue of releases that the order has been told of; NULL: none */
    ps_event released;   /* after it all that was freed so far may be used for something else */
    int n_kept;
    kept_block kept[KEPT_MAX]; /* oldest first */
};

int64_t ps_device_round_to_pages(const ps_device *d, int64_t bytes);
/* The one check before bytes are drawn on the budget. Errors as ps_device_alloc. */
PS_NODISCARD ps_status ps_device_admit(const ps_device *d, int64_t bytes);
/* Kept blocks go, oldest first, until so many more bytes may be used. */
void ps_device_make_room(ps_device *d, int64_t bytes);
/* bytes < 0: no longer used. */
void ps_device_count_used(ps_device *d, int64_t bytes);
/* "Content undefined" made visible: NaN in every float format. Who has `release` does so by itself. */
void ps_device_poison(ps_device *d, void *p, int64_t bytes);
void ps_device_keep_block(ps_device *d, void *block, int64_t bytes);
/* A piece of a region, where it lies. */
void ps_device_keep_piece(ps_device *d, char *region, int64_t offset, int64_t bytes);
/* True: just this piece was kept, and is the caller's now. False: of these addresses nothing is kept any more. */
bool ps_device_reuse_piece(ps_device *d, const char *region, int64_t offset, int64_t bytes);
/* The most recently freed kept block of just this size (its pages are the likeliest in cache), or NULL. *is_new: it was
 * mapped and never given. */
void *ps_device_reuse_block(ps_device *d, int64_t bytes, bool *is_new);
/* Pages of a simulated device stand for some that another range had before: what is given counts as written when that
 * has been given back. */
void ps_device_tell_given(ps_device *d, const void *p, int64_t bytes);
/* The range is given back once `after` (NULL: nothing) is over. Where the device cannot wait by itself, the host does;
 * and is told of no failure, which are for who wanted what they are about. */
void ps_device_release_after(ps_device *d, void *p, int64_t bytes, const ps_events *after);

#endif
