/* store_impl.h - the store inside: what its files share, which are
 *
 *   store.c          create and destroy, pin and unpin      payload.c        where a chunk has payloads
 *   store_moment.c   moments, memory of activations         transfer.c       copies between tiers
 *   store_state.c    states, invariants                     room.c           room on a full tier
 *   store_profile.c  what a profile gets to know            victim.c         who leaves a tier
 *   view.c           content, read where it lies            look_ahead.c     what is copied ahead of time
 *   in_use.c         order among queues                     bounce.c         between disk and device
 *   hand_over.c      between device and host of one memory
 *
 * Nobody else includes it, but tests. */
#ifndef PS_CHUNK_STORE_IMPL_H
#define PS_CHUNK_STORE_IMPL_H

#include "chunk/max_tree.h"
#include "chunk/sim_lanes.h"
#include "chunk/store.h"
#include "device/order.h"

#define TIER_BIT(tier) (1u << (tier))
#define NO_SLOT ((int64_t)-1)

/* Transfers of the disk that were issued one after the other: so their tickets follow each other. */
typedef struct ps_disk_parts {
    ps_event first;
    int32_t n;
} ps_disk_parts;

/* A transfer under way. Both ends keep their payload until it is retired. */
typedef struct flight {
    bool active;
    ps_tier src, dst;
    ps_link link;
    ps_event done;       /* of the queue that carries it out; of the disk's the last part */
    ps_disk_parts parts; /* what the disk does of it; none: nothing */
    int64_t done_ns;     /* on the timeline */
} flight;

/* Host memory in which payloads are on their way between disk and device, where the disk cannot reach these. */
#define PS_BOUNCES 4

typedef struct ps_bounce {
    char *memory; /* NULL: there is none */
    int n;        /* pieces, one after the other */
    int64_t piece_bytes;
    ps_event after[PS_BOUNCES]; /* the piece is unused after that */
    uint64_t n_used[2];         /* pieces used so far by reads, by writes */
} ps_bounce;

typedef struct chunk {
    int64_t bytes;                       /* of the payload, whole pages */
    void *payload[PS_RAM_TIER_COUNT];    /* NULL: none there */
    ps_event ready[PS_RAM_TIER_COUNT];   /* the content of the payload is whole after it; in_use.c */
    ps_events in_use[PS_RAM_TIER_COUNT]; /* nobody uses the payload after these */
    unsigned current;                    /* a TIER_BIT for each tier on which the content is the newest */
    int32_t pins;
    ps_tier pin_tier;    /* where, while pins > 0 */
    bool is_changing;    /* a pin is for writing */
    int64_t disk_offset; /* slot in the file, or NO_SLOT */
    int64_t slot_bytes;  /* of that slot: more than `bytes` when a larger chunk had it before; 0: none */
    flight flight;
    flight overdue;         /* ended on the timeline, and taken into account; the disk may still be at it */
    uint64_t last_use_tick; /* s->tick at the last pin */
    int64_t wanted_serial;  /* s->moment_serial in which the current moment wants it: not a victim then */
    ps_tier wanted_tier;
    unsigned leaving; /* a TIER_BIT for each tier that it was chosen to leave, and where it has not been used since */
    bool is_noted, is_passed; /* it is in s->noted, in s->passed */
    bool is_awaited;          /* the look-ahead will copy it as soon as its pins or the transfer under way have ended */
    bool is_unready[PS_RAM_TIER_COUNT]; /* its accesses there are marked in s->unready */
} chunk;

struct ps_store {
    ps_store_desc d;
    const ps_layout *layout;
    int32_t n_ids;                       /* chunk ids: ps_lists_n_ids */
    chunk *chunks;                       /* [n_ids] */
    ps_region **runs[PS_RAM_TIER_COUNT]; /* [d.lists.n * n_runs], created when first needed */
    ps_queue *copies[PS_LINK_COUNT];     /* the two between device and host; NULL for disk */
    ps_bounce bounce;
    int64_t page_bytes; /* of payloads: the largest of the tiers */

    const ps_schedule *schedule;
    int32_t now;           /* moment of the schedule; -1 before the first */
    int64_t turn;          /* moments of this schedule so far, begun or passed over; 0 before the first */
    int64_t moment_serial; /* counts begun moments */
    uint64_t tick;         /* counts pins */
    ps_timeline time;
    bool is_timed;     /* simulated, and its queues have time of their own (device/sim_time.h) */
    bool is_simulated; /* copies take estimated time only */
    bool owes_moment;  /* the cost of the moment `now` is not on the timeline yet */
    ps_tier_use use[PS_RAM_TIER_COUNT], peak[PS_RAM_TIER_COUNT];
    int64_t peak_bytes[PS_RAM_TIER_COUNT];
    ps_chunk_id *flying; /* [n_ids] chunks with a transfer under way, in order of start */
    int32_t n_flying, n_overdue;
    ps_max_tree leaving[PS_RAM_TIER_COUNT], spare; /* victim.c */
    ps_chunk_id *noted, *passed; /* [n_ids] chunks whose numbers there may be out of date; chunks passed over */
    int32_t n_noted, n_passed;
    /* a bit for each access of the schedule: set, the look-ahead may have to do something for it. NULL: not made yet */
    uint64_t *unready;
    /* The look-ahead has nothing to do up to the moment with this moment_serial: the last one left nothing to do, and
     * nothing has happened since that changes that (no chunk has left, for example). */
    int64_t quiet_until;

    ps_region *non_model;
    int64_t non_model_reserved_bytes, non_model_committed_bytes, non_model_needed_bytes;
    bool is_resting;        /* between moments, and nothing in the region is needed */
    ps_max_tree told_bytes; /* by moment, what it was last begun with; no nodes: all as the trace says */
    int64_t chunk_limit_bytes[PS_RAM_TIER_COUNT];
    int64_t other_bytes[PS_RAM_TIER_COUNT]; /* in use when the store was created */
    int64_t disk_used_bytes, disk_peak_bytes;
    bool has_homes;           /* each chunk has a place of its own in the disk's file (slot.c) */
    int64_t apart_used_bytes; /* of disk_used_bytes: slots of chunks apart */
    bool is_short_of_slots;   /* room is being made, and without the slots of others there is none */
    ps_state *tensor_state;   /* [n_tensors] */
    int32_t *tensor_uses;     /* [n_tensors] nested begins */
    ps_store_stats stats;
};

static inline ps_list ps_store_list_of(const ps_store *s, ps_chunk_id id)
{
    return ps_lists_list_of(&s->d.lists, s->layout, id);
}

static inline bool ps_store_is_apart(const ps_store *s, ps_chunk_id id)
{
    return ps_lists_is_apart(&s->d.lists, ps_store_list_of(s, id));
}

static inline bool has_payload(const chunk *c, ps_tier tier)
{
    return tier < PS_RAM_TIER_COUNT && c->payload[tier] != NULL;
}

/* Of a trial whose queues have no time of their own: the timeline's is what a profile is told. */
static inline bool tells_times(const ps_store *s)
{
    return s->is_simulated && !s->is_timed;
}

static inline bool is_current(const chunk *c, ps_tier tier)
{
    return (c->current & TIER_BIT(tier)) != 0;
}

/* Another tier has the content too. */
static inline bool is_clean_on(const chunk *c, ps_tier tier)
{
    return (c->current & ~TIER_BIT(tier)) != 0;
}

static inline bool is_leaving(const chunk *c, ps_tier tier)
{
    return (c->leaving & TIER_BIT(tier)) != 0;
}

/* The content is in RAM, and RAM is one memory: any of its tiers gets it when that wants it. */
static inline bool is_in_reach(const ps_store *s, const chunk *c)
{
    return s->d.hands_over && (is_current(c, PS_TIER_DEVICE) || is_current(c, PS_TIER_HOST));
}

/* A chunk's last pin or its transfer has ended: if the look-ahead waits for that, it looks again. */
static inline void note_free(ps_store *s, chunk *c)
{
    if (!c->is_awaited) return;
    c->is_awaited = false;
    s->quiet_until = 0;
}

/* payload.c */
/* Give the chunk memory for a payload on the tier: a block, or its range of its run's region. Room is there. */
ps_status ps_store_give_payload(ps_store *s, ps_chunk_id id, ps_tier tier, ps_reason why);
/* Take that memory back; what was in it is not current any more. */
void ps_store_take_payload(ps_store *s, ps_chunk_id id, ps_tier tier, ps_reason why);
/* The region of a chunk's run on the tier, which may not be made yet, and the chunk's offset in it; NULL for a chunk in
 * none. */
ps_region **ps_store_run_region(ps_store *s, ps_chunk_id id, ps_tier tier, int64_t *offset);
/* The content on disk, if any, is worth nothing any more; the slot stays the chunk's own. */
void ps_store_forget_disk_content(ps_store *s, ps_chunk_id id, ps_reason why);

/* The tier's use has grown: remember it if it was never larger. */
void ps_store_note_use(ps_store *s, ps_tier tier);
int64_t ps_store_free_bytes(const ps_store *s, ps_tier tier);
/* The chunk's content or transfer has changed: mark its accesses. Whoever writes `current` or `flight` calls it. */
void ps_store_note_ready(ps_store *s, ps_chunk_id id);
/* Would an access on the tier have to wait for a copy? The content is on its way there, or only elsewhere. */
bool ps_store_is_unready(const ps_store *s, const chunk *c, ps_tier tier);

/* in_use.c: q goes on after that, NULL: the host does */
ps_status ps_store_await_whole(const ps_store *s, ps_chunk_id id, ps_tier tier, ps_queue *q, ps_wait_site site);
ps_status ps_store_await_unused(const ps_store *s, ps_chunk_id id, ps_tier tier, ps_queue *q, ps_wait_site site);
/* An item has been issued that uses the payload until e; writes: the content is whole again only then. */
void ps_store_note_item(ps_store *s, ps_chunk_id id, ps_tier tier, ps_event e, bool writes);
/* The payload has just got its memory. */
void ps_store_note_given(ps_store *s, ps_chunk_id id, ps_tier tier);
/* The non-model region has just got memory, which whoever had it before may still use. */
ps_status ps_store_await_non_model(const ps_store *s);
/* What has been issued so far to compute on the device. */
ps_events ps_store_computed(const ps_store *s);
/* The host waits for all that was issued to compute or copy. */
ps_status ps_store_await_queues(const ps_store *s);

/* store_profile.c: what a profile gets to know, after the fact */
/* kind: ARRIVE or LEAVE */
void ps_store_record_residency(const ps_store *s, ps_chunk_id id, ps_tier tier, ps_profile_kind kind, ps_reason why);
void ps_store_record_memory(const ps_store *s, ps_tier tier);
/* The chunk's flight: that it was asked for; and its times, where they are estimated (a real queue records them). */
void ps_store_record_copy(const ps_store *s, ps_chunk_id id, int64_t asked_ns, ps_reason why);
void ps_store_record_moved(const ps_store *s, ps_chunk_id id, int64_t begin_ns);
/* It was handed from one tier to the other. */
void ps_store_record_handed(const ps_store *s, ps_chunk_id id, ps_tier from, ps_tier to, ps_link link, ps_reason why);
void ps_store_record_wait(const ps_store *s, ps_chunk_id id, ps_link link, int64_t begin_ns);

/* store_moment.c */
/* All memory of activations is given back; its addresses stay. */
void ps_store_decommit_non_model(ps_store *s);
/* store_moment.c: `bytes` of the non-model memory from `from` on are given back, or do not count any more. */
void ps_store_release_non_model(ps_store *s, int64_t from, int64_t bytes);
/* Do activations take memory of the device? */
static inline bool has_non_model(const ps_store *s)
{
    return s->non_model != NULL || s->d.counts_non_model;
}
/* Returns st. When that is PS_EBUDGET, the message gets the moment under way and what it needs at once. */
ps_status ps_store_with_moment(const ps_store *s, ps_status st);

/* bounce.c */
/* Can the disk not reach payloads there? */
bool ps_store_bounces(const ps_store *s, ps_tier ram);
/* Where it is needed; PS_EBUDGET when the host has no room for any. */
ps_status ps_store_take_bounce(ps_store *s);
void ps_store_give_bounce(ps_store *s);
/* Issue the transfer between the chunk's payload on the device and its slot. *parts, also on failure: what was issued
 * to the disk. */
ps_status ps_store_bounce(ps_store *s, ps_chunk_id id, bool is_write, ps_disk_parts *parts);

/* hand_over.c: where device and host are one memory */
/* Is the content in the payload of the other RAM tier, and may that one become this tier's? */
bool ps_store_can_hand_over(const ps_store *s, ps_chunk_id id, ps_tier to);
/* It does; room is there. */
void ps_store_hand_over(ps_store *s, ps_chunk_id id, ps_tier to, ps_reason why);
/* It does, and as many others go the other way as it takes. False when that cannot be, and nothing has happened. */
bool ps_store_trade_places(ps_store *s, ps_chunk_id id, ps_tier to, ps_reason why);

/* slot.c */
/* Give the chunk a slot of the file if it has none, and if there is one: not without a disk, or when its budget is
 * spent. The chunk keeps it, unless slots become short. */
ps_status ps_store_take_slot(ps_store *s, ps_chunk_id id);
/* Decides whether chunks have homes, when the sizes of all are known: for good, whatever size those apart get later. */
void ps_store_choose_homes(ps_store *s);

/* transfer.c */
void ps_disk_parts_add(ps_disk_parts *p, ps_event e);
/* Has it come to its end, well or not? */
bool ps_store_has_landed(const flight *f);
/* Start copying the content to dst, whose payload (or disk slot) is there already. No transfer may be under way. */
ps_status ps_store_start_transfer(ps_store *s, ps_chunk_id id, ps_tier src, ps_tier dst, ps_reason why);
/* Wait for the chunk's transfer and take it into account; nothing to do when there is none. On failure the
 * destination's payload is given back and the content stays where it was. */
ps_status ps_store_retire(ps_store *s, ps_chunk_id id);
/* Computing stands still until done_ns of the timeline; id: the chunk it waits for, for the profile, or -1. */
void ps_store_wait_estimated(ps_store *s, ps_chunk_id id, ps_link link, int64_t done_ns);
/* Retire what is done on the timeline. What the disk is still at is overdue from then on: nobody waits for it before
 * somebody needs it. */
ps_status ps_store_retire_due(ps_store *s);
/* As ps_store_retire_due, of one chunk: its transfer is done on the timeline. */
ps_status ps_store_retire_on_timeline(ps_store *s, ps_chunk_id id);
/* Wait for what is overdue, before anyone touches its payload or its slot, or gives up where it came from. On failure
 * it has not been: what was read is given up, what was written is not on the disk. */
ps_status ps_store_land(ps_store *s, ps_chunk_id id);
/* Make the chunk resident on a RAM tier; room is there already. Starts the copy, does not wait; what is handed over is
 * there at once. */
ps_status ps_store_start_load(ps_store *s, ps_chunk_id id, ps_tier tier, ps_reason why);
/* The same, with room made for it. */
ps_status ps_store_bring(ps_store *s, ps_chunk_id id, ps_tier tier, ps_reason why);
/* Make room on the host for chunk for_id, which shall leave the device, as far as that takes no copy. */
ps_status ps_store_drop_spare_host(ps_store *s, ps_chunk_id for_id);
/* Start copying a dirty chunk off the tier, so that room_on gets room (of one memory that may be the other tier): not
 * there. *started is false when no other tier has room. */
ps_status ps_store_start_write_back(ps_store *s, ps_chunk_id id, ps_tier from, ps_tier room_on, bool *started);

/* victim.c */
/* Something that decides when the chunk leaves has changed (a payload, `current`, its last pin): whoever writes these
 * calls it. */
void ps_store_note_standing(ps_store *s, ps_chunk_id id);
/* `now` goes on by one moment. */
void ps_store_note_turn(ps_store *s);
/* Moments until the chunk is used next on the tier; of one memory, on any. A schedule is there. */
int32_t ps_store_next_use(const ps_store *s, ps_chunk_id id, ps_tier tier);
/* Who leaves the tier next; -1: nobody can. */
ps_chunk_id ps_store_pick_victim(ps_store *s, ps_tier tier);
/* Who leaves RAM so that the tier gets room, and which tier it leaves: of one memory also the other one, as others are
 * handed there then. */
ps_chunk_id ps_store_pick_victim_for(ps_store *s, ps_tier tier, ps_tier *from);
/* A chunk passed over is not picked; from ps_store_clear_passed on all can be again. */
void ps_store_pass_over(ps_store *s, ps_chunk_id id);
void ps_store_clear_passed(ps_store *s);
/* Host payloads that can go without a copy. */
typedef enum ps_spare_kind {
    PS_SPARE_DUPLICATE,  /* the device has the content too */
    PS_SPARE_USED_LATER, /* another tier has it, and it is used later than chunk for_id */
} ps_spare_kind;
/* The first of them from id `begin` on; -1: none. */
ps_chunk_id ps_store_next_spare(ps_store *s, ps_chunk_id begin, ps_spare_kind kind, ps_chunk_id for_id);
/* PS_ESTATE when its numbers in the trees are wrong. */
PS_NODISCARD ps_status ps_store_check_standing(const ps_store *s, ps_chunk_id id);

/* room.c */
/* Free `bytes` on the tier, waiting as needed. PS_EBUDGET when pinned and wanted chunks leave too little.
 * why: PS_REASON_EVICT or PS_REASON_ACTIVATIONS. */
ps_status ps_store_make_room(ps_store *s, ps_tier tier, int64_t bytes, ps_reason why);
/* Largest non-model bytes of the moments now .. now + n_ahead, as far as known. */
int64_t ps_store_non_model_ahead(const ps_store *s, int32_t n_ahead);
typedef struct ps_room {
    ps_tier tier;
    int64_t bytes; /* wanted */
    bool is_there;
    int64_t coming_bytes; /* once the write-backs of the chunks that leave for it are done */
} ps_room;

/* Prepare room for something used `distance` moments from now, without waiting but for what is overdue: drop what is
 * clean, start writing back what is dirty, and touch only chunks used later than that. */
ps_status ps_store_try_room(ps_store *s, ps_room *room, int32_t distance, ps_reason why);
/* After that, room->bytes has grown by what something used no sooner wants: only write-backs are started. */
ps_status ps_store_prepare_room(ps_store *s, ps_room *room, int32_t distance);

/* look_ahead.c */
/* How many moments ahead room for growing activations is prepared, per unit of prefetch depth. */
#define PS_ACTIVATION_LOOK_AHEAD 8
/* Start the copies of moments to come, as far as room can be had without waiting. */
ps_status ps_store_look_ahead(ps_store *s);

/* Debug level 2: check the invariants. */
#if PS_DEBUG >= 2
#define STORE_CHECK(s) assert(ps_store_check(s) == PS_OK)
#else
#define STORE_CHECK(s) ((void)(s))
#endif

#endif
