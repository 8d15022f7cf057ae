/* payload.c - where a chunk has payloads, which are current, and what follows from a change of that: the bytes in use,
 * who leaves next, what is unready. */
#include "chunk/store_impl.h"

/* ---- bytes ---- */

void ps_store_note_use(ps_store *s, ps_tier tier)
{
    ps_tier_use *u = &s->use[tier];
    u->non_model_bytes = tier == PS_TIER_DEVICE ? s->non_model_committed_bytes : 0;
    u->other_bytes = s->other_bytes[tier];
    const int64_t bytes = s->stats.chunk_bytes[tier] + u->non_model_bytes + u->other_bytes;
    if (bytes <= s->peak_bytes[tier]) return;
    s->peak_bytes[tier] = bytes;
    s->peak[tier] = *u;
}

int64_t ps_store_free_bytes(const ps_store *s, ps_tier tier)
{
    const ps_device *dev = s->d.ram[tier];
    if (dev == NULL) return 0;
    return ps_min_i64(ps_device_free_bytes(dev), s->chunk_limit_bytes[tier] - s->stats.chunk_bytes[tier]);
}

/* ---- accesses that may need something ---- */

bool ps_store_is_unready(const ps_store *s, const chunk *c, ps_tier tier)
{
    if (c->flight.active && c->flight.dst == tier) return true;
    return c->current != 0 && !is_current(c, tier) && !is_in_reach(s, c);
}

void ps_store_note_ready(ps_store *s, ps_chunk_id id)
{
    chunk *c = &s->chunks[id];
    ps_store_note_standing(s, id);
    if (s->unready == NULL) return;
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        const bool is_unready = ps_store_is_unready(s, c, (ps_tier)t);
        int32_t n;
        if (is_unready == c->is_unready[t]) continue;
        c->is_unready[t] = is_unready;
        const int32_t *const accesses = ps_schedule_accesses(s->schedule, id, (ps_tier)t, &n);
        for (int32_t i = 0; i < n; i++) s->unready[accesses[i] / 64] ^= (uint64_t)1 << (accesses[i] % 64);
    }
}

/* ---- payloads ---- */

ps_region **ps_store_run_region(ps_store *s, ps_chunk_id id, ps_tier tier, int64_t *offset)
{
    const ps_layout *l = s->layout;
    const ps_list list = ps_store_list_of(s, id);
    if (ps_lists_is_apart(&s->d.lists, list)) return NULL;
    const int32_t index = id % l->n_chunks, run = l->run_of_chunk[index];
    if (run < 0) return NULL;
    /* side by side: what a tensor has in one chunk goes on in the next one */
    PS_ASSERT(s->chunks[id].bytes == l->chunk_elements * s->d.lists.list[list].item_bytes);
    *offset = (index - l->runs[run].first) * s->chunks[id].bytes;
    return &s->runs[tier][list * l->n_runs + run];
}

/* Of one memory both tiers have the same addresses. */
static ps_status create_run(ps_store *s, ps_chunk_id id, ps_tier tier, ps_region **region)
{
    const ps_layout *l = s->layout;
    const int64_t bytes = l->runs[l->run_of_chunk[id % l->n_chunks]].n_chunks * s->chunks[id].bytes;
    if (!s->d.hands_over) return ps_region_create(s->d.ram[tier], bytes, region);
    const ptrdiff_t run = region - s->runs[tier];
    ps_region **device = &s->runs[PS_TIER_DEVICE][run], **host = &s->runs[PS_TIER_HOST][run];
    PS_TRY(ps_region_create(s->d.ram[PS_TIER_DEVICE], bytes, device));
    const ps_status st = ps_region_create_beside(s->d.ram[PS_TIER_HOST], *device, host);
    if (st == PS_OK) return PS_OK;
    ps_region_destroy(*device); /* both or none: what is handed over needs both */
    *device = NULL;
    return st;
}

static ps_status commit_in_run(ps_store *s, ps_chunk_id id, ps_tier tier, ps_region **region, int64_t offset)
{
    chunk *c = &s->chunks[id];
    if (*region == NULL) PS_TRY(create_run(s, id, tier, region));
    PS_TRY(ps_region_commit(*region, offset, c->bytes));
    c->payload[tier] = (char *)ps_region_base(*region) + offset;
    return PS_OK;
}

ps_status ps_store_give_payload(ps_store *s, ps_chunk_id id, ps_tier tier, ps_reason why)
{
    chunk *c = &s->chunks[id];
    PS_ASSERT(c->payload[tier] == NULL);
    int64_t offset = 0;
    ps_region **run = ps_store_run_region(s, id, tier, &offset);
    if (run != NULL)
        PS_TRY(commit_in_run(s, id, tier, run, offset));
    else
        PS_TRY(ps_device_alloc(s->d.ram[tier], c->bytes, &c->payload[tier]));
    ps_store_note_given(s, id, tier);
    ps_store_note_standing(s, id);
    s->stats.chunk_bytes[tier] += c->bytes;
    s->use[tier].list_bytes[ps_store_list_of(s, id)] += c->bytes;
    ps_store_note_use(s, tier);
    ps_store_record_residency(s, id, tier, PS_PROFILE_ARRIVE, why);
    return PS_OK;
}

void ps_store_take_payload(ps_store *s, ps_chunk_id id, ps_tier tier, ps_reason why)
{
    chunk *c = &s->chunks[id];
    PS_ASSERT(!c->overdue.active); /* the disk may be at it, or the only whole content be here */
    int64_t offset = 0;
    ps_region **run = ps_store_run_region(s, id, tier, &offset);
    if (run != NULL)
        ps_region_decommit(*run, offset, c->bytes, &c->in_use[tier]);
    else
        ps_device_free(s->d.ram[tier], c->payload[tier], c->bytes, &c->in_use[tier]);
    c->payload[tier] = NULL;
    c->current &= ~TIER_BIT(tier);
    c->leaving &= ~TIER_BIT(tier);
    ps_store_note_ready(s, id);
    s->stats.chunk_bytes[tier] -= c->bytes;
    s->use[tier].list_bytes[ps_store_list_of(s, id)] -= c->bytes;
    if (why != PS_REASON_DISCARD) s->quiet_until = 0; /* after a discard there is no content to be fetched again */
    ps_store_record_residency(s, id, tier, PS_PROFILE_LEAVE, why);
}

void ps_store_forget_disk_content(ps_store *s, ps_chunk_id id, ps_reason why)
{
    chunk *c = &s->chunks[id];
    if (!is_current(c, PS_TIER_DISK)) return;
    c->current &= ~TIER_BIT(PS_TIER_DISK);
    ps_store_note_ready(s, id);
    ps_store_record_residency(s, id, PS_TIER_DISK, PS_PROFILE_LEAVE, why);
}
