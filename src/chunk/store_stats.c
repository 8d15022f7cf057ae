/* store_stats.c - statistics of a store, and its invariants. */
#include "chunk/store_stats.h"

#include <string.h>

#include "chunk/store_impl.h"

ps_chunk_info ps_store_get_chunk(const ps_store *s, ps_chunk_id id)
{
    const chunk *c = &s->r.chunks[id];
    return (ps_chunk_info){.copies = c->current, .pins = c->pins, .pin_tier = c->pin_tier};
}

ps_store_stats ps_store_get_stats(const ps_store *s)
{
    ps_store_stats stats = {.wait_ns = s->m.wait_ns,
                            .non_model_bytes = s->r.use[PS_TIER_DEVICE].non_model_bytes,
                            .disk_bytes = s->r.disk_used_bytes,
                            .disk_peak_bytes = s->r.disk_peak_bytes,
                            .n_dropped = s->s.n_dropped,
                            .n_written_back = s->s.n_written_back,
                            .n_prefetched = s->s.n_prefetched};
    memcpy(stats.moved_bytes, s->m.moved_bytes, sizeof stats.moved_bytes);
    memcpy(stats.n_moves, s->m.n_moves, sizeof stats.n_moves);
    memcpy(stats.chunk_bytes, s->r.chunk_bytes, sizeof stats.chunk_bytes);
    memcpy(stats.use, s->r.use, sizeof stats.use);
    memcpy(stats.peak, s->r.peak, sizeof stats.peak);
    return stats;
}

const ps_timeline *ps_store_timeline(const ps_store *s)
{
    return &s->m.time;
}

void ps_store_profile_start(const ps_store *s)
{
    ps_residency_record_all(&s->r);
}

void ps_store_profile_synchronize(const ps_store *s)
{
    ps_movement_wait_queues(&s->m);
}

/* FNV-1a over 64-bit words (Fowler, Noll, Vo). */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    for (int byte = 0; byte < 8; byte++) hash = (hash ^ (word >> (8 * byte) & 0xff)) * 0x100000001b3u;
    return hash;
}

uint64_t ps_store_residency(const ps_store *s)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (ps_chunk_id id = 0; id < s->r.n_ids; id++) {
        const chunk *c = &s->r.chunks[id];
        hash = mix(hash, c->current);
        hash = mix(hash, c->leaving);
        hash = mix(hash, (uint64_t)(c->disk_offset != NO_SLOT) | (uint64_t)c->keeps << 1 |
                             (uint64_t)(c->kept_offset != NO_SLOT) << 2);
        const flight *f = &s->m.flights[id];
        if (!f->active) continue;
        hash = mix(hash, (uint64_t)f->dst + 1);
        hash = mix(hash, (uint64_t)ps_max_i64(0, f->done_ns - s->m.time.now_ns));
    }
    for (int l = 0; l < PS_LINK_COUNT; l++)
        hash = mix(hash, (uint64_t)ps_max_i64(0, s->m.time.free_ns[l] - s->m.time.now_ns));
    return mix(hash, (uint64_t)s->r.use[PS_TIER_DEVICE].non_model_bytes);
}

/* ---- invariants ---- */

static ps_status wrong(ps_chunk_id id, ps_tier tier, const char *what)
{
    return PS_FAIL(PS_ESTATE, "chunk id %d, %s: %s", id, ps_tier_name(tier), what);
}

static ps_status check_equal(const char *what, int64_t counted, int64_t kept)
{
    if (counted == kept) return PS_OK;
    return PS_FAIL(PS_ESTATE, "%s: %lld counted, %lld kept", what, (long long)counted, (long long)kept);
}

static ps_status check_chunk(const ps_store *s, ps_chunk_id id)
{
    const chunk *c = &s->r.chunks[id];
    const flight *f = &s->m.flights[id], *overdue = &s->m.overdue[id];
    if (c->pins < 0) return wrong(id, c->pin_tier, "fewer than no pins");
    if (c->pins > 0 && !has_payload(c, c->pin_tier) && !f->active) return wrong(id, c->pin_tier, "pinned, no payload");
    for (ps_tier t = PS_TIER_DEVICE; t <= PS_TIER_HOST; t++) {
        const bool is_filling = f->active && f->dst == t;
        if (c->payload[t] != NULL && !is_current(c, t) && !is_filling) return wrong(id, t, "a stale payload");
        if (c->payload[t] == NULL && is_current(c, t)) return wrong(id, t, "current without a payload");
    }
    if (s->r.is_unified_memory && c->payload[PS_TIER_DEVICE] != NULL && c->payload[PS_TIER_HOST] != NULL)
        return wrong(id, PS_TIER_HOST, "two payloads in one memory");
    if (is_current(c, PS_TIER_DISK) && c->disk_offset == NO_SLOT) return wrong(id, PS_TIER_DISK, "current, no slot");
    if (c->disk_offset == NO_SLOT ? c->slot_bytes != 0 : c->slot_bytes < c->bytes)
        return wrong(id, PS_TIER_DISK, "a slot of a wrong size");
    if (c->kept_offset != NO_SLOT && (!c->keeps || !c->has_second_home || c->kept_offset == c->disk_offset))
        return wrong(id, PS_TIER_DISK, "a kept slot that is not kept");
    if (c->keeps && c->kept_offset == NO_SLOT && !is_current(c, PS_TIER_DISK))
        return wrong(id, PS_TIER_DISK, "content to be kept is not there");
    PS_TRY(ps_scheduling_check(&s->s, id));
    if (overdue->active && (f->active || !is_current(c, overdue->dst)))
        return wrong(id, overdue->dst, "overdue, and not there");
    if (overdue->active && !is_clean_on(c, overdue->dst)) /* if it fails, the content is lost */
        return wrong(id, overdue->dst, "overdue, and nowhere else");
    const bool has_wrong_ends = f->active && (!is_current(c, f->src) || is_current(c, f->dst));
    return has_wrong_ends ? wrong(id, f->dst, "a transfer with wrong ends") : PS_OK;
}

ps_status ps_store_check(const ps_store *s)
{
    const ps_residency *r = &s->r;
    int64_t bytes[PS_RAM_TIER_COUNT], n_flights = 0, n_overdue = 0, slot_bytes = 0, standalone_bytes = 0,
                                      second_home_bytes = 0;
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) bytes[t] = r->use[t].other_bytes + r->use[t].non_model_bytes;
    for (ps_chunk_id id = 0; id < r->n_ids; id++) {
        const chunk *c = &r->chunks[id];
        PS_TRY(check_chunk(s, id));
        n_flights += s->m.flights[id].active;
        n_overdue += s->m.overdue[id].active;
        slot_bytes += ps_residency_places_bytes(c);
        second_home_bytes += c->has_second_home ? c->bytes : 0;
        if (ps_residency_is_standalone(r, id)) standalone_bytes += c->slot_bytes;
        for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
            if (c->payload[t] != NULL) bytes[t] += c->bytes;
    }
    PS_TRY(check_equal("transfers overdue", n_overdue, s->m.n_overdue));
    PS_TRY(check_equal("transfers in flight", n_flights, s->m.n_flying));
    PS_TRY(check_equal("slots", slot_bytes, r->disk_used_bytes));
    PS_TRY(check_equal("second homes", second_home_bytes, r->second_home_bytes));
    PS_TRY(check_equal("slots of standalone chunks", standalone_bytes, r->standalone_slot_bytes));
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        if (r->ram[t] == NULL) continue;
        const ps_device_stats d = ps_device_get_stats(r->ram[t]);
        PS_TRY(check_equal(ps_tier_name((ps_tier)t), bytes[t], d.used_bytes));
        if (d.used_bytes + d.kept_bytes > d.budget_bytes)
            return PS_FAIL(PS_ESTATE, "%s: %lld bytes used + %lld kept of %lld", ps_tier_name((ps_tier)t),
                           (long long)d.used_bytes, (long long)d.kept_bytes, (long long)d.budget_bytes);
    }
    if (r->disk_used_bytes > r->disk_budget_bytes)
        return PS_FAIL(PS_ESTATE, "disk: %lld bytes used of %lld", (long long)r->disk_used_bytes,
                       (long long)r->disk_budget_bytes);
    return PS_OK;
}
