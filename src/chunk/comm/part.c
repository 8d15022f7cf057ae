/* part.c - groups of parts: which collective transfers them, and how much each rank sends. */
#include "chunk/comm/collectives.h"

ps_status ps_collectives_gather(ps_collectives *x, const ps_transfer *t, ps_event *done)
{
    const bool has_one_owner = ps_comm_one_owner(t->parts, t->n_parts) >= 0;
    *done = (ps_event){.queue = NULL};
    return has_one_owner ? x->ops->broadcast(x, t, done) : x->ops->all_gather(x, t, done);
}

ps_status ps_collectives_reduce(ps_collectives *x, const ps_transfer *t, ps_event *done)
{
    const bool has_one_owner = ps_comm_one_owner(t->parts, t->n_parts) >= 0;
    *done = (ps_event){.queue = NULL};
    return has_one_owner ? x->ops->reduce(x, t, done) : x->ops->reduce_scatter(x, t, done);
}

ps_status ps_collectives_all_reduce(ps_collectives *x, const ps_transfer *t, ps_event *done)
{
    *done = (ps_event){.queue = NULL};
    return x->ops->all_reduce(x, t, done);
}

ps_status ps_collectives_wait(ps_collectives *x, ps_event done)
{
    return x->ops->wait(x, done);
}

/* ---- bytes sent by each rank ---- */

int32_t ps_comm_one_owner(const ps_comm_part *parts, int32_t n_parts)
{
    int32_t owner = -1;
    for (int32_t i = 0; i < n_parts; i++) {
        if (parts[i].n == 0) continue;
        if (owner >= 0 && owner != parts[i].owner) return -1;
        owner = parts[i].owner;
    }
    return owner;
}

static int64_t elements_of(const ps_comm_part *parts, int32_t n_parts, int32_t rank)
{
    int64_t n = 0;
    for (int32_t i = 0; i < n_parts; i++)
        if (parts[i].owner == rank) n += parts[i].n;
    return n;
}

int64_t ps_comm_gathering_sends(const ps_comm_part *parts, int32_t n_parts, int32_t rank, int32_t size)
{
    const int32_t owner = ps_comm_one_owner(parts, n_parts);
    if (owner >= 0) return (rank + 1) % size == owner ? 0 : elements_of(parts, n_parts, owner);
    return (size - 1) * elements_of(parts, n_parts, rank);
}

int64_t ps_comm_reduction_sends(const ps_comm_part *parts, int32_t n_parts, int32_t rank)
{
    int64_t n = 0;
    for (int32_t i = 0; i < n_parts; i++)
        if (parts[i].owner != rank) n += parts[i].n;
    return n;
}
