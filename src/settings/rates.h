/* rates.h - how fast the machine is, as one rank sees it. Estimates: they decide when copies start, and never a
 * result. */
#ifndef PS_SETTINGS_RATES_H
#define PS_SETTINGS_RATES_H

#include "chunk/timeline.h"
#include "chunk/trace.h"
#include "comm/topology.h"
#include "config/hardware.h"
#include "kernel/cost.h"
#include "kernel/softmax_cost.h"
#include "tensor/dtype.h"

typedef struct ps_rates {
    ps_compute_rates compute;                     /* operators on the device */
    ps_softmax_rates softmax;                     /* of these, beside products */
    ps_compute_rates host;                        /* on the host: embeddings; no products */
    double update_bytes_per_s[PS_RAM_TIER_COUNT]; /* updates on the device and on the host */
    int64_t update_latency_ns[PS_RAM_TIER_COUNT];
    ps_link_rates links;
    ps_topology topology;
    bool of_processor;     /* of all that a node without GPUs has: ps_rates_share */
    bool has_interconnect; /* the topology's rate within a node was described */
} ps_rates;

/* A PC without a description: what is planned with when nothing is known. */
ps_rates ps_rates_default(void);

/* Of one rank on the hardware described, computing in dtype. What a node's ranks share is divided among them. PS_EINVAL
 * naming the key when the hardware does not offer the number format. */
PS_NODISCARD ps_status ps_rates_of(const ps_hardware *hw, ps_dtype dtype, ps_rates *out);

/* What was said of the device and of copies to it and from it holds for another one: they become those of no particular
 * PC. */
void ps_rates_forget_device(ps_rates *r);

/* Chunks go from GPU to GPU: where nobody has described what lies between them, as fast as copies to and from one. */
void ps_rates_go_by_gpu(ps_rates *r);

/* n ranks compute on the processor of one node: each has its part of cores, memory, copies and disk. Rates of GPUs are
 * one rank's already, and those of no particular PC stay what they are. */
void ps_rates_share(ps_rates *r, int32_t n);

#endif
