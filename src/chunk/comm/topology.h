/* topology.h - how ranks are connected, and what a collective over them costs.
 *
 * The alpha-beta model (Hockney 1994; Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations
 * in MPICH", 2005): a message of n bytes takes alpha + n / beta. Large collectives run in a ring through all ranks,
 * node by node, so that each node's network carries the ring once in and once out. */
#ifndef PS_COMM_TOPOLOGY_H
#define PS_COMM_TOPOLOGY_H

#include <stdint.h>

typedef struct ps_topology {
    int32_t n_ranks, ranks_per_node;
    double node_bytes_per_s; /* from a rank to another of its node, each way; > 0 when there are two on a node */
    int64_t node_latency_ns;
    double network_bytes_per_s; /* from a node to others, each way, for all its ranks; > 0 when there are two nodes */
    int64_t network_latency_ns;
} ps_topology;

typedef enum ps_collective {
    PS_ALL_GATHER,     /* every rank's part to all: parts of n bytes */
    PS_REDUCE_SCATTER, /* sums of n bytes to each rank */
    PS_BROADCAST,      /* n bytes of one rank to all */
    PS_REDUCE,         /* sums of n bytes to one rank */
    PS_ALL_REDUCE,     /* sums of n bytes of each rank's share to all */
    PS_COLLECTIVE_COUNT,
} ps_collective;

const char *ps_collective_name(ps_collective c); /* "all-gather", ... */

/* Duration of one collective over all ranks, n_bytes as above. One rank: 0. */
int64_t ps_collective_ns(const ps_topology *t, ps_collective c, int64_t n_bytes);

#endif
