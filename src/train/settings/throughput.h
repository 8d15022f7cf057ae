/* throughput.h - throughput of the machine, for one rank. Estimates: they decide when copies start, and never a
 * result. */
#ifndef PS_SETTINGS_THROUGHPUT_H
#define PS_SETTINGS_THROUGHPUT_H

#include "base/dtype.h"
#include "chunk/comm/topology.h"
#include "chunk/timeline.h"
#include "chunk/trace.h"
#include "config/hardware.h"
#include "kernel/cost.h"
#include "kernel/softmax_cost.h"

typedef struct ps_throughput {
    ps_compute_throughput compute;                        /* operators on the device */
    ps_softmax_throughput softmax;                        /* of these, next to matrix multiplications */
    ps_compute_throughput host;                           /* on the host: embeddings; no matrix multiplications */
    double update_bytes_per_s[PS_RAM_TIER_COUNT];         /* updates on the device and on the host */
    double compact_update_bytes_per_s[PS_RAM_TIER_COUNT]; /* the same with compact optimizer states */
    int64_t update_latency_ns[PS_RAM_TIER_COUNT];
    ps_link_bandwidths links;
    ps_topology topology;
    bool of_processor;     /* of a whole node without GPUs: ps_throughput_share */
    bool has_interconnect; /* the bandwidth within a node was described */
} ps_throughput;

/* Defaults of a typical PC, for plans without a hardware description. */
ps_throughput ps_throughput_default(void);

/* Throughput of one rank on the hardware described, computing in dtype. Resources that a node's ranks share are divided
 * among them. PS_EINVAL naming the key when the hardware does not have the number format. */
PS_NODISCARD ps_status ps_throughput_of(const ps_hardware *hw, ps_dtype dtype, ps_throughput *out);

/* The described throughput of the device and of copies to and from it is for another device: replaced by the
 * defaults. */
void ps_throughput_reset_device(ps_throughput *r);

/* Collectives are from GPU to GPU: without a description of their interconnect, its bandwidth is that of copies to and
 * from a GPU. */
void ps_throughput_use_gpu_link(ps_throughput *r);

/* n ranks compute on the processor of one node: each has its share of cores, memory, copies and disk. Throughput of
 * GPUs is one rank's already, and defaults stay unchanged. */
void ps_throughput_share(ps_throughput *r, int32_t n);

#endif
