/* tier_use.c - used bytes of a tier: of chunks, and on the device of activations and workspace. */
#include "chunk/residency.h"

const char *ps_reason_name(ps_reason r)
{
    static const char *const names[PS_REASON_COUNT] = {
        [PS_REASON_WANTED] = "wanted",   [PS_REASON_PREFETCH] = "prefetch", [PS_REASON_WRITE_BACK] = "write back",
        [PS_REASON_START] = "start",     [PS_REASON_CREATE] = "create",     [PS_REASON_LOAD] = "load",
        [PS_REASON_RESTORE] = "restore", [PS_REASON_EVICT] = "evict",       [PS_REASON_ACTIVATIONS] = "activations",
        [PS_REASON_DROP] = "drop",       [PS_REASON_DISCARD] = "discard"};
    return r < PS_REASON_COUNT ? names[r] : "?";
}

int64_t ps_residency_free_bytes(const ps_residency *r, ps_tier tier)
{
    const ps_device *dev = r->ram[tier];
    if (dev == NULL) return 0;
    return ps_min_i64(ps_device_free_bytes(dev), r->chunk_limit_bytes[tier] - r->chunk_bytes[tier]);
}

/* The tier's use has grown: update the peak. */
static void note_peak(ps_residency *r, ps_tier tier)
{
    const ps_tier_use *u = &r->use[tier];
    const int64_t bytes = r->chunk_bytes[tier] + u->non_model_bytes + u->other_bytes;
    if (bytes <= r->peak_bytes[tier]) return;
    r->peak_bytes[tier] = bytes;
    r->peak[tier] = *u;
}

void ps_residency_count(ps_residency *r, ps_chunk_id id, ps_tier tier, int sign)
{
    const int64_t bytes = sign * r->chunks[id].bytes;
    r->chunk_bytes[tier] += bytes;
    r->use[tier].list_bytes[ps_residency_list_of(r, id)] += bytes;
    if (sign > 0) note_peak(r, tier);
}

/* ---- activations and workspace ---- */

ps_status ps_residency_commit_non_model(ps_residency *r, int64_t bytes)
{
    ps_device *dev = r->ram[PS_TIER_DEVICE];
    ps_queue *q = r->compute[PS_TIER_DEVICE];
    int64_t *have = &r->use[PS_TIER_DEVICE].non_model_bytes;
    PS_TRY(r->counts_non_model ? ps_device_claim(dev, bytes - *have)
                               : ps_region_commit(r->non_model, *have, bytes - *have));
    *have = bytes;
    const ps_event e = ps_device_gave_after(dev); /* earlier users of the memory may not have ended */
    PS_TRY(q != NULL ? ps_queue_wait_at(q, e, PS_WAIT_ACTIVATIONS) : ps_event_wait_at(e, PS_WAIT_ACTIVATIONS));
    note_peak(r, PS_TIER_DEVICE);
    ps_residency_record_memory(r, PS_TIER_DEVICE);
    return PS_OK;
}

bool ps_residency_trim_non_model(ps_residency *r, int64_t bytes)
{
    int64_t *have = &r->use[PS_TIER_DEVICE].non_model_bytes;
    const int64_t excess = *have - bytes;
    if (excess <= 0) return false;
    if (r->counts_non_model) {
        ps_device_unclaim(r->ram[PS_TIER_DEVICE], excess);
    } else {
        ps_events after = {.n = 0}; /* everything issued to compute so far */
        if (r->compute[PS_TIER_DEVICE] != NULL) ps_events_add(&after, ps_queue_event(r->compute[PS_TIER_DEVICE]));
        ps_region_decommit(r->non_model, bytes, excess, &after);
    }
    *have = bytes;
    ps_residency_record_memory(r, PS_TIER_DEVICE);
    return true;
}

/* ---- a profile ---- */

static void record_memory(const ps_residency *r, ps_tier tier, int64_t now_ns)
{
    const ps_tier_use *u = &r->use[tier];
    ps_profile_add(
        r->profile,
        &(ps_profile_record){.kind = PS_PROFILE_MEMORY,
                             .chunk = -1,
                             .begin_ns = now_ns,
                             .memory = {.tier = (uint8_t)tier,
                                        .chunk_bytes = tier == PS_TIER_DISK ? r->disk_used_bytes : r->chunk_bytes[tier],
                                        .non_model_bytes = u->non_model_bytes,
                                        .other_bytes = u->other_bytes}});
}

void ps_residency_record_memory(const ps_residency *r, ps_tier tier)
{
    if (ps_profile_is_on(r->profile)) record_memory(r, tier, ps_profile_now(r->profile));
}

static void record_chunk(const ps_residency *r, ps_chunk_id id, ps_tier tier, ps_profile_kind kind, ps_reason why,
                         int64_t now_ns)
{
    ps_profile_add(r->profile, &(ps_profile_record){.kind = kind,
                                                    .chunk = id,
                                                    .begin_ns = now_ns,
                                                    .residency = {.tier = (uint8_t)tier, .reason = (uint8_t)why}});
}

void ps_residency_record(const ps_residency *r, ps_chunk_id id, ps_tier tier, ps_profile_kind kind, ps_reason why)
{
    if (!ps_profile_is_on(r->profile)) return;
    const int64_t now_ns = ps_profile_now(r->profile);
    record_chunk(r, id, tier, kind, why, now_ns);
    if (tier != PS_TIER_DISK) record_memory(r, tier, now_ns); /* slots are kept */
}

void ps_residency_record_all(const ps_residency *r)
{
    const int64_t begin_ns = ps_profile_begin_ns(r->profile);
    for (ps_chunk_id id = 0; id < r->n_ids; id++)
        for (int t = 0; t < PS_TIER_COUNT; t++)
            if (t == PS_TIER_DISK ? is_current(&r->chunks[id], PS_TIER_DISK) : r->chunks[id].payload[t] != NULL)
                record_chunk(r, id, (ps_tier)t, PS_PROFILE_ARRIVE, PS_REASON_START, begin_ns);
    for (int t = 0; t < PS_TIER_COUNT; t++) record_memory(r, (ps_tier)t, begin_ns);
}
