/* movement.h - the middle level of the store: carries out transfers between tiers that a higher level decides.
 * Transfers in flight, bounce buffers in host memory, zero-copy moves where device and host are one memory, and the
 * timeline by which a transfer counts as finished.
 *
 * It makes no room: the caller has ensured room at the destination. */
#ifndef PS_CHUNK_MOVEMENT_H
#define PS_CHUNK_MOVEMENT_H

#include "chunk/residency.h"
#include "chunk/timeline.h"

/* Transfers of the disk that were issued one after the other, so their tickets are consecutive. */
typedef struct ps_disk_parts {
    ps_event first;
    int32_t n;
} ps_disk_parts;

/* A transfer in flight. Both ends keep their payload until it is retired. */
typedef struct flight {
    bool active;
    ps_tier src, dst;
    ps_link link;
    ps_event done;       /* of the queue that carries it out; on disk, of the last part */
    ps_disk_parts parts; /* its disk transfers, if any */
    int64_t done_ns;     /* on the timeline */
} flight;

/* Bounce buffers in host memory between disk and device, where the disk cannot access device memory. */
#define PS_BOUNCES 4

typedef struct ps_bounce {
    char *memory; /* NULL: none */
    int n;        /* adjacent pieces */
    int64_t piece_bytes;
    ps_event after[PS_BOUNCES]; /* the piece is unused after that */
    uint64_t n_used[2];         /* pieces used so far by reads, by writes */
} ps_bounce;

typedef struct ps_movement {
    /* parameters */
    ps_residency *r;
    bool is_asynchronous; /* as in ps_store_desc */
    ps_timeline time;     /* with its bandwidths */

    bool is_timed;                   /* simulated, and its queues have estimated time (device/sim_time.h) */
    bool is_simulated;               /* copies take estimated time only */
    ps_queue *copies[PS_LINK_COUNT]; /* the two between device and host; NULL for disk */
    ps_bounce bounce;
    flight *flights;     /* [n_ids] */
    flight *overdue;     /* [n_ids] ended on the timeline, and counted as done; the disk may still be working */
    ps_chunk_id *flying; /* [n_ids] chunks with a transfer in flight, in order of start */
    int32_t n_flying, n_overdue;
    int64_t moved_bytes[PS_LINK_COUNT], n_moves[PS_LINK_COUNT];
    int64_t wait_ns; /* time that the computing thread waited for copies */
} ps_movement;

/* ---- transfer.c ---- */

/* All parameters are set. After a failure: ps_movement_deinit. PS_EBUDGET: the host has no room for bounce buffers. */
ps_status ps_movement_init(ps_movement *m);
/* Waits for all transfers in flight, and ignores failures. */
void ps_movement_deinit(ps_movement *m);

/* Start copying the content to dst, where the chunk has a payload (or disk slot). No transfer of it may be in
 * flight. */
ps_status ps_movement_start(ps_movement *m, ps_chunk_id id, ps_tier src, ps_tier dst, ps_reason why);
/* Make the chunk resident on a RAM tier, by a copy that is not waited for or a zero-copy move. */
ps_status ps_movement_load(ps_movement *m, ps_chunk_id id, ps_tier tier, ps_reason why);

/* Wait for the chunk's transfer and count it as done; nothing to do when there is none. On failure the destination's
 * payload is freed, or its disk slot stays stale, and the content stays at the source. */
ps_status ps_movement_retire(ps_movement *m, ps_chunk_id id);
/* The same for a transfer that has ended on the timeline. If the disk is still working on it, it is overdue from then
 * on: it is waited for before its memory is used. */
ps_status ps_movement_retire_on_timeline(ps_movement *m, ps_chunk_id id);
/* All that have ended on the timeline. */
ps_status ps_movement_retire_due(ps_movement *m);
/* Wait for an overdue transfer, before its payload or slot is accessed, or its source is freed. On failure it is
 * undone: the payload that was read is freed, or the slot is not current. */
ps_status ps_movement_land(ps_movement *m, ps_chunk_id id);
/* All transfers, overdue or in flight; returns the first failure. */
ps_status ps_movement_wait_all(ps_movement *m);
/* Waits until the queues have carried out all transfers; they still count as in flight. */
void ps_movement_wait_queues(const ps_movement *m);

/* Computing waits until done_ns of the timeline; id: the chunk it waits for, for the profile, or -1. */
void ps_movement_wait_estimated(ps_movement *m, ps_chunk_id id, ps_link link, int64_t done_ns);

/* In a trial whose queues have no estimated time a profile records the timeline. */
static inline bool ps_movement_tells_times(const ps_movement *m)
{
    return m->is_simulated && !m->is_timed;
}

/* Records a transfer in the profile: that it was requested; and its end, where that is estimated (a real queue records
 * it). */
void ps_movement_record(const ps_movement *m, ps_chunk_id id, const flight *f, int64_t asked_ns, ps_reason why);
void ps_movement_record_end(const ps_movement *m, ps_chunk_id id, const flight *f, int64_t begin_ns);

void ps_disk_parts_add(ps_disk_parts *p, ps_event e);

/* ---- bounce.c ---- */

/* Is the memory of this tier inaccessible to the disk? */
bool ps_movement_bounces(const ps_movement *m, ps_tier ram);
/* Allocates bounce buffers if needed; PS_EBUDGET when the host has no room for any. */
ps_status ps_bounce_init(ps_movement *m);
void ps_bounce_deinit(ps_movement *m);
/* Issue the transfer between the chunk's payload on the device and its slot. *parts, also on failure: the disk
 * transfers issued. */
ps_status ps_movement_bounce(ps_movement *m, ps_chunk_id id, bool is_write, ps_disk_parts *parts);

/* ---- zero_copy.c ---- */

/* Can the chunk get to this tier by a zero-copy move from the other RAM tier? */
bool ps_movement_can_move(const ps_movement *m, ps_chunk_id id, ps_tier to);
/* Makes the move. */
void ps_movement_move(ps_movement *m, ps_chunk_id id, ps_tier to, ps_reason why);
/* Makes the move, while the n others move the other way: a swap between full tiers. */
void ps_movement_swap(ps_movement *m, ps_chunk_id id, ps_tier to, const ps_chunk_id *others, int n, ps_reason why);

#endif
