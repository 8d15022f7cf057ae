/* store.h - residency of chunks over device, host and disk: the heart of PatrickStar.
 *
 * A chunk is a fixed number of elements of one list. Its payload may be on the device, on the host, in the disk file,
 * or on several at once; at most one transfer of it is in flight. The store guarantees: a pinned chunk is on its tier;
 * no tier ever exceeds its budget; the content of a chunk is never lost, and never moved without need.
 *
 * A chunk is RELEASED without content, which its first pin creates and ps_store_discard removes, COMPUTE while it is
 * pinned, else HOLD.
 *
 * Copies of one chunk (a bit per tier says where the content is current):
 *   clean   a lower tier has the same content: dropping the payload moves nothing
 *   dirty   the only current copy: written back (device -> host while host has room, else disk) before it is dropped
 *   dead    about to be overwritten, or discarded (ps_store_discard): dropped, never moved
 * Write-back and drop are separate: victims are written back ahead of time and stay usable until their room is needed.
 * With unified memory, a payload changes tier without a copy: a zero-copy move (zero_copy.c).
 *
 * Determinism: what is moved when follows from the order of calls and from the schedule alone, never from how fast a
 * copy was; a finished copy counts as finished when the timeline (timeline.h) says so, or when it is waited for.
 * So a run without payloads (sim devices) predicts moved bytes and peaks of a real one exactly.
 *
 * Independent of operators, models, CUDA and MPI. An external framework drives it so:
 *   with counts_non_model, per operator: ps_store_begin_moment, ps_store_pin for each chunk, compute, ps_store_unpin
 *   the first step with a trace (ps_trace_add_*), then ps_store_set_schedule.
 * Statistics: store_stats.h. Its levels: store_impl.h. One thread owns a store. */
#ifndef PS_CHUNK_STORE_H
#define PS_CHUNK_STORE_H

#include "chunk/chunk_lists.h"
#include "chunk/schedule.h"
#include "chunk/store_options.h"
#include "chunk/timeline.h"
#include "device/device.h"
#include "device/disk.h"

typedef struct ps_store ps_store;

typedef struct ps_store_desc {
    const ps_layout *layout; /* must outlive the store */
    ps_lists lists;
    ps_device *ram[PS_RAM_TIER_COUNT]; /* device, host; the host's budget may be 0. Must outlive the store */
    /* Operators on this queue use the chunks pinned on the tier: they are issued between pin and unpin, and operators
     * and copies wait for each other by events. NULL: the caller's thread uses them, and ps_store_pin waits. Must
     * outlive the store */
    ps_queue *compute[PS_RAM_TIER_COUNT];
    ps_disk *disk; /* NULL: no disk tier. Must outlive the store */
    int64_t disk_budget_bytes;
    /* The disk has second places for as many chunk indices, of lists [keeping_first, keeping_end), to keep their
     * content over a change (ps_store_keep), if its budget holds them in addition to all chunks: else nothing can be
     * kept */
    int32_t n_keeping;
    ps_list keeping_first, keeping_end;
    bool shares_slots; /* a chunk without room may take the disk slot of another one whose content is also in RAM */
    const ps_store_options *options; /* copied; NULL: no prefetching */
    /* The device has discrete memory and is asynchronous: only queues, not the host, wait for copies between device and
     * host. In a trial this describes the simulated device */
    bool is_asynchronous;
    /* Device and host are one memory, and not asynchronous: zero-copy moves between them. In a trial this describes the
     * simulated tiers */
    bool is_unified_memory;
    /* Activations are in memory of an external framework: the bytes of ps_store_begin_moment count, and chunks are
     * evicted for them, but there is no region (ps_store_reserve_non_model is not called) */
    bool counts_non_model;
    const ps_link_bandwidths *throughput; /* estimates; NULL: ps_link_bandwidths_default */
    ps_profile *profile; /* records copies, waits, arrivals and departures; must outlive the store. NULL: none */
} ps_store_desc;

PS_NODISCARD ps_status ps_store_create(const ps_store_desc *desc, ps_store **out);
/* Waits for copies in flight and frees all payloads. NULL is accepted. */
void ps_store_destroy(ps_store *s);

/* ---- time ---- */

/* From now on moments follow this schedule (NULL: none); the next ps_store_begin_moment is its moment 0. To be called
 * between moments; pins stay. The schedule must outlive its use. */
void ps_store_set_schedule(ps_store *s, const ps_schedule *schedule);

/* Replaces the options of desc. */
void ps_store_set_options(ps_store *s, const ps_store_options *options);

/* Begins the next moment; after the schedule's last one its first follows. The first non_model_bytes of the non-model
 * region are committed until the next call (chunks are evicted for it), and copies for this moment and for coming ones
 * are started. When the bytes differ from the trace's, the store expects the new number for this moment from now on:
 * the step in which it changed may wait for room, later ones prepare it as if it had been traced. PS_EBUDGET when the
 * device cannot hold what this moment needs at once; the message has the bytes. */
PS_NODISCARD ps_status ps_store_begin_moment(ps_store *s, int64_t non_model_bytes);

/* Outside of the schedule, with counts_non_model: this many non-model bytes count from now on, until the next call of
 * this or of ps_store_begin_moment. Chunks are evicted for them, including unpinned ones of the current moment. The
 * schedule's predictions stay. PS_EBUDGET: no room next to pinned chunks, and the earlier number still counts. */
PS_NODISCARD ps_status ps_store_claim_outside_step(ps_store *s, int64_t non_model_bytes);

/* The current moment has been computed: its estimated time is added to the timeline. The next ps_store_begin_moment
 * does it otherwise. */
void ps_store_end_moment(ps_store *s);

/* Memory that the last moment left in the non-model region is no longer needed: until the next moment begins it may be
 * used for chunks. */
void ps_store_release_non_model(ps_store *s);

/* The next ps_store_begin_moment is `moment` of the schedule (after an evaluation, which runs forward moments only). */
void ps_store_go_to(ps_store *s, int32_t moment);

/* Device memory for activations and workspace: reserves addresses for `bytes`, which ps_store_begin_moment commits.
 * Another call, between moments, keeps the addresses if they suffice, and otherwise replaces them; content is lost. On
 * failure nothing has changed. */
PS_NODISCARD ps_status ps_store_reserve_non_model(ps_store *s, int64_t bytes, void **base);

/* Soft limit of chunk bytes on the tier (static partition, warm-up ratio): beyond it others are evicted first; when
 * none can be, the budget alone decides. INT64_MAX: no limit but the budget. */
void ps_store_limit_chunks(ps_store *s, ps_tier tier, int64_t bytes);

/* ---- access ---- */

/* Make the chunk resident on tier (device or host) and keep it there until ps_store_unpin; each success needs one. A
 * chunk without content is zero-filled, except for OVERWRITE. It may be pinned several times, on one tier only.
 * PS_EBUDGET: everything else there is pinned. PS_EIO: a transfer failed; the chunk's last content is kept. `out` (may
 * be NULL) gets the payload's address. */
PS_NODISCARD ps_status ps_store_pin(ps_store *s, ps_chunk_id chunk, ps_tier tier, ps_access_mode mode, void **out);
void ps_store_unpin(ps_store *s, ps_chunk_id chunk);

/* Address of a pinned chunk's payload. Pinned chunks of a run are adjacent. */
void *ps_store_payload(const ps_store *s, ps_chunk_id chunk);

/* Sets the size of standalone chunks, a multiple of PS_PAGE_BYTES. When it changes their content is discarded. None is
 * pinned. */
void ps_store_resize_standalone(ps_store *s, int64_t bytes);

/* Discard the content: payloads are freed on all tiers, nothing is moved. The chunk must not be pinned. */
void ps_store_discard(ps_store *s, ps_chunk_id chunk);

/* ---- content kept over a change ----
 *
 * So that a change can be taken back, the content of before stays on disk. Nothing is copied for that: a write-back of
 * the new content goes to a second place. Kept content counts against the disk's budget, and its place is given to no
 * other chunk. */

/* Can the content be kept over the next change of the chunk? Only if it has any, and there is a second place
 * (ps_store_desc.n_keeping). */
bool ps_store_can_keep(const ps_store *s, ps_chunk_id chunk);
/* Content that will have to be kept later: it begins to be written to the disk if RAM alone has it. The chunk is not
 * pinned. */
PS_NODISCARD ps_status ps_store_write_ahead(ps_store *s, ps_chunk_id chunk);

/* The next ps_store_pin for a change keeps the content, on disk; changes after that one do not touch it. Waits until
 * the disk has it. ps_store_can_keep is true, and the chunk is not pinned. Until one of the next two calls. PS_EIO:
 * writing it has failed; RAM has the content, and nothing is kept. */
PS_NODISCARD ps_status ps_store_keep(ps_store *s, ps_chunk_id chunk);
/* The new content counts: the old one is no longer kept. */
void ps_store_forget_kept(ps_store *s, ps_chunk_id chunk);
/* The old content counts, and is on disk; the new one is discarded. The chunk is not pinned. */
void ps_store_restore_kept(ps_store *s, ps_chunk_id chunk);

/* Wait for all transfers in flight, and free the memory of activations: between moments; its addresses stay. */
PS_NODISCARD ps_status ps_store_synchronize(ps_store *s);

/* Put the chunks of a store that has no payload yet on the same tiers as those of `from`, without their content, to
 * test what would fit from there. Equal layouts and lists; `from` is synchronized, nothing pinned in it. After a
 * failure s can only be destroyed. */
PS_NODISCARD ps_status ps_store_copy_residency(ps_store *s, const ps_store *from);

/* ---- collectives ---- */

typedef struct ps_store_collective {
    const char *name, *group; /* for a profile; must outlive it */
    int32_t chunk;            /* the first */
    int64_t ns, sent_bytes;   /* its duration; what this rank sends */
} ps_store_collective;

/* A collective between ranks begins: the caller moves its bytes, and the store puts its duration on the timeline.
 * Returns its estimated end; ps_store_end_collective waits until then, in estimated time. */
int64_t ps_store_begin_collective(ps_store *s, const ps_store_collective *c);
void ps_store_end_collective(ps_store *s, int64_t done_ns);

#endif
