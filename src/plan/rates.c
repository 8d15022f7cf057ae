#include "plan/rates.h"

static double reached(const ps_hardware_matrix *m)
{
    return m->present ? m->flop_per_s * m->achievable_fraction : 0;
}

ps_status ps_rates_of_device(const ps_hardware *hw, ps_dtype t, ps_device_rates *out)
{
    static const char *const keys[PS_DTYPE_COUNT] = {
        [PS_DTYPE_F32] = "device.f32", [PS_DTYPE_BF16] = "device.bf16", [PS_DTYPE_F16] = "device.fp16"};
    const ps_hardware_device *d = &hw->device;
    *out = (ps_device_rates){.flop_per_s = {[PS_DTYPE_F32] = reached(&d->f32),
                                            [PS_DTYPE_BF16] = reached(&d->bf16),
                                            [PS_DTYPE_F16] = reached(&d->fp16)},
                             .memory_bytes_per_s = d->memory_bytes_per_s,
                             .latency_s = (double)d->op_latency_ns * 1e-9};
    if (out->flop_per_s[t] > 0) return PS_OK;
    return PS_FAIL(PS_EINVAL, "'%s' offers no matrix products in %s: give %s.flop_per_s, or plan another number format",
                   hw->name, ps_dtype_name(t), keys[t]);
}

ps_device_rates ps_rates_of_host(const ps_hardware *hw)
{
    const ps_hardware_host *h = &hw->host;
    return (ps_device_rates){.flop_per_s = {[PS_DTYPE_F32] = reached(&h->f32),
                                            [PS_DTYPE_BF16] = reached(&h->bf16),
                                            [PS_DTYPE_F16] = reached(&h->fp16)},
                             .memory_bytes_per_s = h->memory_bytes_per_s,
                             .latency_s = (double)h->op_latency_ns * 1e-9};
}

double ps_rates_host_adam_seconds(const ps_hardware *hw, double bytes)
{
    const ps_hardware_host *h = &hw->host;
    return bytes / (h->memory_bytes_per_s * h->adam_fraction) + (double)h->op_latency_ns * 1e-9;
}
