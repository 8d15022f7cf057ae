/* store.h - residency of chunks over device, host and disk: the heart of PatrickStar.
 *
 * A chunk is a fixed number of elements of one list. Its payload may lie on the device, on the host, in the disk file,
 * or on several at once; at most one transfer of it is under way. What the store promises: a pinned chunk is where it
 * was wanted; no tier ever exceeds its budget; the content of a chunk is never lost, and never moved without need.
 *
 * States of a chunk (ps_store_chunk_state)
 *
 *              pin (first write)      unpin to 0             evict, prefetch: HOLD on another tier
 *   RELEASED ------------------> COMPUTE ----------> HOLD
 *      ^                            ^                  |
 *      |                            '------ pin -------'
 *      '---- discard: dead content, no payload anywhere
 *
 * A chunk of list 0 that is not pinned shows the state of its least advanced tensor instead of HOLD.
 *
 * States of a tensor of list 0 (ps_store_tensor_begin / _end): FREE, without content, at first; COMPUTE from begin to
 * end; then what end says. In a step:
 *
 *   first of all                    FREE           -> COMPUTE -> HOLD
 *   forward                         HOLD           -> COMPUTE -> HOLD_AFTER_FWD
 *   backward, to be read again      HOLD_AFTER_FWD -> COMPUTE -> HOLD_AFTER_FWD    (recomputation too)
 *   backward, for the last time     HOLD_AFTER_FWD -> COMPUTE -> HOLD_AFTER_BWD    its gradient has overwritten it
 *   update                          HOLD_AFTER_BWD -> COMPUTE -> HOLD
 *
 * Copies of one chunk (a bit per tier says where the content is current):
 *   clean   a lower tier has the same content: dropping the payload moves nothing
 *   dirty   the only current copy: written back (device -> host while host has room, else disk) before it is dropped
 *   dead    about to be overwritten, or used up (ps_store_discard): dropped, never moved
 * Write-back and drop are apart: victims are written back ahead of time and stay usable until their room is needed.
 * Where device and host are one memory, a payload is not copied from one to the other but handed over (hand_over.c).
 *
 * Determinism: what is moved when follows from the order of calls and from the schedule alone, never from how fast a
 * copy was; a finished copy counts as finished when the timeline (timeline.h) says so, or when it is waited for.
 * So a run without payloads (sim devices) predicts moved bytes and peaks of a real one exactly.
 *
 * Knows no operator, no model, no CUDA, no MPI. A foreign framework drives it so:
 *   with counts_non_model, per operator: ps_store_begin_moment, ps_store_pin for each chunk, compute, ps_store_unpin
 *   the first step with a trace (ps_trace_add_*), then ps_store_set_schedule.
 * One thread owns a store. */
#ifndef PS_CHUNK_STORE_H
#define PS_CHUNK_STORE_H

#include "chunk/layout.h"
#include "chunk/policy.h"
#include "chunk/schedule.h"
#include "chunk/timeline.h"
#include "device/device.h"
#include "device/disk.h"

/* Lists mirror each other: chunk i of each holds the same tensors at the same offsets. The store knows them by number
 * only; list 0 is the one whose tensors have states. What each holds is the business of who makes them
 * (state/lists.h). */
typedef int32_t ps_list;

#define PS_LISTS_MAX 9 /* that of chunks apart among them */

typedef struct ps_lists {
    int32_t n;
    struct {
        const char *name;   /* "PARAM16": for messages and figures; must outlive the store */
        int32_t item_bytes; /* of an element; 0: the list does not exist */
    } list[PS_LISTS_MAX];
    /* Beside them: chunks of a size of their own that hold no tensors. They count as one list more, of number n and with
     * the name of list[n]; their ids follow those of the others. None of them goes on in another one. */
    int32_t n_apart;
    int64_t apart_bytes; /* of each; a multiple of PS_PAGE_BYTES */
} ps_lists;

typedef struct ps_store ps_store;

typedef struct ps_store_desc {
    const ps_layout *layout; /* must outlive the store */
    ps_lists lists;
    ps_device *ram[PS_RAM_TIER_COUNT]; /* device, host; the host's budget may be 0. Must outlive the store */
    /* What is pinned on the tier is used by items of this queue: they are issued between pin and unpin, and copies wait
     * for them as they wait for copies. NULL: by the caller's thread, for which ps_store_pin waits. Must outlive the
     * store */
    ps_queue *compute[PS_RAM_TIER_COUNT];
    ps_disk *disk; /* NULL: no disk tier. Must outlive the store */
    int64_t disk_budget_bytes;
    bool shares_slots; /* a chunk that finds no room gets the slot of another one, whose content is elsewhere too */
    const ps_policy *policy;
    int32_t prefetch;   /* chunk loads kept under way ahead of use; 0: load when wanted */
    bool spares_writes; /* loads for the next step push out nothing that the disk would have to write first */
    /* The device's memory is apart, and it works later: the host does not wait for copies between device and host, only
     * queues do. A trial is told so of the device that it stands for */
    bool works_later;
    /* Device and host are one memory, of devices that do not work later: what is on one of them is handed to the other
     * where it lies. A trial is told so of the tiers that it stands for */
    bool hands_over;
    bool wait_at_once; /* copies do not overlap computing (client.opts.with_async_move false) */
    /* Activations lie in memory of a foreign framework's own: the bytes of ps_store_begin_moment count, and chunks leave for
     * them, but there is no region (ps_store_reserve_non_model is not called) */
    bool counts_non_model;
    const ps_link_rates *rates; /* estimates; NULL: ps_link_rates_default */
    ps_profile *profile;        /* gets copies, waits, chunks that come and go; must outlive the store. NULL: none */
} ps_store_desc;

PS_NODISCARD ps_status ps_store_create(const ps_store_desc *desc, ps_store **out);
/* Waits for copies under way and gives all payloads back. NULL is accepted. */
void ps_store_destroy(ps_store *s);

static inline ps_chunk_id ps_store_chunk(const ps_layout *l, ps_list list, int32_t index)
{
    return list * l->n_chunks + index;
}

static inline int32_t ps_lists_n_ids(const ps_lists *l, const ps_layout *layout)
{
    return l->n * layout->n_chunks + l->n_apart;
}

static inline ps_list ps_lists_list_of(const ps_lists *l, const ps_layout *layout, ps_chunk_id id)
{
    return id < l->n * layout->n_chunks ? id / layout->n_chunks : l->n;
}

/* The chunk's number in its list. */
static inline int32_t ps_lists_index_of(const ps_lists *l, const ps_layout *layout, ps_chunk_id id)
{
    return id - ps_lists_list_of(l, layout, id) * layout->n_chunks;
}

/* Is it that of the chunks apart? */
static inline bool ps_lists_is_apart(const ps_lists *l, ps_list list)
{
    return list == l->n;
}

/* So many chunks the list has, if it exists; bytes of each, before they are rounded to pages. */
static inline int32_t ps_lists_length(const ps_lists *l, const ps_layout *layout, ps_list list)
{
    if (ps_lists_is_apart(l, list)) return l->n_apart;
    return list == 0 ? layout->n_chunks : layout->n_mirrored;
}

static inline int64_t ps_lists_chunk_bytes(const ps_lists *l, const ps_layout *layout, ps_list list)
{
    return ps_lists_is_apart(l, list) ? l->apart_bytes : layout->chunk_elements * l->list[list].item_bytes;
}

/* Lists with that of the chunks apart, if there are any. */
static inline int32_t ps_lists_n_all(const ps_lists *l)
{
    return l->n + (l->n_apart > 0);
}

static inline bool ps_lists_exists(const ps_lists *l, ps_list list)
{
    return list < l->n ? l->list[list].item_bytes > 0 : list == l->n && l->n_apart > 0;
}

/* ---- time ---- */

/* From now on the moments follow this schedule (NULL: none); the next ps_store_begin_moment is its moment 0. To be
 * called between moments; what is pinned stays where it is. The schedule must outlive its use. */
void ps_store_set_schedule(ps_store *s, const ps_schedule *schedule);

/* From now on instead of what desc says of these. */
void ps_store_set_look_ahead(ps_store *s, int32_t prefetch, bool spares_writes);

/* The next moment begins; after the schedule's last one its first follows. The first non_model_bytes of the non-model
 * region have memory until the next call (chunks leave for it), and copies for this moment and for those to come are
 * started. When the bytes differ from the trace's, the store expects the new number of this moment from now on: the
 * step in which it changed may wait for room, later ones prepare it as if it had been traced. PS_EBUDGET when the
 * device cannot hold what this moment needs at once; the message has the bytes. */
PS_NODISCARD ps_status ps_store_begin_moment(ps_store *s, int64_t non_model_bytes);

/* Beside the schedule, with counts_non_model: this many non-model bytes count from now on, until the next call of this or
 * of ps_store_begin_moment, and chunks leave for them, those of the present moment that are not pinned among them. What
 * the schedule foretells stays. PS_EBUDGET: there is no room beside what is pinned, and what counted before still
 * does. */
PS_NODISCARD ps_status ps_store_claim_aside(ps_store *s, int64_t non_model_bytes);

/* The moment under way has been computed: its estimated time goes on the timeline. The next ps_store_begin_moment calls
 * it for who has not. */
void ps_store_end_moment(ps_store *s);

/* Nobody needs what the moment that ended last left in the non-model region: until the next one begins its memory goes
 * to who wants room. */
void ps_store_rest(ps_store *s);

/* The next ps_store_begin_moment is `moment` of the schedule (after an evaluation, which runs forward moments only). */
void ps_store_go_to(ps_store *s, int32_t moment);

/* Device memory for activations and workspace: addresses for `bytes`, memory by ps_store_begin_moment. Called again,
 * between moments, it gives the same addresses when they are enough, else others; what lay there is lost. On failure
 * all is as it was. */
PS_NODISCARD ps_status ps_store_reserve_non_model(ps_store *s, int64_t bytes, void **base);

/* Chunks should take at most this many bytes of the tier (static partition, warm-up ratio): beyond it others leave
 * first; when none can, the budget alone decides. INT64_MAX: no limit but the budget. */
void ps_store_limit_chunks(ps_store *s, ps_tier tier, int64_t bytes);

/* ---- access ---- */

/* Make the chunk resident on tier (device or host) and keep it there until ps_store_unpin; each success needs one.
 * A chunk without content is zero-filled, except for OVERWRITE. It may be pinned several times, on one tier only.
 * PS_EBUDGET: everything else there is pinned. PS_EIO: a transfer failed; the chunk's last content is still kept.
 * `out` (may be NULL) gets the payload's address. */
PS_NODISCARD ps_status ps_store_pin(ps_store *s, ps_chunk_id chunk, ps_tier tier, ps_access_mode mode, void **out);
void ps_store_unpin(ps_store *s, ps_chunk_id chunk);

/* Of a pinned chunk, for items of other queues than the tier's compute: the event after which its content is there
 * and, for who writes (the chunk is pinned so), its memory unused; that these items, all up to e, use it too; what is
 * issued to the tier's compute from then on comes after them if they may write. Tensors of a foreign framework are
 * views of payloads in this way. e's queue must outlive the chunk's payload there. PS_EINVAL: more than four queues of
 * the caller's use the chunk at once. */
ps_events ps_store_usable(const ps_store *s, ps_chunk_id chunk);
PS_NODISCARD ps_status ps_store_use_until(ps_store *s, ps_chunk_id chunk, ps_event e);

/* Where a pinned chunk is. */
ps_tier ps_store_pin_tier(const ps_store *s, ps_chunk_id chunk);
/* Address of a pinned chunk. Pinned chunks of a run lie one after the other. */
void *ps_store_payload(const ps_store *s, ps_chunk_id chunk);

/* Chunks apart have this size from now on, a multiple of PS_PAGE_BYTES. When it is another one their content is used
 * up. None is pinned. */
void ps_store_resize_apart(ps_store *s, int64_t bytes);

/* The content is used up: payloads are given back everywhere, nothing is moved. The chunk must not be pinned. */
void ps_store_discard(ps_store *s, ps_chunk_id chunk);

/* Wait for all transfers under way. */
PS_NODISCARD ps_status ps_store_wait_all(ps_store *s);
/* The same, and memory of activations is given back: between moments; its addresses stay. */
PS_NODISCARD ps_status ps_store_settle(ps_store *s);

/* ---- states ---- */

typedef enum ps_state {
    PS_STATE_FREE,
    PS_STATE_COMPUTE,
    PS_STATE_HOLD,
    PS_STATE_HOLD_AFTER_FWD,
    PS_STATE_HOLD_AFTER_BWD,
    PS_STATE_RELEASED, /* chunks only */
    PS_STATE_COUNT,
} ps_state;

const char *ps_state_name(ps_state st); /* "HOLD_AFTER_FWD" */

/* tensor: its number in the layout. Begins nest, and each needs an end; the last one's state is the tensor's.
 * PS_ESTATE, naming both states, for an end without a begin, or with COMPUTE or RELEASED. */
PS_NODISCARD ps_status ps_store_tensor_begin(ps_store *s, int32_t tensor);
PS_NODISCARD ps_status ps_store_tensor_end(ps_store *s, int32_t tensor, ps_state state);
ps_state ps_store_tensor_state(const ps_store *s, int32_t tensor);
ps_state ps_store_chunk_state(const ps_store *s, ps_chunk_id chunk);

/* Where the chunk's content is current: bit (1 << tier). 0: it has none. */
unsigned ps_store_chunk_copies(const ps_store *s, ps_chunk_id chunk);

/* ---- accounting ---- */

typedef struct ps_store_stats {
    int64_t moved_bytes[PS_LINK_COUNT];
    int64_t n_moves[PS_LINK_COUNT];
    int64_t wait_ns;                        /* the computing thread stood still for copies */
    int64_t chunk_bytes[PS_RAM_TIER_COUNT]; /* payloads there now */
    int64_t non_model_bytes;                /* device memory of activations and workspace now */
    int64_t disk_bytes;                     /* slots of the file given to chunks; those apart give theirs up */
    int64_t disk_peak_bytes;
    int64_t n_dropped, n_written_back, n_prefetched;
} ps_store_stats;

ps_store_stats ps_store_get_stats(const ps_store *s); /* sums since create */

/* What the bytes of a tier are. */
typedef struct ps_tier_use {
    int64_t list_bytes[PS_LISTS_MAX]; /* chunks by list */
    int64_t non_model_bytes;          /* activations and workspace; device only */
    int64_t other_bytes;              /* in use when the store was created: staging */
} ps_tier_use;

/* At the moment at which the tier (device or host) held most. */
ps_tier_use ps_store_peak(const ps_store *s, ps_tier tier);

typedef struct ps_store_collective {
    const char *name, *group; /* for a profile; must outlive it */
    int32_t chunk;            /* the first */
    int64_t ns, sent_bytes;   /* its duration; what this rank sends */
} ps_store_collective;

/* A transfer between ranks begins: somebody else moves its bytes, and the store puts its duration on the timeline.
 * Returns when it will be done; ps_store_end_collective waits until then, in estimated time. */
int64_t ps_store_begin_collective(ps_store *s, const ps_store_collective *c);
void ps_store_end_collective(ps_store *s, int64_t done_ns);

/* Estimated time since create. */
const ps_timeline *ps_store_timeline(const ps_store *s);

/* Bytes that the chunks of a list take on a tier: payloads, on disk slots of the file. */
int64_t ps_store_list_bytes(const ps_store *s, ps_list list, ps_tier tier);

/* Why a copy is made, a chunk arrives on a tier, or leaves it: what a profile says. */
typedef enum ps_reason {
    PS_REASON_WANTED,      /* copy: the current moment needs it */
    PS_REASON_PREFETCH,    /* copy: a coming moment needs it */
    PS_REASON_WRITE_BACK,  /* copy and arrive: off a tier that shall have room */
    PS_REASON_START,       /* arrive: there already when recording began */
    PS_REASON_CREATE,      /* arrive: content begins here */
    PS_REASON_LOAD,        /* arrive: where it is, or will be, used */
    PS_REASON_EVICT,       /* leave: room for another chunk */
    PS_REASON_ACTIVATIONS, /* leave: room for activations */
    PS_REASON_DROP,        /* leave: a copy that is stale, or that nobody needs beside another one */
    PS_REASON_DISCARD,     /* leave: the content is used up */
    PS_REASON_COUNT,
} ps_reason;

const char *ps_reason_name(ps_reason r); /* "wanted", "write back" */

/* Record where every chunk is, and what each tier holds; to be called when the recorder has just been switched on. */
void ps_store_profile_start(const ps_store *s);
/* Wait until the queues have carried out what is under way, so that its times are on record. For the store they are
 * still under way: what is moved when stays as it is. */
void ps_store_profile_settle(const ps_store *s);

/* A hash of where every chunk is and of what is under way, relative to the timeline. When it is the same after two
 * steps, all later steps repeat what lay between them (policies that look at the past, lru, need one step more). */
uint64_t ps_store_residency(const ps_store *s);

/* Put the chunks of a store that has no payload yet on the tiers on which those of `from` are, without their content: a
 * run of s from there shows what would fit. Equal layouts and lists; `from` is settled, nothing pinned in it. After a
 * failure s can only be destroyed. */
PS_NODISCARD ps_status ps_store_take_residency(ps_store *s, const ps_store *from);

/* Debug level 2 calls it after every transition; PS_ESTATE names the broken invariant: payload bytes, non-model bytes
 * and what was in use before the store add up to what the devices say, budgets hold; pinned => payload there; content
 * somewhere unless FREE; a payload is current, or being filled; a transfer has its ends. */
PS_NODISCARD ps_status ps_store_check(const ps_store *s);

#endif
