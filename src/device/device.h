/* device.h - the interface of a memory space; queue.h has that of work on it.
 *
 * A device is one memory space with a byte budget. It allocates *blocks* (chunk payloads) and *regions*: address ranges
 * reserved once, whose bytes are committed and decommitted piece by piece. Both draw on the one budget, in pages of
 * the device's size (4 KiB of RAM, 2 MiB of a GPU). Because pages are mapped, there is no fragmentation: an allocation
 * succeeds whenever used_bytes + the rounded request <= budget.
 *
 *   budget  |== blocks in use ==|== committed regions ==|-- kept for reuse --|      free      |
 *           '------------- used_bytes ------------------'
 *
 * Freed pages may be kept for reuse, but used + kept <= budget always, so resident memory stays under the budget.
 * Memory that a region decommits is kept as a block, and a kept block can become a piece of a region: the backend moves
 * its pages to other addresses, not its bytes, where it can. Where pages cannot move and are expensive to create, a
 * decommitted piece is kept as a piece of that region. One thread owns a device.
 *
 * Memory may be freed while items of queues still use it: the caller that frees it names the events after which it is
 * unused, and the next owner is given the event after which it may be accessed. In RAM the host waits; an asynchronous
 * device waits on its queues, for its memory and for page-locked memory of the host. */
#ifndef PS_DEVICE_DEVICE_H
#define PS_DEVICE_DEVICE_H

#include "device/queue.h"

#define PS_PAGE_BYTES ((int64_t)4096)

typedef struct ps_region ps_region;

typedef struct ps_device_ops {
    const char *name;     /* "cpu", "sim", "cuda" */
    bool is_simulated;    /* addresses without memory */
    bool host_can_touch;  /* the host may read and write its memory, while no item uses it */
    bool is_asynchronous; /* items of its queues may end after the call that issues them: order needs events */
    bool gives_zeros;     /* map and commit return zeros; otherwise content is undefined */
    /* Memory comes in larger pages where a block has whole ones, and parts of a block can be unmapped: smaller blocks,
     * or sizes that are no multiple, are better mapped several at once. 0: no larger pages. */
    int64_t large_page_bytes;
    /* Called for all memory that is freed, perhaps while items that use it are in flight: returns the event after which
     * it may be reused. NULL: the host waits. */
    ps_event (*release)(ps_device *dev, void *p, int64_t bytes, const ps_events *after);
    /* Mapped bytes are a multiple of PS_PAGE_BYTES; content undefined. Budget already checked by the caller. */
    ps_status (*map)(ps_device *dev, int64_t bytes, void **out);
    void (*unmap)(ps_device *dev, void *p, int64_t bytes);
    /* Addresses without memory; commit maps memory to [offset, offset + bytes), decommit unmaps it. */
    ps_status (*reserve)(ps_device *dev, int64_t bytes, void **out);
    void (*unreserve)(ps_device *dev, void *base, int64_t bytes);
    ps_status (*commit)(ps_device *dev, void *base, int64_t offset, int64_t bytes);
    void (*decommit)(ps_device *dev, void *base, int64_t offset, int64_t bytes);
    /* Instead of decommit: the committed memory of [offset, offset + bytes) becomes a block as of `map`, for move_in or
     * unmap. NULL: not supported. After a failure (PS_ENOSYS: never possible on this system) it must be decommitted. */
    ps_status (*move_out)(ps_device *dev, void *base, int64_t offset, int64_t bytes, void **block);
    /* Instead of commit: the memory of a block of `bytes` becomes that of [offset, offset + bytes), and the block is
     * gone. After a failure the block still exists, to be unmapped, and the range can be committed. NULL when move_out
     * is. */
    ps_status (*move_in)(ps_device *dev, void *base, int64_t offset, int64_t bytes, void *block);
    /* Instead of all three: a decommitted piece of a region stays mapped until exactly that piece is committed again,
     * or is decommitted to make room. For memory that is expensive to create. */
    bool pieces_stay;
    /* As ps_queue_create, which fills in the members that do not depend on the ops. */
    ps_status (*queue_create)(ps_device *dev, const char *name, ps_queue_kind kind, ps_queue **out);
} ps_device_ops;

/* backend "cpu": RAM. "sim": addresses without memory, copies that move nothing: same accounting, no payloads. */
extern const ps_device_ops ps_device_cpu_ops;
extern const ps_device_ops ps_device_sim_ops;
/* Simulates an asynchronous device, whose memory the host cannot touch, or its page-locked host memory. */
extern const ps_device_ops ps_device_sim_async_ops;

/* The memory in which a backend's kernels compute. */
typedef struct ps_space ps_space;
struct ps_space {
    const ps_device_ops *device, *host; /* the memory that kernels access; the host tier of it */
    void *driver;                       /* of both; NULL: none */
    int64_t page_bytes;
    bool is_unified_memory; /* device and host are one memory: a block can change tier without a copy */
    ps_queue *external;     /* of the device: a caller's queue, to which kernels are issued; NULL: none */
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
/* The same on one of several devices: `driver` is the state of its functions (ps_device_driver), and must outlive it.
 * page_bytes: its granularity, a multiple of PS_PAGE_BYTES. */
PS_NODISCARD ps_status ps_device_create_on(const ps_device_ops *ops, void *driver, int64_t page_bytes, const char *name,
                                           int64_t budget_bytes, ps_device **out);
void *ps_device_driver(const ps_device *dev);
void ps_device_destroy(ps_device *dev); /* all blocks and regions must have been freed */
const char *ps_device_name(const ps_device *dev);
const ps_device_ops *ps_device_get_ops(const ps_device *dev);
bool ps_device_has_memory(const ps_device *dev); /* false for "sim": payload pointers must not be touched */
bool ps_device_host_can_touch(const ps_device *dev);
bool ps_device_is_asynchronous(const ps_device *dev);
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
/* bytes as allocated; a block NULL is accepted. after: events after which it is unused; NULL: it is unused now. */
void ps_device_free(ps_device *dev, void *block, int64_t bytes, const ps_events *after);
/* Memory of the last successful ps_device_alloc or ps_region_commit may be accessed after this event. */
ps_event ps_device_gave_after(const ps_device *dev);
/* Memory of the last successful ps_device_alloc or ps_region_commit is zeros: new pages of the system. */
bool ps_device_gave_zeros(const ps_device *dev);

/* From now on freed pages of regions go back to the system instead of moving to another address. */
void ps_device_forbid_moves(ps_device *dev);

/* Count memory of this kind that other code holds against the budget. Errors as ps_device_alloc. */
PS_NODISCARD ps_status ps_device_claim(ps_device *dev, int64_t bytes);
void ps_device_unclaim(ps_device *dev, int64_t bytes);

/* For two devices of one memory: a block of `bytes`, as allocated, changes from device `from` to `to`, without a copy.
 * In two halves, so that blocks can swap tiers where neither has room for more: first `from` lets go of all blocks,
 * then `to` adopts each; nothing else happens on either device in between. `to` must have room; kept pages that make
 * way there are kept by `from` where it has room. Not for asynchronous devices. */
void ps_device_let_go(ps_device *from, int64_t bytes);
void ps_device_adopt_pages(ps_device *to, ps_device *from, int64_t bytes);

PS_NODISCARD ps_status ps_region_create(ps_device *dev, int64_t reserved_bytes, ps_region **out);
/* A region at the addresses of `of`, on another device of the same memory: each page is committed in one of the two.
 * `of` must outlive it. */
PS_NODISCARD ps_status ps_region_create_paired(ps_device *dev, const ps_region *of, ps_region **out);
void ps_region_destroy(ps_region *r); /* NULL is accepted */
void *ps_region_base(const ps_region *r);
/* Commit or decommit [offset, offset + bytes), multiples of pages. Committing committed pages, or decommitting others,
 * is a programmer's mistake. Content after a commit is undefined. Errors as ps_device_alloc. Pages are kept for reuse
 * only if all pieces of the region have one size. */
PS_NODISCARD ps_status ps_region_commit(ps_region *r, int64_t offset, int64_t bytes);
void ps_region_decommit(ps_region *r, int64_t offset, int64_t bytes, const ps_events *after); /* as ps_device_free */
/* As for blocks: pages committed in `from` become committed in `to`, its paired region. */
void ps_region_let_go(ps_region *from, int64_t offset, int64_t bytes);
void ps_region_adopt_pages(ps_region *to, ps_region *from, int64_t offset, int64_t bytes);

#endif
