/* sim_lanes.h - the lanes of device/sim_time.h for a trial's queues: the links, by their numbers, and computing. */
#ifndef PS_CHUNK_SIM_LANES_H
#define PS_CHUNK_SIM_LANES_H

#include "chunk/timeline.h"
#include "device/sim_time.h"

enum {
    PS_SIM_COMPUTE = PS_LINK_COUNT, /* on the device */
    PS_SIM_HOST,                    /* on the host: updates, embeddings; or waiting for the host to issue */
    PS_SIM_LANE_COUNT,
};

/* Bandwidths of copies between device and host, disk transfers and collectives. */
PS_NODISCARD ps_status ps_sim_lanes_create(const ps_link_bandwidths *throughput, ps_sim_time **out);

/* "disk read", "compute", "host compute" */
const char *ps_sim_lane_name(int lane);

#endif
