/* policy.h - which chunk leaves a full tier. Pure functions: no clock, no allocation, no device call. */
#ifndef PS_CHUNK_POLICY_H
#define PS_CHUNK_POLICY_H

#include "chunk/schedule.h"

typedef struct ps_policy_query {
    const ps_schedule *schedule; /* NULL while no schedule exists (initialisation, warm-up) */
    int32_t now;                 /* current moment; -1 before the first */
    ps_chunk_id chunk;
    ps_tier tier;           /* the full one */
    uint64_t last_use_tick; /* the store's count of pins at the chunk's last pin */
    uint64_t tick;          /* that count now */
} ps_policy_query;

typedef struct ps_policy {
    const char *name;
    /* The chunk with the highest rank leaves first; equal ranks: a clean one first, then the smaller id. */
    int64_t (*rank)(const ps_policy_query *q);
} ps_policy;

/* Farthest next use on the tier (Belady 1966); least recently used while there is no schedule. */
extern const ps_policy ps_policy_opt;
/* Least recently used. */
extern const ps_policy ps_policy_lru;
/* PatrickStar's: farthest next use, but the whole update phase is one moment, and chunks are equal (so the smallest id
 * leaves) until the schedule exists. For comparison. */
extern const ps_policy ps_policy_patrickstar;

/* By name; NULL when unknown. */
const ps_policy *ps_policy_find(const char *name);

#endif
