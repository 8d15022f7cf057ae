#include "train/settings/throughput.h"

/* A share of 1 would mean that nothing is computed while a copy runs. */
#define INTERFERENCE_MAX 0.95
/* Adam's bytes a second with compact states over those with fp32 ones, where neither was measured. */
#define COMPACT_RATE 0.4

ps_throughput ps_throughput_default(void)
{
    const int64_t latency_ns = ps_compute_throughput_default.latency_ns;
    return (ps_throughput){.compute = ps_compute_throughput_default,
                           .host = ps_compute_throughput_default,
                           .update_bytes_per_s = {20e9, 20e9},
                           .compact_update_bytes_per_s = {COMPACT_RATE * 20e9, COMPACT_RATE * 20e9},
                           .update_latency_ns = {latency_ns, latency_ns},
                           .links = ps_link_bandwidths_default,
                           .topology = {.n_ranks = 1,
                                        .ranks_per_node = 1,
                                        .node_bytes_per_s = 4e9,
                                        .node_latency_ns = 20000,
                                        .network_bytes_per_s = 1e9,
                                        .network_latency_ns = 50000}};
}

static const ps_hardware_matrix *matrix_of(const ps_hardware_device *d, ps_dtype dtype)
{
    switch (dtype) {
    case PS_DTYPE_BF16: return &d->bf16;
    case PS_DTYPE_F16: return &d->fp16;
    case PS_DTYPE_F32:
    case PS_DTYPE_COUNT: break;
    }
    return &d->f32;
}

static const char *matrix_key(ps_dtype dtype)
{
    return dtype == PS_DTYPE_F16 ? "fp16" : ps_dtype_name(dtype);
}

static ps_link_bandwidth link_bandwidth(double bytes_per_s, double shared_by, int64_t latency_ns, double interference)
{
    return (ps_link_bandwidth){.bytes_per_s = bytes_per_s / shared_by,
                               .latency_ns = latency_ns,
                               .interference = interference < INTERFERENCE_MAX ? interference : INTERFERENCE_MAX};
}

/* fraction: of the host's memory bandwidth. Without GPUs the device is the processor, whose memory is the host's. */
static void set_update(const ps_hardware *hw, double fraction, double bytes_per_s[PS_RAM_TIER_COUNT])
{
    const double of_host = hw->host.memory_bytes_per_s * fraction / (double)ps_hardware_devices_per_node(hw);
    bytes_per_s[PS_TIER_DEVICE] = hw->gpus_per_node > 0 ? hw->device.memory_bytes_per_s : of_host;
    bytes_per_s[PS_TIER_HOST] = of_host;
}

ps_status ps_throughput_of(const ps_hardware *hw, ps_dtype dtype, ps_throughput *out)
{
    const ps_hardware_matrix *m = matrix_of(&hw->device, dtype);
    const ps_hardware_link *l = &hw->link;
    const ps_hardware_disk *d = &hw->disk;
    const int64_t per_node = ps_hardware_devices_per_node(hw);
    const double n = (double)per_node;
    if (!m->present)
        return PS_FAIL(
            PS_EINVAL,
            "'%s' has no matrix multiplication in %s: give device.%s.flop_per_s, or plan another number format",
            hw->name, ps_dtype_name(dtype), matrix_key(dtype));
    *out = ps_throughput_default();
    const double stream = hw->device.stream_fraction > 0 ? hw->device.stream_fraction : 1;
    out->softmax = (ps_softmax_throughput){
        .score_ns = hw->device.score_ns, .logit_ns = hw->device.logit_ns, .gelu_ns = hw->device.gelu_ns};
    out->of_processor = hw->gpus_per_node == 0;
    out->compute = (ps_compute_throughput){.flops_per_s = m->flop_per_s * m->achievable_fraction,
                                           .bytes_per_s = hw->device.memory_bytes_per_s * stream,
                                           .latency_ns = hw->device.op_latency_ns};
    out->host = (ps_compute_throughput){.flops_per_s = out->compute.flops_per_s,
                                        .bytes_per_s = hw->host.memory_bytes_per_s / n,
                                        .latency_ns = hw->host.op_latency_ns};
    out->update_latency_ns[PS_TIER_DEVICE] = hw->device.op_latency_ns;
    out->update_latency_ns[PS_TIER_HOST] = hw->host.op_latency_ns;
    const double adam = hw->host.adam_fraction, compact = hw->host.adam_compact_fraction;
    set_update(hw, adam, out->update_bytes_per_s);
    set_update(hw, compact > 0 ? compact : COMPACT_RATE * adam, out->compact_update_bytes_per_s);
    ps_link_bandwidth *r = out->links.link;
    r[PS_LINK_HOST_TO_DEVICE] =
        link_bandwidth(l->to_device_bytes_per_s, (double)l->shared_by, l->latency_ns, l->compute_interference);
    r[PS_LINK_DEVICE_TO_HOST] =
        link_bandwidth(l->to_host_bytes_per_s, (double)l->shared_by, l->latency_ns, l->compute_interference);
    out->links.ram_contention = ps_hardware_contention(
        (const double[]){l->to_device_bytes_per_s, l->to_host_bytes_per_s},
        (const double[]){l->to_device_both_ways_bytes_per_s, l->to_host_both_ways_bytes_per_s}, l->full_duplex);
    if (d->present) {
        r[PS_LINK_DISK_READ] = link_bandwidth(d->read_bytes_per_s, n, d->latency_ns, d->compute_interference);
        r[PS_LINK_DISK_WRITE] = link_bandwidth(d->write_bytes_per_s, n, d->latency_ns, d->compute_interference);
        out->links.disk_contention = ps_hardware_contention(
            (const double[]){d->read_bytes_per_s, d->write_bytes_per_s},
            (const double[]){d->read_both_ways_bytes_per_s, d->write_both_ways_bytes_per_s}, d->full_duplex);
    }
    ps_topology *const t = &out->topology; /* links that are not described have the defaults */
    t->n_ranks = (int32_t)(hw->n_nodes * per_node);
    t->ranks_per_node = (int32_t)per_node;
    out->has_interconnect = hw->interconnect.present;
    if (hw->interconnect.present) {
        t->node_bytes_per_s = hw->interconnect.bytes_per_s;
        t->node_latency_ns = hw->interconnect.latency_ns;
    }
    if (hw->network.present) {
        t->network_bytes_per_s = hw->network.bytes_per_s;
        t->network_latency_ns = hw->network.latency_ns;
    }
    return PS_OK;
}

void ps_throughput_reset_device(ps_throughput *r)
{
    const ps_throughput any = ps_throughput_default();
    r->compute = any.compute;
    r->softmax = any.softmax;
    r->update_bytes_per_s[PS_TIER_DEVICE] = any.update_bytes_per_s[PS_TIER_DEVICE];
    r->compact_update_bytes_per_s[PS_TIER_DEVICE] = any.compact_update_bytes_per_s[PS_TIER_DEVICE];
    r->update_latency_ns[PS_TIER_DEVICE] = any.update_latency_ns[PS_TIER_DEVICE];
    for (int l = PS_LINK_HOST_TO_DEVICE; l <= PS_LINK_DEVICE_TO_HOST; l++) r->links.link[l] = any.links.link[l];
    r->links.ram_contention = any.links.ram_contention;
}

void ps_throughput_use_gpu_link(ps_throughput *r)
{
    const ps_link_bandwidth *in = &r->links.link[PS_LINK_HOST_TO_DEVICE], *out = &r->links.link[PS_LINK_DEVICE_TO_HOST];
    if (r->has_interconnect) return;
    r->topology.node_bytes_per_s = in->bytes_per_s < out->bytes_per_s ? in->bytes_per_s : out->bytes_per_s;
}

void ps_throughput_share(ps_throughput *r, int32_t n)
{
    if (!r->of_processor) return;
    ps_compute_throughput *const computing[] = {&r->compute, &r->host};
    for (size_t i = 0; i < PS_ARRAY_LEN(computing); i++) {
        computing[i]->flops_per_s /= n;
        computing[i]->bytes_per_s /= n;
    }
    r->softmax.score_ns *= n;
    r->softmax.logit_ns *= n;
    r->softmax.gelu_ns *= n;
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        r->update_bytes_per_s[t] /= n;
        r->compact_update_bytes_per_s[t] /= n;
    }
    for (int l = 0; l < PS_LINK_COLLECTIVES; l++) r->links.link[l].bytes_per_s /= n;
}
