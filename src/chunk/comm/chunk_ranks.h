/* chunk_ranks.h - how ranks share a model's chunks: chunk i belongs to rank i mod n. */
#ifndef PS_COMM_CHUNK_RANKS_H
#define PS_COMM_CHUNK_RANKS_H

#include "chunk/comm/comm.h"

typedef struct ps_ranks {
    int32_t rank, n;   /* n = 1: nothing is gathered */
    bool saves_memory; /* with_mem_saving_comm: broadcast and reduce of single chunks */
    ps_comm *comm;     /* the caller's; NULL: one rank, or a plan without running ranks */
} ps_ranks;

/* Chunks that are gathered together: one of each rank, or one. */
static inline int32_t ps_ranks_group_size(const ps_ranks *r)
{
    return r->saves_memory ? 1 : r->n;
}
static inline int32_t ps_ranks_owner(const ps_ranks *r, int32_t chunk)
{
    return chunk % r->n;
}
static inline bool ps_ranks_owns(const ps_ranks *r, int32_t chunk)
{
    return ps_ranks_owner(r, chunk) == r->rank;
}

#endif
