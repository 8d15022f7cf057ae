/* device_budget.h - a device inside: its budget, and what freed memory it keeps; shared by device.c and region.c. */
#ifndef PS_DEVICE_DEVICE_BUDGET_H
#define PS_DEVICE_DEVICE_BUDGET_H

#include "device/device.h"
#include "device/observer.h"
#include "device/order.h"

/* Freed blocks that are kept; more than these go back to the system, oldest first. */
#define KEPT_MAX 4096

typedef struct kept_block {
    void *p;
    int64_t bytes;
    bool is_new;  /* never used before */
    char *region; /* of a piece that stayed (pieces_stay): base of its region; NULL: a block */
} kept_block;

struct ps_device {
    const ps_device_ops *ops;
    void *driver;
    int64_t page_bytes;
    char *name;
    int64_t budget_bytes, used_bytes, peak_bytes, kept_bytes; /* used + kept <= budget */
    bool keep;
    bool can_move; /* pages may move from a block to a region and back */
    bool gave_zeros;
    ps_observed observed; /* its observers, inherited by queues made here */
    ps_queue *releases;   /* of a simulated device that is observed as an asynchronous one, or has time; else NULL */
    ps_queue *looked_at;  /* the queue of releases that the checker of order knows; NULL: none */
    ps_event released;    /* after it all that was freed so far may be reused */
    int n_kept;
    kept_block kept[KEPT_MAX]; /* oldest first */
};

int64_t ps_device_round_to_pages(const ps_device *d, int64_t bytes);
/* Check before bytes are drawn on the budget, the only one. Errors as ps_device_alloc. */
PS_NODISCARD ps_status ps_device_admit(const ps_device *d, int64_t bytes);
/* Release kept blocks to the system, oldest first, until so many more bytes may be used. */
void ps_device_make_room(ps_device *d, int64_t bytes);
/* bytes < 0: freed. */
void ps_device_count_used(ps_device *d, int64_t bytes);
/* "Content undefined" made visible: NaN in every float format. A device with `release` does so itself. */
void ps_device_poison(ps_device *d, void *p, int64_t bytes);
void ps_device_keep_block(ps_device *d, void *block, int64_t bytes);
/* A kept piece of a region. */
void ps_device_keep_piece(ps_device *d, char *region, int64_t offset, int64_t bytes);
/* True: exactly this piece was kept, and is the caller's now. False: none of these addresses is kept any more. */
bool ps_device_reuse_piece(ps_device *d, const char *region, int64_t offset, int64_t bytes);
/* The most recently freed kept block of exactly this size (its pages are the likeliest in cache), or NULL. *is_new: it
 * was mapped and never allocated. */
void *ps_device_reuse_block(ps_device *d, int64_t bytes, bool *is_new);
/* Removes these addresses of a simulated device from the observers; another device may get them next. */
void ps_device_forget(const ps_device *d, const void *p, int64_t bytes);
/* Pages of a simulated device stand for pages that another range had before: an allocation counts as written once those
 * were released. */
void ps_device_observe_given(ps_device *d, const void *p, int64_t bytes);
/* Releases the range once `after` (NULL: nothing) is over. Where the device cannot wait asynchronously, the host waits;
 * failures are not reported here but to the users of the failed items. */
void ps_device_release_after(ps_device *d, void *p, int64_t bytes, const ps_events *after);

#endif
