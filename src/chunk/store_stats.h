/* store_stats.h - statistics of a store: sums, residency, the timeline, a profile, its invariants. Nothing here changes
 * its behaviour. */
#ifndef PS_CHUNK_STORE_STATS_H
#define PS_CHUNK_STORE_STATS_H

#include "chunk/reason.h"
#include "chunk/store.h"

typedef struct ps_store_stats {
    int64_t moved_bytes[PS_LINK_COUNT];
    int64_t n_moves[PS_LINK_COUNT];
    int64_t wait_ns;                        /* time that the computing thread waited for copies */
    int64_t chunk_bytes[PS_RAM_TIER_COUNT]; /* current payloads */
    int64_t non_model_bytes;                /* device memory of activations and workspace now */
    int64_t disk_bytes;                     /* slots of the file in use */
    int64_t disk_peak_bytes;
    ps_tier_use use[PS_TIER_COUNT];      /* now */
    ps_tier_use peak[PS_RAM_TIER_COUNT]; /* at the peak of the tier */
    int64_t n_dropped, n_written_back, n_prefetched;
} ps_store_stats;

ps_store_stats ps_store_get_stats(const ps_store *s); /* sums since create */

typedef struct ps_chunk_info {
    unsigned copies;  /* tiers with current content: bit (1 << tier). 0: none */
    int32_t pins;     /* 0: it may be evicted */
    ps_tier pin_tier; /* if pinned */
} ps_chunk_info;

ps_chunk_info ps_store_get_chunk(const ps_store *s, ps_chunk_id chunk);

/* Estimated time since create. */
const ps_timeline *ps_store_timeline(const ps_store *s);

/* Record the residency of every chunk and the use of each tier; to be called when recording has just begun. */
void ps_store_profile_start(const ps_store *s);
/* Wait until the queues have carried out all transfers, so that their times are recorded. For the store they are still
 * in flight: what is moved when stays the same. */
void ps_store_profile_synchronize(const ps_store *s);

/* A hash of the residency of every chunk and of transfers in flight, relative to the timeline. When it is the same
 * after two steps, all later steps repeat those in between (without a schedule, where the least recently used
 * chunk is evicted, one more step is needed). */
uint64_t ps_store_residency(const ps_store *s);

/* Debug level 2 calls it after every transition; PS_ESTATE names the broken invariant: payload bytes, non-model bytes
 * and bytes used before the store add up to the devices' numbers, budgets hold; a pinned chunk has a payload; content
 * exists somewhere unless RELEASED; a payload is current, or being filled; a transfer has its ends. */
PS_NODISCARD ps_status ps_store_check(const ps_store *s);

#endif
