/* payload.c - the payloads of a chunk, which of them are current, and their order among queues: the events after which
 * content is complete and memory unused.
 *
 *     to device    |== copy in ==|            ready = this event
 *     compute                     |== reads ==|== writes ==|       in_use += each; ready = the last that writes
 *     to host                                               |== copy out ==|        in_use += this one
 *
 * A reader waits for `ready`; a writer, and the next user of the memory, for all of `in_use` too. These waits are
 * issued on the queue of the reader or writer, so that the host need not wait. On devices that compute within a call,
 * and have waited for their copies, everything is done already. */
#include "base/mem.h"
#include "chunk/residency.h"

ps_status ps_residency_init(ps_residency *r)
{
    r->n_ids = ps_lists_n_ids(&r->lists, r->layout);
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        r->chunk_limit_bytes[t] = INT64_MAX;
        if (r->ram[t] == NULL) continue;
        r->use[t].other_bytes = ps_device_get_stats(r->ram[t]).used_bytes;
        r->page_bytes = ps_max_i64(r->page_bytes, ps_device_page_bytes(r->ram[t]));
    }
    PS_TRY(ps_mem_alloc((size_t)r->n_ids, sizeof *r->chunks, &r->chunks));
    PS_TRY(ps_mem_alloc((size_t)r->n_ids, sizeof *r->changed, &r->changed));
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
        PS_TRY(ps_mem_alloc((size_t)(r->lists.n * r->layout->n_runs), sizeof *r->runs[t], &r->runs[t]));
    for (ps_chunk_id id = 0; id < r->n_ids; id++) {
        const int64_t bytes = ps_lists_chunk_bytes(&r->lists, r->layout, ps_residency_list_of(r, id));
        r->chunks[id].bytes = ps_round_up(bytes, r->page_bytes);
        r->chunks[id].disk_offset = r->chunks[id].kept_offset = NO_SLOT;
    }
    ps_residency_choose_homes(r);
    return PS_OK;
}

void ps_residency_deinit(ps_residency *r)
{
    for (int t = PS_RAM_TIER_COUNT - 1; t >= 0; t--) { /* host memory may be paired with the device's */
        for (int32_t run = 0; r->runs[t] != NULL && run < r->lists.n * r->layout->n_runs; run++)
            ps_region_destroy(r->runs[t][run]);
        ps_mem_free(r->runs[t]);
    }
    (void)ps_residency_trim_non_model(r, 0);
    ps_region_destroy(r->non_model);
    ps_mem_free(r->changed);
    ps_mem_free(r->chunks);
}

void ps_residency_note(ps_residency *r, ps_chunk_id id, unsigned changes)
{
    if (r->chunks[id].changes == 0) r->changed[r->n_changed++] = id;
    r->chunks[id].changes |= changes;
}

/* ---- memory ---- */

ps_region **ps_residency_run(ps_residency *r, ps_chunk_id id, ps_tier tier, int64_t *offset)
{
    const ps_layout *l = r->layout;
    const ps_list list = ps_residency_list_of(r, id);
    if (!ps_lists_is_adjacent(&r->lists, list)) return NULL;
    const int32_t index = id % l->n_chunks, run = l->run_of_chunk[index];
    if (run < 0) return NULL;
    /* adjacent: a tensor continues in the next chunk */
    PS_ASSERT(r->chunks[id].bytes == ps_lists_chunk_bytes(&r->lists, l, list));
    *offset = (index - l->runs[run].first) * r->chunks[id].bytes;
    return &r->runs[tier][list * l->n_runs + run];
}

/* With unified memory both tiers have the same addresses. */
static ps_status create_run(ps_residency *r, ps_chunk_id id, ps_tier tier, ps_region **region)
{
    const ps_layout *l = r->layout;
    const int64_t bytes = l->runs[l->run_of_chunk[id % l->n_chunks]].n_chunks * r->chunks[id].bytes;
    if (!r->is_unified_memory) return ps_region_create(r->ram[tier], bytes, region);
    const ptrdiff_t run = region - r->runs[tier];
    ps_region **device = &r->runs[PS_TIER_DEVICE][run], **host = &r->runs[PS_TIER_HOST][run];
    PS_TRY(ps_region_create(r->ram[PS_TIER_DEVICE], bytes, device));
    const ps_status st = ps_region_create_paired(r->ram[PS_TIER_HOST], *device, host);
    if (st == PS_OK) return PS_OK;
    ps_region_destroy(*device); /* both or none: a zero-copy move needs both */
    *device = NULL;
    return st;
}

static ps_status commit_in_run(ps_residency *r, ps_chunk_id id, ps_tier tier, ps_region **region, int64_t offset)
{
    chunk *c = &r->chunks[id];
    if (*region == NULL) PS_TRY(create_run(r, id, tier, region));
    PS_TRY(ps_region_commit(*region, offset, c->bytes));
    c->payload[tier] = (char *)ps_region_base(*region) + offset;
    return PS_OK;
}

ps_status ps_residency_allocate(ps_residency *r, ps_chunk_id id, ps_tier tier, ps_reason why)
{
    chunk *c = &r->chunks[id];
    PS_ASSERT(c->payload[tier] == NULL);
    int64_t offset = 0;
    ps_region **run = ps_residency_run(r, id, tier, &offset);
    if (run != NULL)
        PS_TRY(commit_in_run(r, id, tier, run, offset));
    else
        PS_TRY(ps_device_alloc(r->ram[tier], c->bytes, &c->payload[tier]));
    c->ready[tier] = (ps_event){NULL, 0};
    c->in_use[tier] = (ps_events){.n = 0};
    ps_events_add(&c->in_use[tier], ps_device_gave_after(r->ram[tier]));
    ps_residency_note(r, id, PS_CHANGED_PLACE);
    ps_residency_count(r, id, tier, 1);
    ps_residency_record(r, id, tier, PS_PROFILE_ARRIVE, why);
    return PS_OK;
}

void ps_residency_free(ps_residency *r, ps_chunk_id id, ps_tier tier, ps_reason why)
{
    chunk *c = &r->chunks[id];
    int64_t offset = 0;
    ps_region **run = ps_residency_run(r, id, tier, &offset);
    if (run != NULL)
        ps_region_decommit(*run, offset, c->bytes, &c->in_use[tier]);
    else
        ps_device_free(r->ram[tier], c->payload[tier], c->bytes, &c->in_use[tier]);
    c->payload[tier] = NULL;
    c->current &= ~TIER_BIT(tier);
    c->leaving &= ~TIER_BIT(tier);
    /* after a discard no content is needed again */
    ps_residency_note(r, id, PS_CHANGED_PLACE | (why != PS_REASON_DISCARD ? PS_CHANGED_DROPPED : 0));
    ps_residency_count(r, id, tier, -1);
    ps_residency_record(r, id, tier, PS_PROFILE_LEAVE, why);
}

void ps_residency_free_all(ps_residency *r, ps_chunk_id id)
{
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
        if (r->chunks[id].payload[t] != NULL) ps_residency_free(r, id, (ps_tier)t, PS_REASON_DISCARD);
}

void ps_residency_set_current(ps_residency *r, ps_chunk_id id, ps_tier tier)
{
    r->chunks[id].current |= TIER_BIT(tier);
    ps_residency_note(r, id, PS_CHANGED_PLACE);
}

void ps_residency_forget_disk_content(ps_residency *r, ps_chunk_id id, ps_reason why)
{
    chunk *c = &r->chunks[id];
    if (!is_current(c, PS_TIER_DISK)) return;
    PS_ASSERT(!c->keeps || c->kept_offset != NO_SLOT);
    c->current &= ~TIER_BIT(PS_TIER_DISK);
    ps_residency_note(r, id, PS_CHANGED_PLACE);
    ps_residency_record(r, id, PS_TIER_DISK, PS_PROFILE_LEAVE, why);
}

/* ---- order among queues ---- */

ps_status ps_residency_await_whole(const ps_residency *r, ps_chunk_id id, ps_tier tier, ps_queue *q, ps_wait_site site)
{
    const ps_event e = r->chunks[id].ready[tier];
    return q != NULL ? ps_queue_wait_at(q, e, site) : ps_event_wait_at(e, site);
}

ps_status ps_residency_await_unused(const ps_residency *r, ps_chunk_id id, ps_tier tier, ps_queue *q, ps_wait_site site)
{
    const ps_events *all = &r->chunks[id].in_use[tier];
    return q != NULL ? ps_queue_wait_all_at(q, all, site) : ps_events_wait_at(all, site);
}

void ps_residency_note_item(ps_residency *r, ps_chunk_id id, ps_tier tier, ps_event e, bool writes)
{
    chunk *c = &r->chunks[id];
    ps_events_add(&c->in_use[tier], e);
    if (writes) c->ready[tier] = e;
}
