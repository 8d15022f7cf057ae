#include "chunk/comm/topology.h"

#include "base/base.h"

const char *ps_collective_name(ps_collective c)
{
    static const char *const names[PS_COLLECTIVE_COUNT] = {[PS_ALL_GATHER] = "all-gather",
                                                           [PS_REDUCE_SCATTER] = "reduce-scatter",
                                                           [PS_BROADCAST] = "broadcast",
                                                           [PS_REDUCE] = "reduction",
                                                           [PS_ALL_REDUCE] = "all-reduce"};
    return c < PS_COLLECTIVE_COUNT ? names[c] : "?";
}

int64_t ps_collective_ns(const ps_topology *t, ps_collective c, int64_t n_bytes)
{
    const int32_t p = t->n_ranks;
    if (p <= 1) return 0;
    const bool crosses = p > t->ranks_per_node, shares = t->ranks_per_node > 1;
    double bytes_per_s = crosses ? t->network_bytes_per_s : t->node_bytes_per_s;
    int64_t latency_ns = crosses ? t->network_latency_ns : t->node_latency_ns;
    if (crosses && shares && t->node_bytes_per_s < bytes_per_s) bytes_per_s = t->node_bytes_per_s;
    if (crosses && shares) latency_ns = ps_max_i64(latency_ns, t->node_latency_ns);
    const double part_ns = (double)n_bytes * 1e9 / bytes_per_s;
    switch (c) {
    case PS_ALL_GATHER:
    case PS_REDUCE_SCATTER: return (p - 1) * (latency_ns + (int64_t)part_ns);
    /* in pieces, pipelined: the whole passes each link once */
    case PS_BROADCAST:
    case PS_REDUCE: return (p - 1) * latency_ns + (int64_t)part_ns;
    case PS_ALL_REDUCE: return 2 * (p - 1) * (latency_ns + (int64_t)part_ns); /* reduce-scatter, all-gather */
    case PS_COLLECTIVE_COUNT: break;
    }
    return 0;
}
