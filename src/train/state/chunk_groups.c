#include "train/state/chunk_groups.h"

static int32_t groups_of(int32_t n_chunks, const ps_ranks *ranks)
{
    return (n_chunks + ps_ranks_group_size(ranks) - 1) / ps_ranks_group_size(ranks);
}

int32_t ps_chunk_group_count(const ps_layout *l, const ps_ranks *ranks)
{
    return groups_of(l->n_mirrored, ranks) + groups_of(l->n_chunks - l->n_mirrored, ranks);
}

int32_t ps_chunk_group_of(const ps_layout *l, const ps_ranks *ranks, int32_t chunk)
{
    if (chunk < l->n_mirrored) return chunk / ps_ranks_group_size(ranks);
    return groups_of(l->n_mirrored, ranks) + (chunk - l->n_mirrored) / ps_ranks_group_size(ranks);
}

ps_chunk_group ps_chunk_group_at(const ps_layout *l, const ps_ranks *ranks, int32_t group)
{
    const int32_t n_trained = groups_of(l->n_mirrored, ranks);
    const bool is_trained = group < n_trained;
    const int32_t end = is_trained ? l->n_mirrored : l->n_chunks;
    const int32_t begin = is_trained ? group * ps_ranks_group_size(ranks)
                                     : l->n_mirrored + (group - n_trained) * ps_ranks_group_size(ranks);
    return (ps_chunk_group){.chunk = begin, .n_chunks = (int32_t)ps_min_i64(ps_ranks_group_size(ranks), end - begin)};
}
