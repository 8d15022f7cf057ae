/* part.c - who sends how much of a group of parts. */
#include "comm/comm.h"

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
