/* settings_memory.c - budgets of the tiers, where the configuration leaves them open. */
#include "base/machine.h"
#include "settings/settings_impl.h"

/* Is there model data that is worked on by the host, whatever the device could hold? */
static bool needs_host(const ps_settings *s)
{
    return s->embedding_on_host || (s->training && !s->hybrid_updates);
}

/* The device's share of memory that both tiers draw on. When both are automatic the device has all of it, because
 * on this backend both are the same memory and copies between them would gain nothing; but half where the host is
 * needed. */
static double automatic_device(const ps_options *o, const ps_settings *s, double available)
{
    const bool halves = o->memory_host == PS_BYTES_AUTO && needs_host(s);
    return (halves ? available / 2 : available) * o->client_mem_tracer_overall_gpu_mem_ratio;
}

static int64_t automatic_host(const ps_options *o, const ps_settings *s, double available)
{
    const double ratio = o->client_mem_tracer_overall_cpu_mem_ratio;
    if (o->memory_device == PS_BYTES_AUTO) return needs_host(s) ? (int64_t)(available / 2 * ratio) : 0;
    const double rest = available - (double)o->memory_device;
    return rest > 0 ? (int64_t)(rest * ratio) : 0;
}

static ps_status check_host(const ps_settings *s)
{
    if (s->budgets.bytes[PS_TIER_HOST] > 0 || !needs_host(s)) return PS_OK;
    return PS_FAIL(PS_EINVAL,
                   "%s needs a host tier, and memory.host is 0: give it memory, or leave both memory.device and "
                   "memory.host out",
                   s->embedding_on_host ? "use_cpu_embedding" : "optimizer.params.use_hybrid_adam = false");
}

/* "auto": the device takes its share of what the machine has left; the host its share of the rest. */
ps_status ps_settings_read_budgets(const ps_options *o, ps_settings *s)
{
    int64_t *b = s->budgets.bytes;
    b[PS_TIER_DEVICE] = o->memory_device;
    b[PS_TIER_HOST] = o->memory_host;
    b[PS_TIER_DISK] = o->memory_disk;
    if (o->zero_tensor_placement_policy == PS_CONFIG_PLACEMENT_CUDA) b[PS_TIER_HOST] = 0;
    if (b[PS_TIER_DEVICE] == PS_BYTES_AUTO || b[PS_TIER_HOST] == PS_BYTES_AUTO) {
        ps_machine_memory_info memory;
        PS_TRY(ps_machine_memory(NULL, &memory));
        const double available = (double)memory.available_bytes;
        const bool is_gpu = s->backend_kind == PS_BACKEND_CUDA;
        if (b[PS_TIER_HOST] == PS_BYTES_AUTO)
            b[PS_TIER_HOST] = is_gpu ? (int64_t)(available * o->client_mem_tracer_overall_cpu_mem_ratio)
                                     : automatic_host(o, s, available);
        if (b[PS_TIER_DEVICE] == PS_BYTES_AUTO)
            b[PS_TIER_DEVICE] = is_gpu ? ps_settings_gpu_bytes(s, o) : (int64_t)automatic_device(o, s, available);
    }
    if (b[PS_TIER_DISK] == PS_BYTES_AUTO) {
        int64_t free_bytes;
        PS_TRY(ps_disk_folders_free_bytes(s->disk_folders, &free_bytes));
        b[PS_TIER_DISK] = (int64_t)((double)free_bytes * 0.8);
    }
    return check_host(s);
}

void ps_settings_use_memory(ps_settings *s, const ps_options *o, const ps_hardware *hw)
{
    const int64_t per_node = ps_hardware_devices_per_node(hw);
    int64_t *b = s->budgets.bytes;
    const double device = (double)(hw->device.bytes - hw->device.reserved_bytes);
    const double host = (double)(hw->host.bytes - hw->host.reserved_bytes) / (double)per_node;
    const bool is_gpu = hw->gpus_per_node > 0;
    if (o->memory_device == PS_BYTES_AUTO)
        b[PS_TIER_DEVICE] =
            (int64_t)(is_gpu ? device * o->client_mem_tracer_overall_gpu_mem_ratio : automatic_device(o, s, device));
    /* a processor's device memory is the host's: no second tier of it unless somebody asks */
    if (o->memory_host == PS_BYTES_AUTO)
        b[PS_TIER_HOST] = is_gpu          ? (int64_t)(host * o->client_mem_tracer_overall_cpu_mem_ratio)
                          : needs_host(s) ? (int64_t)(device / 2 * o->client_mem_tracer_overall_cpu_mem_ratio)
                                          : 0;
    if (o->zero_tensor_placement_policy == PS_CONFIG_PLACEMENT_CUDA) b[PS_TIER_HOST] = 0;
    if (o->memory_disk == PS_BYTES_AUTO) b[PS_TIER_DISK] = hw->disk.present ? hw->disk.bytes / per_node : 0;
}
