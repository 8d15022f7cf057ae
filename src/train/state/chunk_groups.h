/* chunk_groups.h - with several ranks: the chunks that are gathered and reduced together.
 *
 * Chunk i belongs to rank i mod p. A group is p consecutive chunks, one of each rank (one chunk, with memory-saving
 * communication); chunks of parameters that are not trained (ps_layout.n_mirrored) have separate groups. */
#ifndef PS_STATE_CHUNK_GROUPS_H
#define PS_STATE_CHUNK_GROUPS_H

#include "chunk/comm/chunk_ranks.h"
#include "chunk/layout.h"

/* Chunks chunk .. chunk + n_chunks - 1. */
typedef struct ps_chunk_group {
    int32_t chunk, n_chunks;
} ps_chunk_group;

int32_t ps_chunk_group_count(const ps_layout *l, const ps_ranks *ranks);
/* Number of the chunk's group. */
int32_t ps_chunk_group_of(const ps_layout *l, const ps_ranks *ranks, int32_t chunk);
ps_chunk_group ps_chunk_group_at(const ps_layout *l, const ps_ranks *ranks, int32_t group);

#endif
