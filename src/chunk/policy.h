/* policy.h - which chunk leaves a full tier. Pure functions: no clock, no allocation, no device call. */
#ifndef PS_CHUNK_POLICY_H
#define PS_CHUNK_POLICY_H

#include "chunk/schedule.h"

typedef struct ps_policy_query {
    const ps_schedule *schedule; /* NULL while no schedule exists (initialisation, warm-up) */
    int32_t now;                 /* current moment; -1 before the first */
    int64_t turn;                /* moments since the schedule was set: `now`, but going on over the steps' ends */
    ps_chunk_id chunk;
    ps_tier tier;           /* the full one */
    bool is_one_memory;     /* device and host are: a use on either counts */
    uint64_t last_use_tick; /* the store's count of pins at the chunk's last pin */
} ps_policy_query;

#define PS_ORDER_MOST (INT64_MAX / 4)

typedef struct ps_policy {
    const char *name;
    /* The chunk with the highest order, 0 .. PS_ORDER_MOST, leaves first; of equals a clean one, then that with the
     * smaller id. The store asks again only when the chunk is pinned, a moment of the schedule that uses it comes, or
     * its payloads change: nothing else may change the order. */
    int64_t (*order)(const ps_policy_query *q);
} ps_policy;

/* Farthest next use on the tier, of one memory on any (Belady 1966); least recently used while there is no schedule. */
extern const ps_policy ps_policy_opt;
/* Least recently used. */
extern const ps_policy ps_policy_lru;

/* By name; NULL when unknown. */
const ps_policy *ps_policy_find(const char *name);

#endif
