/* scheduling.h - the upper level of the store: decides what moves when. Room on a full tier, eviction, prefetching, by
 * the moments of a schedule. */
#ifndef PS_CHUNK_SCHEDULING_H
#define PS_CHUNK_SCHEDULING_H

#include "chunk/max_tree.h"
#include "chunk/movement.h"
#include "chunk/schedule.h"
#include "chunk/store_options.h"

/* State of a chunk for decisions. */
typedef struct ps_standing {
    int64_t wanted_serial; /* moment_serial of the last moment that uses it: no victim during that moment */
    ps_tier wanted_tier;
    bool is_noted, is_passed;           /* it is in noted, in passed */
    bool is_awaited;                    /* the look-ahead will copy it when its pins or transfer in flight have ended */
    bool is_unready[PS_RAM_TIER_COUNT]; /* its accesses there are marked in unready */
} ps_standing;

typedef struct ps_scheduling {
    /* parameters; as in ps_store_desc */
    ps_residency *r;
    ps_movement *m;
    ps_store_options options;
    bool shares_slots;

    const ps_schedule *schedule;
    int32_t now;                 /* moment of the schedule; -1 before the first */
    int64_t turn;                /* moments of this schedule so far, begun or skipped; 0 before the first */
    int64_t moment_serial;       /* counts begun moments */
    int64_t needed_bytes;        /* of non-model memory, by the current moment */
    bool is_resting;             /* between moments, and nothing in the non-model region is needed */
    ps_max_tree framework_bytes; /* by moment: bytes of its last occurrence; no nodes: all as in the trace */

    ps_standing *standings;                        /* [n_ids] */
    ps_max_tree leaving[PS_RAM_TIER_COUNT], spare; /* victim.c */
    ps_chunk_id *noted, *passed; /* [n_ids] chunks whose values in the trees may be out of date; chunks passed over */
    int32_t n_noted, n_passed;
    /* a bit for each access of the schedule: set if the look-ahead may have to act on it. NULL: not created yet */
    uint64_t *unready;
    /* The look-ahead has nothing to do up to the moment with this moment_serial: the last one left nothing to do, and
     * since then nothing relevant has changed (no chunk has been evicted, for example). */
    int64_t quiet_until;
    bool is_short_of_slots; /* room is being made, and there is none without slots of other chunks */
    int64_t n_dropped, n_written_back, n_prefetched;
} ps_scheduling;

/* The content is in unified RAM: it moves to either tier without a copy when needed. */
static inline bool ps_scheduling_is_in_reach(const ps_scheduling *s, const chunk *c)
{
    return s->r->is_unified_memory && (is_current(c, PS_TIER_DEVICE) || is_current(c, PS_TIER_HOST));
}

/* ---- changes.c ---- */

/* All parameters are set. After a failure: ps_scheduling_deinit. */
ps_status ps_scheduling_init(ps_scheduling *s);
void ps_scheduling_deinit(ps_scheduling *s);

/* Process all changes in the table of chunks and of transfers since the last call. */
void ps_scheduling_take_changes(ps_scheduling *s);
/* PS_ESTATE when the state of the chunk is wrong and no pending change would correct it. */
ps_status ps_scheduling_check(const ps_scheduling *s, ps_chunk_id id);

/* ---- victim.c ---- */

/* A value that determines when the chunk leaves has changed. */
void ps_scheduling_note(ps_scheduling *s, ps_chunk_id id);
/* Moments until the next use of the chunk on the tier; with unified memory, on any. A schedule is set. */
int32_t ps_scheduling_next_use(const ps_scheduling *s, ps_chunk_id id, ps_tier tier);
/* The next victim on the tier: first a host copy of content that the device has too, then a chunk that is already on
 * its way out, then the one whose next use is farthest (Belady), or that was used least recently where there is no
 * schedule; of equal ones a clean chunk before a dirty one. -1: none. */
ps_chunk_id ps_scheduling_pick_victim(ps_scheduling *s, ps_tier tier);
/* The victim that leaves RAM so that the tier gets room, and its tier: with unified memory it may be on the other one,
 * as other chunks move there then. */
ps_chunk_id ps_scheduling_pick_victim_for(ps_scheduling *s, ps_tier tier, ps_tier *from);
/* A chunk passed over is not picked until ps_scheduling_clear_passed. */
void ps_scheduling_pass_over(ps_scheduling *s, ps_chunk_id id);
void ps_scheduling_clear_passed(ps_scheduling *s);
/* Host payloads that can be dropped without a copy. */
typedef enum ps_spare_kind {
    PS_SPARE_DUPLICATE,  /* the device has the content too */
    PS_SPARE_USED_LATER, /* another tier has it, and its next use is after that of chunk for_id */
} ps_spare_kind;
/* The first of them with an id >= `begin`; -1: none. */
ps_chunk_id ps_scheduling_next_spare(ps_scheduling *s, ps_chunk_id begin, ps_spare_kind kind, ps_chunk_id for_id);
/* PS_ESTATE when its values in the trees are wrong. */
ps_status ps_scheduling_check_victim(const ps_scheduling *s, ps_chunk_id id);

/* ---- write_back.c ---- */

/* Start copying a dirty chunk off the tier, so that room_on gets room (with unified memory maybe the other tier), to a
 * tier other than room_on. *started is false when no other tier has room. */
ps_status ps_scheduling_write_back(ps_scheduling *s, ps_chunk_id id, ps_tier from, ps_tier room_on, bool *started);
/* Start copying a chunk that RAM alone has to the disk; it is no victim by that. Does nothing when another transfer of
 * it is in flight, or the disk has no room. */
ps_status ps_scheduling_write_to_disk(ps_scheduling *s, ps_chunk_id id);
/* Make room on the host for chunk for_id, which is to leave the device, as far as possible without a copy. */
ps_status ps_scheduling_drop_spare_host(ps_scheduling *s, ps_chunk_id for_id);
/* Frees a payload whose content another tier has too. */
ps_status ps_scheduling_drop(ps_scheduling *s, ps_chunk_id id, ps_tier tier, ps_reason why);

/* ---- room.c ---- */

/* Free `bytes` on the tier, waiting as needed. PS_EBUDGET when pinned and needed chunks leave too little.
 * why: PS_REASON_EVICT or PS_REASON_ACTIVATIONS. */
ps_status ps_scheduling_make_room(ps_scheduling *s, ps_tier tier, int64_t bytes, ps_reason why);
/* Commits needed_bytes, after making room. */
ps_status ps_scheduling_commit_non_model(ps_scheduling *s);
/* Start making the chunk resident on a RAM tier, after making room or by a swap. */
ps_status ps_scheduling_bring(ps_scheduling *s, ps_chunk_id id, ps_tier tier, ps_reason why);
/* Largest non-model bytes of the moments now .. now + n_ahead, as far as known. */
int64_t ps_scheduling_non_model_ahead(const ps_scheduling *s, int32_t n_ahead);

typedef struct ps_room {
    ps_tier tier;
    int64_t bytes; /* needed */
    bool is_there;
    int64_t coming_bytes; /* once the write-backs of its victims are done */
} ps_room;

/* Prepare room for a use `distance` moments from now, waiting only for overdue transfers: drop clean chunks, start
 * writing back dirty ones, and evict only chunks used later than that. */
ps_status ps_scheduling_try_room(ps_scheduling *s, ps_room *room, int32_t distance, ps_reason why);
/* Called after it, with room->bytes increased by a load used no sooner: only starts write-backs. */
ps_status ps_scheduling_prepare_room(ps_scheduling *s, ps_room *room, int32_t distance);

/* ---- look_ahead.c ---- */

/* Number of moments ahead for which room for growing activations is prepared, per unit of prefetch depth. */
#define PS_ACTIVATION_LOOK_AHEAD 8
/* Start the copies that the current moment needs, before any wait, so that they run in parallel. */
ps_status ps_scheduling_start_wanted(ps_scheduling *s);
/* Start the copies for coming moments, as far as there is room without waiting. */
ps_status ps_scheduling_look_ahead(ps_scheduling *s);
/* Mark every access of the schedule that may need a copy, if none is marked yet. */
ps_status ps_scheduling_mark_accesses(ps_scheduling *s);

#endif
