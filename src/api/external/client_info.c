/* client_info.c - information on a client. */
#include "api/external/client_impl.h"
#include "base/sized.h"
#include "train/run/memory_dump.h"

static int64_t model_data_bytes(const ps_client *c)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < c->layout->n_chunks; i++)
        for (ps_list list = 0; list < ps_lists_grad(&c->lists); list++)
            if (list == PS_LIST_PARAM16 || c->has_master[i]) bytes += ps_lists_chunk_bytes(&c->lists, c->layout, list);
    return bytes;
}

static void add_tiers(const ps_client *c, ps_client_info *info)
{
    const ps_store_stats s = ps_store_get_stats(c->tiers.store);
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        const ps_device_stats d = ps_device_get_stats(c->tiers.ram[t]);
        info->used_bytes[t] = d.used_bytes;
        info->peak_bytes[t] = d.peak_bytes;
    }
    info->used_bytes[PS_TIER_DISK] = s.disk_bytes;
    info->peak_bytes[PS_TIER_DISK] = s.disk_peak_bytes;
    const int links[] = {PS_LINK_HOST_TO_DEVICE, PS_LINK_DEVICE_TO_HOST, PS_LINK_DISK_READ, PS_LINK_DISK_WRITE};
    for (size_t i = 0; i < PS_ARRAY_LEN(links); i++) info->moved_bytes[i] = s.moved_bytes[links[i]];
    info->wait_ns = s.wait_ns;
    info->framework_bytes = c->steps.framework_bytes;
    info->framework_peak_bytes = c->steps.peak_bytes;
}

static ps_client_info describe(const ps_client *c)
{
    ps_client_info info = {.dtype = c->settings.dtype,
                           .gpu = c->settings.backend_kind == PS_BACKEND_CUDA ? c->settings.gpu.ordinal : -1,
                           .rank = c->settings.ranks.rank,
                           .n_ranks = c->settings.ranks.n,
                           .n_steps = c->n_steps,
                           .n_recorded_steps = c->n_recorded_steps,
                           .n_moments = c->steps.predicted != NULL ? c->steps.predicted->n_moments : 0,
                           .why_not_gpu = c->settings.backend_kind != PS_BACKEND_CUDA ? c->settings.gpu.why_not : ""};
    for (int t = 0; t < PS_TIER_COUNT; t++) info.budget_bytes[t] = c->settings.budgets.bytes[t];
    if (c->layout != NULL) {
        info.n_chunks = c->layout->n_chunks;
        info.chunk_elements = c->layout->chunk_elements;
        info.parameters = c->layout->tensor_elements;
    }
    if (c->comm != NULL) info.sent_bytes = ps_comm_get_stats(c->comm).sent_bytes;
    if (c->stage != PS_CLIENT_IS_READY) return info;
    info.model_data_bytes = model_data_bytes(c);
    add_tiers(c, &info);
    return info;
}

ps_status ps_client_get_info(const ps_client *client, ps_client_info *out)
{
    PS_TRY(PS_NEED("client out", client, out));
    ps_client *c = (ps_client *)(uintptr_t)client; /* for its lock */
    PS_TRY(ps_client_enter(c, "ps_client_get_info", PS_CLIENT_ANY_STAGE));
    const ps_client_info info = describe(c);
    (void)ps_client_leave(c, PS_OK);
    return PS_SIZED_GIVE(ps_client_info, &info, out);
}

ps_status ps_client_get_memory_use(const ps_client *client, int index, ps_memory_use *out)
{
    PS_TRY(PS_NEED("client out", client, out));
    ps_client *c = (ps_client *)(uintptr_t)client; /* for its lock */
    ps_memory_use uses[PS_MEMORY_USES_MAX];
    PS_TRY(ps_client_enter(c, "ps_client_get_memory_use", PS_CLIENT_IS_READY));
    const int n = ps_memory_uses(&c->lists, &c->tiers, uses);
    (void)ps_client_leave(c, PS_OK);
    if (index < 0 || index >= n) return PS_FAIL(PS_EINVAL, "ps_client_get_memory_use: number %d of %d", index, n);
    return PS_SIZED_GIVE(ps_memory_use, &uses[index], out);
}
