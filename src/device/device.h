/* device.h - what the library may ask of a memory space; queue.h is about work on it.
 *
 * A device is one memory space with a byte budget. It hands out *blocks* (chunk payloads) and *regions*: address ranges
 * reserved once, whose bytes are committed and given back piece by piece. Both draw on the one budget, in pages of
 * the device's size (4 KiB of RAM, 2 MiB of a GPU). Because pages are mapped, there is no fragmentation: an allocation
 * succeeds whenever used_bytes + the rounded request <= budget.
 *
 *   budget  |== blocks in use ==|== committed regions ==|-- kept for reuse --|      free      |
 *           '------------- used_bytes ------------------'
 *
 * Freed pages may be kept for reuse, but used + kept <= budget always, so resident memory stays under the budget. What
 * a region gives back is kept as a block, and a kept block can become a piece of a region: where the backend can, by
 * moving its pages to other addresses, not its bytes. Where pages cannot move and are dear to make, what a region gives
 * back is kept as a piece of that region. One thread owns a device.
 *
 * Memory may be given back while items of queues still use it: whoever frees it says after which events it is unused,
 * and whoever gets it is told after which it may be touched. RAM lets the host wait; a device that works later waits by
 * itself, for its own memory and for page-locked memory beside it. */
#ifndef PS_DEVICE_DEVICE_H
#define PS_DEVICE_DEVICE_H

#include "device/queue.h"

#define PS_PAGE_BYTES ((int64_t)4096)

typedef struct ps_region ps_region;

typedef struct ps_device_ops {
    const char *name;    /* "cpu", "sim", "cpu_async", "pinned" */
    bool is_simulated;   /* addresses without memory */
    bool host_can_touch; /* the host may read and write what it is given, when nothing is under way there */
    bool works_later;    /* items of its queues are done after the call that issues them: order needs events */
    bool gives_zeros;    /* map and commit do, else anything */
    /* Memory comes in larger pages where a block holds whole ones, and parts of a block can be unmapped: blocks that are
     * smaller, or no multiple of these, are better mapped several at once. 0: no. */
    int64_t large_page_bytes;
    /* All that is freed, perhaps while items that name it are under way: returns the event after which its bytes may be
     * used for something else. NULL: the host waits. */
    ps_event (*release)(ps_device *dev, void *p, int64_t bytes, const ps_events *after);
    /* Mapped bytes are a multiple of PS_PAGE_BYTES; content undefined. Budget already checked by the caller. */
    ps_status (*map)(ps_device *dev, int64_t bytes, void **out);
    void (*unmap)(ps_device *dev, void *p, int64_t bytes);
    /* Addresses without memory; commit gives [offset, offset + bytes) memory, decommit takes it back. */
    ps_status (*reserve)(ps_device *dev, int64_t bytes, void **out);
    void (*unreserve)(ps_device *dev, void *base, int64_t bytes);
    ps_status (*commit)(ps_device *dev, void *base, int64_t offset, int64_t bytes);
    void (*decommit)(ps_device *dev, void *base, int64_t offset, int64_t bytes);
    /* Instead of decommit: the memory of [offset, offset + bytes), committed, becomes a block as `map` makes them,
     * for move_in or unmap. NULL: the backend cannot. On failure (PS_ENOSYS: this system never can) it must be
     * decommitted. */
    ps_status (*move_out)(ps_device *dev, void *base, int64_t offset, int64_t bytes, void **block);
    /* Instead of commit: the memory of a block of `bytes` becomes that of [offset, offset + bytes), and the block is
     * no more. On failure the block is still there to be unmapped, and the range can be committed. NULL when move_out
     * is. */
    ps_status (*move_in)(ps_device *dev, void *base, int64_t offset, int64_t bytes, void *block);
    /* Instead of all three: what a region gives back stays where it is, as it is, until just that piece is committed
     * again, or is decommitted because room is wanted. For memory that is dear to make. */
    bool pieces_stay;
    /* As ps_queue_create, which fills in what is not the ops' own. */
    ps_status (*queue_create)(ps_device *dev, const char *name, ps_queue_kind kind, ps_queue **out);
} ps_device_ops;

/* backend "cpu": RAM. "sim": addresses without memory, copies that move nothing: same accounting, no payloads. */
extern const ps_device_ops ps_device_cpu_ops;
extern const ps_device_ops ps_device_sim_ops;
/* The same for one that works later, in memory that the host cannot touch, and for page-locked memory beside it. */
extern const ps_device_ops ps_device_sim_later_ops;

/* Where a kind of kernels computes. */
typedef struct ps_space ps_space;
struct ps_space {
    const ps_device_ops *device, *host; /* the memory they compute in; that of the host beside it */
    void *driver;                       /* of both; NULL: none */
    int64_t page_bytes;
    bool is_one_memory; /* device and host are one: what one has can be handed to the other, where it lies */
    ps_queue *foreign;  /* of the device: a caller's own, on which kernels shall be issued; NULL: none */
};

extern const ps_space ps_space_ram; /* both are RAM: one memory, two budgets */

typedef struct ps_device_stats {
    int64_t budget_bytes;
    int64_t used_bytes, peak_bytes; /* blocks and committed regions, in pages; peak since create or reset */
    int64_t kept_bytes;             /* freed pages kept for reuse */
} ps_device_stats;

/* name: "device" or "host", for messages. budget_bytes is rounded down to pages. */
PS_NODISCARD ps_status ps_device_create(const ps_device_ops *ops, const char *name, int64_t budget_bytes,
                                        ps_device **out);
/* The same on a device of which there can be several: `driver` is what its functions ask for (ps_device_driver), and
 * must outlive it. page_bytes: its granularity, a multiple of PS_PAGE_BYTES. */
PS_NODISCARD ps_status ps_device_create_on(const ps_device_ops *ops, void *driver, int64_t page_bytes, const char *name,
                                           int64_t budget_bytes, ps_device **out);
void *ps_device_driver(const ps_device *dev);
void ps_device_destroy(ps_device *dev); /* all blocks and regions must have been given back */
const char *ps_device_name(const ps_device *dev);
const ps_device_ops *ps_device_get_ops(const ps_device *dev);
bool ps_device_has_memory(const ps_device *dev); /* false for "sim": payload pointers must not be touched */
bool ps_device_host_can_touch(const ps_device *dev);
bool ps_device_works_later(const ps_device *dev);
int64_t ps_device_page_bytes(const ps_device *dev); /* its granularity: of blocks, commits and the budget */
ps_device_stats ps_device_get_stats(const ps_device *dev);
void ps_device_reset_peak(ps_device *dev);

/* Whether freed pages are kept for reuse (the default) or go back to the system at once. */
void ps_device_set_keep(ps_device *dev, bool keep);

/* Budget not in use. An allocation of at most this many bytes (a multiple of pages) fits. */
int64_t ps_device_free_bytes(const ps_device *dev);

/* A block of `bytes` (rounded up to pages), page-aligned, content undefined.
 * PS_ENOMEM_DEV naming device, need, use and budget when it does not fit, PS_ENOMEM_HOST when the system refuses; then
 * nothing has changed. */
PS_NODISCARD ps_status ps_device_alloc(ps_device *dev, int64_t bytes, void **out);
/* bytes as allocated; a block NULL is accepted. after: what still uses it; NULL: nothing does. */
void ps_device_free(ps_device *dev, void *block, int64_t bytes, const ps_events *after);
/* What the last success of ps_device_alloc or ps_region_commit gave may be touched after this event. */
ps_event ps_device_gave_after(const ps_device *dev);
/* What the last success of ps_device_alloc or ps_region_commit gave is zeros: pages that the system has just made. */
bool ps_device_gave_zeros(const ps_device *dev);

/* From now on freed pages of regions go back to the system instead of moving to where they are wanted next. */
void ps_device_forbid_moves(ps_device *dev);

/* Memory of this kind that somebody else holds draws on the budget too. Errors as ps_device_alloc. */
PS_NODISCARD ps_status ps_device_claim(ps_device *dev, int64_t bytes);
void ps_device_unclaim(ps_device *dev, int64_t bytes);

/* Two devices of one memory: a block of `bytes`, as allocated, that `from` has is from now on one of `to`; where it
 * lies nothing happens. In two halves, so that blocks can change places where neither has room for more: first `from`
 * lets go of all, then each is taken over; until then nothing else happens on both. There is room for it; kept pages
 * that go for it are kept by `from`, where these have room. Not for devices that work later. */
void ps_device_let_go(ps_device *from, int64_t bytes);
void ps_device_take_over(ps_device *to, ps_device *from, int64_t bytes);

PS_NODISCARD ps_status ps_region_create(ps_device *dev, int64_t reserved_bytes, ps_region **out);
/* The addresses of `of`, on another device of the same memory: each page is committed in one of the two. `of` must
 * outlive it. */
PS_NODISCARD ps_status ps_region_create_beside(ps_device *dev, const ps_region *of, ps_region **out);
void ps_region_destroy(ps_region *r); /* NULL is accepted */
void *ps_region_base(const ps_region *r);
/* Commit or give back [offset, offset + bytes), multiples of pages. Committing what is committed, or giving back what
 * is not, is a programmer's mistake. Content after a commit is undefined. Errors as ps_device_alloc. Pages are kept for
 * reuse only of a region in which all pieces committed and given back had one size. */
PS_NODISCARD ps_status ps_region_commit(ps_region *r, int64_t offset, int64_t bytes);
void ps_region_decommit(ps_region *r, int64_t offset, int64_t bytes, const ps_events *after); /* as ps_device_free */
/* As of blocks: committed in `from`, then in `to`, of which one is beside the other. */
void ps_region_let_go(ps_region *from, int64_t offset, int64_t bytes);
void ps_region_take_over(ps_region *to, ps_region *from, int64_t offset, int64_t bytes);

#endif
