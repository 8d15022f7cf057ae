/* residency.h - the lowest level of the store: the table of chunks. The payloads and the disk slot of each chunk, which
 * of them are current, their users, and the used bytes of each tier.
 *
 * This level moves and decides nothing. Changes are put on a list (ps_residency_note), which the scheduling level
 * processes before it decides (ps_scheduling_take_changes). */
#ifndef PS_CHUNK_RESIDENCY_H
#define PS_CHUNK_RESIDENCY_H

#include "chunk/chunk_lists.h"
#include "chunk/reason.h"
#include "device/device.h"
#include "device/disk.h"
#include "device/order.h"

#define TIER_BIT(tier) (1u << (tier))
#define NO_SLOT ((int64_t)-1)

/* Kinds of changes of a chunk; bits. */
enum {
    PS_CHANGED_PLACE = 1,   /* a payload, `current`, or its transfer */
    PS_CHANGED_USE = 2,     /* it has been pinned, or marked as leaving */
    PS_CHANGED_FREE = 4,    /* its last pin or its transfer has ended */
    PS_CHANGED_DROPPED = 8, /* content has left a tier, and may be needed there again */
};

typedef struct chunk {
    int64_t bytes;                    /* of the payload, whole pages */
    void *payload[PS_RAM_TIER_COUNT]; /* NULL: none there */
    unsigned current;                 /* a TIER_BIT for each tier on which the content is the newest */
    unsigned leaving; /* a mark of payloads, by TIER_BIT: chosen to leave the tier, and not used there since */
    unsigned changes; /* not processed yet; != 0: it is in changed */
    int32_t pins;
    ps_tier pin_tier;       /* its tier, while pins > 0 */
    bool is_changing;       /* one pin is for writing */
    uint64_t last_use_tick; /* of the last pin */
    int64_t disk_offset;    /* slot in the file, or NO_SLOT */
    int64_t slot_bytes;     /* of that slot: more than `bytes` when a larger chunk had it before; 0: none */
    bool keeps;             /* the next change keeps the slot with the content of before, or one has kept it */
    int64_t kept_offset;    /* that slot, once kept, or NO_SLOT; of as many bytes as the payload */
    bool has_second_home;   /* it has kept a slot, now or before: two places of the file count */
    ps_event ready[PS_RAM_TIER_COUNT];   /* the content of the payload is complete after it; payload.c */
    ps_events in_use[PS_RAM_TIER_COUNT]; /* the payload is unused after these */
} chunk;

typedef struct ps_residency {
    /* parameters */
    const ps_layout *layout;
    ps_lists lists;
    ps_device *ram[PS_RAM_TIER_COUNT];
    ps_queue *compute[PS_RAM_TIER_COUNT];
    ps_disk *disk;
    int64_t disk_budget_bytes;
    bool is_unified_memory, counts_non_model; /* as in ps_store_desc */
    ps_profile *profile;

    int32_t n_ids;                       /* chunk ids: ps_lists_n_ids */
    chunk *chunks;                       /* [n_ids] */
    ps_region **runs[PS_RAM_TIER_COUNT]; /* [lists.n * n_runs], created when first needed */
    int64_t page_bytes;                  /* of payloads: the largest of the tiers */
    ps_chunk_id *changed;                /* [n_ids] chunks with changes */
    int32_t n_changed;

    ps_tier_use use[PS_TIER_COUNT], peak[PS_RAM_TIER_COUNT];
    int64_t peak_bytes[PS_RAM_TIER_COUNT];
    int64_t chunk_bytes[PS_RAM_TIER_COUNT]; /* payloads */
    int64_t chunk_limit_bytes[PS_RAM_TIER_COUNT];
    ps_region *non_model;
    int64_t non_model_reserved_bytes, non_model_committed_bytes;
    int64_t disk_used_bytes, disk_peak_bytes;
    bool has_homes;                     /* each chunk has a fixed place in the disk's file (slot.c) */
    int64_t standalone_slot_bytes;      /* of disk_used_bytes: slots of standalone chunks */
    int32_t n_keeping;                  /* as in ps_store_desc; 0 without homes */
    ps_list keeping_first, keeping_end; /* as in ps_store_desc */
    int64_t second_home_bytes;          /* of chunks with second homes */
} ps_residency;

static inline ps_tier ps_other_ram(ps_tier tier)
{
    return tier == PS_TIER_DEVICE ? PS_TIER_HOST : PS_TIER_DEVICE;
}

static inline ps_list ps_residency_list_of(const ps_residency *r, ps_chunk_id id)
{
    return ps_lists_list_of(&r->lists, r->layout, id);
}

static inline bool ps_residency_is_standalone(const ps_residency *r, ps_chunk_id id)
{
    return ps_lists_is_standalone(&r->lists, ps_residency_list_of(r, id));
}

static inline bool has_payload(const chunk *c, ps_tier tier)
{
    return tier < PS_RAM_TIER_COUNT && c->payload[tier] != NULL;
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

/* ---- payload.c ---- */

/* All parameters are set. After a failure: ps_residency_deinit. */
ps_status ps_residency_init(ps_residency *r);
/* All payloads have been freed, and all queues are idle. */
void ps_residency_deinit(ps_residency *r);

/* To be called after every change that PS_CHANGED_* names. */
void ps_residency_note(ps_residency *r, ps_chunk_id id, unsigned changes);

/* Allocate the chunk's payload on the tier: a block, or its range of its run's region. The caller has ensured room. */
ps_status ps_residency_allocate(ps_residency *r, ps_chunk_id id, ps_tier tier, ps_reason why);
/* Free that memory; its content is no longer current. No transfer uses it. */
void ps_residency_free(ps_residency *r, ps_chunk_id id, ps_tier tier, ps_reason why);
/* The same of all its payloads, whose content is discarded. */
void ps_residency_free_all(ps_residency *r, ps_chunk_id id);
/* The region of a chunk's run on the tier, which may not exist yet, and the chunk's offset in it; NULL for a chunk in
 * no run. */
ps_region **ps_residency_run(ps_residency *r, ps_chunk_id id, ps_tier tier, int64_t *offset);
/* From now on only the content on this tier is current. */
void ps_residency_set_current(ps_residency *r, ps_chunk_id id, ps_tier tier);
/* The content on disk, if any, is stale; the chunk keeps the slot. */
void ps_residency_forget_disk_content(ps_residency *r, ps_chunk_id id, ps_reason why);

/* q continues after that; NULL: the host does */
ps_status ps_residency_await_whole(const ps_residency *r, ps_chunk_id id, ps_tier tier, ps_queue *q, ps_wait_site site);
ps_status ps_residency_await_unused(const ps_residency *r, ps_chunk_id id, ps_tier tier, ps_queue *q,
                                    ps_wait_site site);
/* An item has been issued that uses the payload until e; writes: the content is complete again only then. */
void ps_residency_note_item(ps_residency *r, ps_chunk_id id, ps_tier tier, ps_event e, bool writes);

/* ---- tier_use.c: used bytes, and their records in a profile ---- */

int64_t ps_residency_free_bytes(const ps_residency *r, ps_tier tier);
/* The chunk's payload counts on the tier from now on (sign 1), or no longer (-1). */
void ps_residency_count(ps_residency *r, ps_chunk_id id, ps_tier tier, int sign);
/* Commits, or counts, the first `bytes` of the non-model region; after a failure nothing has changed. */
ps_status ps_residency_commit_non_model(ps_residency *r, int64_t bytes);
/* Shrinks them to `bytes`. False: they were not larger. */
bool ps_residency_trim_non_model(ps_residency *r, int64_t bytes);

static inline bool ps_residency_has_non_model(const ps_residency *r)
{
    return r->non_model != NULL || r->counts_non_model;
}

void ps_residency_record_memory(const ps_residency *r, ps_tier tier);
/* kind: ARRIVE or LEAVE */
void ps_residency_record(const ps_residency *r, ps_chunk_id id, ps_tier tier, ps_profile_kind kind, ps_reason why);
/* Records the residency of every chunk and the use of each tier, when recording begins. */
void ps_residency_record_all(const ps_residency *r);

/* ---- slot.c ---- */

/* Decides whether chunks have homes, and second ones, when the sizes of all are known. The decision stays when
 * standalone chunks change their size later. */
void ps_residency_choose_homes(ps_residency *r);
bool ps_residency_has_slot_room(const ps_residency *r, ps_chunk_id id);
/* Give the chunk a slot of the file; there is room, and it has none. It keeps the slot until ps_residency_free_slot. */
void ps_residency_take_slot(ps_residency *r, ps_chunk_id id);
void ps_residency_free_slot(ps_residency *r, ps_chunk_id id);
/* Moves the slot of one chunk of lists, which is large enough, to another chunk, which has none. */
void ps_residency_pass_slot(ps_residency *r, ps_chunk_id from, ps_chunk_id to);

/* Bytes of the file that count for the chunk. */
int64_t ps_residency_places_bytes(const chunk *c);

/* Has the chunk a second home, or is there room for one? */
bool ps_residency_has_room_to_keep(const ps_residency *r, ps_chunk_id id);
/* The next change keeps the chunk's slot, for which there is room. */
void ps_residency_keep(ps_residency *r, ps_chunk_id id);
/* That change: the slot is kept, and the chunk has none. */
void ps_residency_keep_slot(ps_residency *r, ps_chunk_id id);
/* Nothing of the chunk is kept any more. */
void ps_residency_free_kept(ps_residency *r, ps_chunk_id id);
/* The kept slot is the chunk's again, with the content of before; the one it has had since is free. */
void ps_residency_restore_slot(ps_residency *r, ps_chunk_id id);

#endif
