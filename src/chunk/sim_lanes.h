/* sim_lanes.h - the lanes of device/sim_time.h that a trial's queues have: the links, by their numbers, and who
 * computes. */
#ifndef PS_CHUNK_SIM_LANES_H
#define PS_CHUNK_SIM_LANES_H

#include "chunk/timeline.h"
#include "device/sim_time.h"

enum {
    PS_SIM_COMPUTE = PS_LINK_COUNT, /* on the device */
    PS_SIM_HOST,                    /* on the host: updates, embeddings; or the host has not issued anything */
    PS_SIM_LANE_COUNT,
};

/* Copies between device and host, transfers of the disk and exchanges go at these rates. */
PS_NODISCARD ps_status ps_sim_lanes_create(const ps_link_rates *rates, ps_sim_time **out);

/* "disk read", "compute", "host compute" */
const char *ps_sim_lane_name(int lane);

#endif
