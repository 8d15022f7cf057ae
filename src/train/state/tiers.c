#include "train/state/tiers.h"

#include <string.h>

#include "base/bytes.h"
#include "chunk/sim_lanes.h"
#include "chunk/store_stats.h"
#include "train/settings/settings.h"
#include "train/state/lists.h"
#include "train/state/work_time.h"

ps_tier ps_tiers_staging_tier(const ps_space *space, const ps_budgets *budgets)
{
    return budgets->bytes[PS_TIER_HOST] > 0 || !space->device->host_can_touch ? PS_TIER_HOST : PS_TIER_DEVICE;
}

ps_tiers_desc ps_tiers_desc_of(const ps_settings *s, const ps_budgets *budgets, const ps_layout *layout,
                               const ps_lists *lists)
{
    return (ps_tiers_desc){.space = ps_backend_space(s->backend),
                           .budgets = *budgets,
                           .options = &s->tiers,
                           .layout = layout,
                           .lists = *lists,
                           .throughput = &s->throughput.links,
                           .staging_bytes = s->staging_bytes,
                           .comm_staging_bytes = ps_settings_comm_bytes(s),
                           .comm_on_device = s->nccl.is_used,
                           .keeping_first = ps_lists_first_kept(s)};
}

void ps_tiers_count_blocks(const ps_tiers_desc *o, int64_t bytes[PS_RAM_TIER_COUNT])
{
    const int64_t page = o->space->page_bytes;
    const ps_tier staging = ps_tiers_staging_tier(o->space, &o->budgets);
    bytes[PS_TIER_DEVICE] =
        ps_round_up(o->cache_bytes, page) + ps_round_up(o->results_bytes, page) + ps_round_up(o->unmanaged_bytes, page);
    bytes[PS_TIER_HOST] = ps_round_up(o->host_block_bytes, page);
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) bytes[t] += ps_round_up(o->update_scratch_bytes[t], page);
    bytes[staging] += ps_round_up(o->staging_bytes, page) + ps_round_up(o->batch_copies_bytes, page);
    bytes[o->comm_on_device ? PS_TIER_DEVICE : staging] += ps_round_up(o->comm_staging_bytes, page);
}

/* Staging, cache, results and the host's block are allocated once and kept, so that the budget counts them and the
 * forecast includes them. */
static ps_status expect_room(const ps_device *ram, const char *option, int64_t bytes)
{
    char text[2][PS_BYTES_TEXT_MAX];
    if (ps_device_free_bytes(ram) >= ps_round_up(bytes, ps_device_page_bytes(ram))) return PS_OK;
    return PS_FAIL(PS_EBUDGET, "%s memory: %s takes %s, of a budget of %s", ps_device_name(ram), option,
                   ps_bytes_format(bytes, text[0]), ps_bytes_format(ps_device_get_stats(ram).budget_bytes, text[1]));
}

static ps_status take_block(const ps_tiers *t, ps_tier tier, const char *option, int64_t bytes, void **block,
                            int64_t *taken_bytes)
{
    ps_device *ram = t->ram[tier];
    if (bytes == 0) return PS_OK;
    PS_TRY(expect_room(ram, option, bytes));
    PS_TRY(ps_device_alloc(ram, bytes, block));
    *taken_bytes = bytes;
    return PS_OK;
}

static ps_status take_blocks(const ps_tiers_desc *o, ps_tiers *t)
{
    PS_TRY(take_block(t, PS_TIER_DEVICE, "generation.max_length", o->cache_bytes, &t->cache, &t->cache_bytes));
    PS_TRY(take_block(t, PS_TIER_DEVICE, "sums of a step", o->results_bytes, &t->results, &t->results_bytes));
    PS_TRY(take_block(t, PS_TIER_DEVICE, "unmanaged tensors", o->unmanaged_bytes, &t->unmanaged, &t->unmanaged_bytes));
    PS_TRY(take_block(t, PS_TIER_HOST, "use_cpu_embedding", o->host_block_bytes, &t->host_block, &t->host_block_bytes));
    for (int i = 0; i < PS_RAM_TIER_COUNT; i++)
        PS_TRY(take_block(t, (ps_tier)i, "scratch of the optimizer's updates", o->update_scratch_bytes[i],
                          &t->update_scratch[i], &t->update_scratch_bytes[i]));
    if (t->host_block == NULL) return PS_OK; /* copies into it come after earlier uses of its memory */
    return ps_queue_wait(t->compute[PS_TIER_DEVICE], ps_device_gave_after(t->ram[PS_TIER_HOST]));
}

static ps_status take_staging(const ps_tiers_desc *o, ps_tiers *t)
{
    t->staging_tier = ps_tiers_staging_tier(o->space, &o->budgets);
    ps_device *ram = t->ram[t->staging_tier];
    PS_TRY(take_block(t, t->staging_tier, "memory.save_buffer", o->staging_bytes, &t->staging, &t->staging_bytes));
    PS_TRY(take_block(t, t->staging_tier, "copies of micro-batches (memory.update_in_backward)", o->batch_copies_bytes,
                      &t->batch_copies, &t->batch_copies_bytes));
    if (t->batch_copies != NULL) PS_TRY(ps_event_wait(ps_device_gave_after(ram)));
    t->comm_staging_tier = o->comm_on_device ? PS_TIER_DEVICE : t->staging_tier;
    ram = t->ram[t->comm_staging_tier];
    if (o->comm_staging_bytes > 0) {
        PS_TRY(expect_room(ram, "comm.staging", o->comm_staging_bytes));
        PS_TRY(o->space->device->host_can_touch ? ps_device_claim(ram, o->comm_staging_bytes)
                                                : ps_device_alloc(ram, o->comm_staging_bytes, &t->comm_staging));
        t->comm_staging_bytes = o->comm_staging_bytes;
    }
    if (t->comm_staging != NULL) PS_TRY(ps_event_wait(ps_device_gave_after(ram)));
    return PS_OK;
}

/* On a simulated device there is no work of the caller. */
static ps_status open_compute(const ps_tiers_desc *o, ps_tiers *t, ps_tier tier)
{
    ps_queue *external = o->simulated || tier != PS_TIER_DEVICE ? NULL : o->space->external;
    t->compute[tier] = external;
    t->computes_on_external = t->computes_on_external || external != NULL;
    if (external != NULL)
        ps_queue_set_order(external, o->order);
    else
        PS_TRY(ps_queue_create(t->ram[tier], ps_tier_name(tier), PS_QUEUE_COMPUTE, &t->compute[tier]));
    if (o->space->device->is_asynchronous) ps_queue_set_profile(t->compute[tier], o->profile, ps_work_link(tier));
    ps_sim_queue_join(t->compute[tier], tier == PS_TIER_HOST ? PS_SIM_HOST : PS_SIM_COMPUTE);
    return PS_OK;
}

static void close_compute(ps_tiers *t, ps_tier tier)
{
    if (tier != PS_TIER_DEVICE || !t->computes_on_external || t->compute[tier] == NULL) {
        ps_queue_destroy(t->compute[tier]);
        return;
    }
    const ps_status st = ps_event_wait(ps_queue_event(t->compute[tier])); /* its items use memory that is about to be
                                                                           * freed */
    (void)st; /* the failure has been reported to the issuer, or is the caller's */
    ps_queue_set_order(t->compute[tier], NULL);
    ps_queue_set_profile(t->compute[tier], NULL, 0);
}

static ps_status open_ram(const ps_tiers_desc *o, ps_tiers *t, ps_tier tier)
{
    const ps_space *space = o->space;
    const ps_device_ops *real = tier == PS_TIER_HOST ? space->host : space->device;
    const ps_device_ops *sim = space->device->is_asynchronous ? &ps_device_sim_async_ops : &ps_device_sim_ops;
    PS_TRY(ps_device_create_on(o->simulated ? sim : real, o->simulated ? t->time : space->driver, space->page_bytes,
                               ps_tier_name(tier), o->budgets.bytes[tier], &t->ram[tier]));
    PS_TRY(ps_device_set_order(t->ram[tier], o->order));
    /* Message libraries register pages, to send from them, and some (UCX) do not notice mremap to a given address. */
    if (o->comm_staging_bytes > 0) ps_device_forbid_moves(t->ram[tier]);
    return open_compute(o, t, tier);
}

static ps_status open_disk(const ps_tiers_desc *o, ps_tiers *t)
{
    if (o->budgets.bytes[PS_TIER_DISK] == 0) return PS_OK;
    PS_TRY(ps_disk_open(o->options->disk_folders, o->simulated ? PS_DISK_SIM : o->options->disk_backend,
                        PS_DISK_QUEUE_DEPTH, &t->disk));
    if (o->order != NULL) ps_disk_set_order(t->disk, o->order);
    return t->time != NULL ? ps_sim_disk_join(t->disk, t->time, PS_LINK_DISK_READ, PS_LINK_DISK_WRITE) : PS_OK;
}

ps_status ps_tiers_open(const ps_tiers_desc *o, ps_tiers *t)
{
    *t = (ps_tiers){.profile = o->profile, .disk_budget_bytes = o->budgets.bytes[PS_TIER_DISK]};
    ps_status st = PS_OK;
    if (o->simulated && o->space->device->is_asynchronous) PS_TRY_GOTO(ps_sim_lanes_create(o->throughput, &t->time));
    for (int i = 0; i < PS_RAM_TIER_COUNT; i++) PS_TRY_GOTO(open_ram(o, t, (ps_tier)i));
    PS_TRY_GOTO(open_disk(o, t));
    ps_store_desc desc = {
        .layout = o->layout,
        .lists = o->lists,
        .ram = {t->ram[PS_TIER_DEVICE], t->ram[PS_TIER_HOST]},
        .compute = {t->compute[PS_TIER_DEVICE], t->compute[PS_TIER_HOST]},
        .disk = t->disk,
        .disk_budget_bytes = o->budgets.bytes[PS_TIER_DISK],
        .n_keeping = o->n_keeping,
        .keeping_first = o->keeping_first,
        .keeping_end = ps_lists_grad(&o->lists),
        .shares_slots = !o->simulated, /* the trial does without, which leaves reserves for calls that it does not
                                        * try */
        .options = &o->options->store,
        .is_asynchronous = o->space->device->is_asynchronous,
        .is_unified_memory = o->space->is_unified_memory,
        .counts_non_model = o->counts_non_model,
        .throughput = o->throughput,
        .profile = o->profile,
    };
    PS_TRY_GOTO(take_staging(o, t));
    PS_TRY_GOTO(take_blocks(o, t));
    PS_TRY_GOTO(ps_store_create(&desc, &t->store));
    return PS_OK;
out:
    ps_tiers_close(t);
    return st;
}

void ps_tiers_close(ps_tiers *t)
{
    ps_store_destroy(t->store);
    for (int i = 0; i < PS_RAM_TIER_COUNT; i++) close_compute(t, (ps_tier)i);
    ps_disk_close(t->disk);
    if (t->staging != NULL) ps_device_free(t->ram[t->staging_tier], t->staging, t->staging_bytes, NULL);
    if (t->batch_copies != NULL) ps_device_free(t->ram[t->staging_tier], t->batch_copies, t->batch_copies_bytes, NULL);
    if (t->cache != NULL) ps_device_free(t->ram[PS_TIER_DEVICE], t->cache, t->cache_bytes, NULL);
    if (t->host_block != NULL) ps_device_free(t->ram[PS_TIER_HOST], t->host_block, t->host_block_bytes, NULL);
    if (t->unmanaged != NULL) ps_device_free(t->ram[PS_TIER_DEVICE], t->unmanaged, t->unmanaged_bytes, NULL);
    if (t->results != NULL) ps_device_free(t->ram[PS_TIER_DEVICE], t->results, t->results_bytes, NULL);
    for (int i = 0; i < PS_RAM_TIER_COUNT; i++)
        if (t->update_scratch[i] != NULL)
            ps_device_free(t->ram[i], t->update_scratch[i], t->update_scratch_bytes[i], NULL);
    if (t->comm_staging != NULL)
        ps_device_free(t->ram[t->comm_staging_tier], t->comm_staging, t->comm_staging_bytes, NULL);
    else if (t->comm_staging_bytes > 0)
        ps_device_unclaim(t->ram[t->comm_staging_tier], t->comm_staging_bytes);
    for (int i = 0; i < PS_RAM_TIER_COUNT; i++) ps_device_destroy(t->ram[i]);
    ps_sim_time_destroy(t->time);
    *t = (ps_tiers){0};
}

const int64_t *ps_tiers_clock(const ps_tiers *t)
{
    return t->time != NULL ? ps_sim_queue_clock(t->compute[PS_TIER_DEVICE]) : &ps_store_timeline(t->store)->now_ns;
}

ps_sim_sums ps_tiers_sums(const ps_tiers *t)
{
    return t->time != NULL ? ps_sim_time_sums(t->time) : ps_store_timeline(t->store)->sums;
}
