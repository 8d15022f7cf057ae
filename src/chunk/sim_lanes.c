#include "chunk/sim_lanes.h"

ps_status ps_sim_lanes_create(const ps_link_rates *rates, ps_sim_time **out)
{
    ps_sim_lane lanes[PS_SIM_LANE_COUNT] = {{0}};
    for (int l = 0; l < PS_LINK_COUNT; l++)
        lanes[l] = (ps_sim_lane){.bytes_per_s = rates->link[l].bytes_per_s,
                                 .latency_ns = rates->link[l].latency_ns,
                                 .share = rates->link[l].interference,
                                 .wire = l};
    if (rates->ram_is_half_duplex) lanes[PS_LINK_DEVICE_TO_HOST].wire = PS_LINK_HOST_TO_DEVICE;
    if (rates->disk_is_half_duplex) lanes[PS_LINK_DISK_WRITE].wire = PS_LINK_DISK_READ;
    return ps_sim_time_create(lanes, PS_SIM_LANE_COUNT, PS_SIM_COMPUTE, out);
}

const char *ps_sim_lane_name(int lane)
{
    if (lane == PS_SIM_COMPUTE) return "compute";
    return lane == PS_SIM_HOST ? "host compute" : ps_link_name((ps_link)lane);
}
