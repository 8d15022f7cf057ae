#include "chunk/sim_lanes.h"

ps_status ps_sim_lanes_create(const ps_link_bandwidths *throughput, ps_sim_time **out)
{
    ps_sim_lane lanes[PS_SIM_LANE_COUNT] = {{0}};
    for (int l = 0; l < PS_LINK_COUNT; l++) {
        const ps_link other = ps_link_opposite((ps_link)l);
        const double contention = ps_link_contention(throughput, (ps_link)l);
        lanes[l] = (ps_sim_lane){.bytes_per_s = throughput->link[l].bytes_per_s,
                                 .latency_ns = throughput->link[l].latency_ns,
                                 .share = throughput->link[l].interference,
                                 .wire = contention < 1 || l < (int)other ? l : (int)other,
                                 .contending_wire = (int)other,
                                 .contention = contention < 1 ? contention : 0};
    }
    return ps_sim_time_create(lanes, PS_SIM_LANE_COUNT, PS_SIM_COMPUTE, out);
}

const char *ps_sim_lane_name(int lane)
{
    if (lane == PS_SIM_COMPUTE) return "compute";
    return lane == PS_SIM_HOST ? "host compute" : ps_link_name((ps_link)lane);
}
