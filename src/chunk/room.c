/* room.c - room on a full tier, and what is copied ahead of time. */
#include <string.h>

#include "base/mem.h"
#include "chunk/store_impl.h"

/* How many moments ahead room for growing activations is prepared, per unit of prefetch depth. */
#define ACTIVATION_LOOK_AHEAD 8

int64_t ps_store_free_bytes(const ps_store *s, ps_tier tier)
{
    const ps_device *dev = s->d.ram[tier];
    if (dev == NULL) return 0;
    return ps_min_i64(ps_device_free_bytes(dev), s->chunk_limit_bytes[tier] - s->stats.chunk_bytes[tier]);
}

int64_t ps_store_non_model_ahead(const ps_store *s, int32_t n_ahead)
{
    const ps_max_tree *told = s->told_bytes.nodes != NULL ? &s->told_bytes : NULL;
    return ps_round_up(ps_schedule_non_model_ahead(s->schedule, told, s->now, n_ahead), PS_PAGE_BYTES);
}

/* Give back non-model memory beyond what the moments now .. now + n_ahead need; of a store at rest the present one needs none.
 * True when there was any. */
static bool shrink_non_model(ps_store *s, int32_t n_ahead)
{
    int64_t keep = s->non_model_needed_bytes;
    const bool knows_need = s->schedule != NULL && s->now >= 0 && !(s->is_resting && n_ahead == 0);
    if (knows_need) keep = ps_max_i64(keep, ps_store_non_model_ahead(s, n_ahead));
    const int64_t have = s->non_model_committed_bytes;
    if (keep >= have) return false;
    ps_region_decommit(s->non_model, keep, have - keep);
    s->non_model_committed_bytes = keep;
    ps_store_record_memory(s, PS_TIER_DEVICE);
    return true;
}

static void drop(ps_store *s, ps_chunk_id id, ps_tier tier, ps_reason why)
{
    PS_ASSERT(is_clean_on(&s->chunks[id], tier));
    ps_store_take_payload(s, id, tier, why);
    s->stats.n_dropped++;
}

/* The oldest transfer from or to the tier, else the oldest of all, or -1. */
static ps_chunk_id first_flight(const ps_store *s, ps_tier tier)
{
    for (int32_t i = 0; i < s->n_flying; i++) {
        const flight *f = &s->chunks[s->flying[i]].flight;
        if (f->src == tier || f->dst == tier) return s->flying[i];
    }
    return s->n_flying > 0 ? s->flying[0] : -1;
}

/* Nothing more can leave. The chunk limit is a wish, the budget a promise: within the budget the request is granted. */
static ps_status no_room(const ps_store *s, ps_tier tier, int64_t bytes)
{
    if (ps_device_free_bytes(s->d.ram[tier]) >= bytes) return PS_OK;
    const ps_device_stats d = ps_device_get_stats(s->d.ram[tier]);
    return PS_FAIL(PS_EBUDGET,
                   "%s: no room for %lld bytes: %lld of the budget of %lld bytes are in use and cannot leave",
                   ps_tier_name(tier), (long long)bytes, (long long)d.used_bytes, (long long)d.budget_bytes);
}

static ps_status make_room(ps_store *s, ps_tier tier, int64_t bytes, ps_reason why)
{
    if (s->d.ram[tier] == NULL) return PS_FAIL(PS_EBUDGET, "%s: the tier does not exist", ps_tier_name(tier));
    ps_store_clear_passed(s);
    for (;;) {
        if (ps_store_free_bytes(s, tier) >= bytes) return PS_OK;
        if (tier == PS_TIER_DEVICE) (void)shrink_non_model(s, s->d.prefetch);
        if (ps_store_free_bytes(s, tier) >= bytes) return PS_OK;
        const ps_chunk_id id = ps_store_pick_victim(s, tier);
        if (id < 0) {
            const bool has_shrunk = shrink_non_model(s, 0);
            if (ps_store_free_bytes(s, tier) >= bytes) return PS_OK;
            if (has_shrunk && tier == PS_TIER_HOST) { /* what found no other place may find it on the device now */
                ps_store_clear_passed(s);
                continue;
            }
            /* what was fetched too early may leave again once it has arrived; a copy further down makes room there */
            const ps_chunk_id arriving = first_flight(s, tier);
            if (arriving >= 0)
                PS_TRY(ps_store_retire(s, arriving));
            else if (s->d.shares_slots && !s->is_short_of_slots)
                s->is_short_of_slots = true;
            else
                return no_room(s, tier, bytes);
            ps_store_clear_passed(s);
            continue;
        }
        chunk *c = &s->chunks[id];
        if (!is_clean_on(c, tier)) {
            if (!c->flight.active) {
                bool started = false;
                PS_TRY(ps_store_start_write_back(s, id, tier, &started));
                ps_store_pass_over(s, id); /* when no other tier has room for it, one that is clean may still leave */
                if (!started) continue;
            }
            PS_TRY(ps_store_retire(s, id));
        } else if (c->flight.active) {
            PS_TRY(ps_store_retire(s, id));
        }
        drop(s, id, tier, why);
    }
}

ps_status ps_store_make_room(ps_store *s, ps_tier tier, int64_t bytes, ps_reason why)
{
    const ps_status st = make_room(s, tier, bytes, why);
    s->is_short_of_slots = false;
    return st;
}

/* Prepare room for something used `distance` moments from now, without waiting: drop what is clean, start writing back what
 * is dirty, and touch only chunks used later than that. True when the room is there already. */
static ps_status try_room(ps_store *s, ps_tier tier, int64_t bytes, int32_t distance, ps_reason why, bool *there)
{
    *there = ps_store_free_bytes(s, tier) >= bytes;
    if (*there) return PS_OK;
    if (tier == PS_TIER_DEVICE) (void)shrink_non_model(s, distance);
    ps_store_clear_passed(s);
    int64_t coming = 0; /* bytes that will be free once the write-backs under way are done */
    while (ps_store_free_bytes(s, tier) + coming < bytes) {
        const ps_chunk_id id = ps_store_pick_victim(s, tier);
        if (id < 0) break;
        chunk *c = &s->chunks[id];
        if (ps_schedule_next_use(s->schedule, id, tier, s->now) <= distance) break;
        ps_store_pass_over(s, id);
        if (c->flight.active) {
            coming += c->bytes;
        } else if (is_clean_on(c, tier)) {
            drop(s, id, tier, why);
        } else {
            bool started = false;
            PS_TRY(ps_store_start_write_back(s, id, tier, &started));
            if (!started) continue;
            coming += c->bytes;
        }
    }
    *there = ps_store_free_bytes(s, tier) >= bytes;
    return PS_OK;
}

/* Device bytes that activations will take beyond what they have, up to `distance` moments ahead. */
static int64_t non_model_growth(const ps_store *s, int32_t distance)
{
    if (s->non_model == NULL) return 0;
    return ps_max_i64(0, ps_store_non_model_ahead(s, distance) - s->non_model_committed_bytes);
}

/* What a look-ahead has found so far. */
typedef struct look {
    int32_t n_ahead; /* loads under way, or to come as soon as their chunk is free */
    bool blocked;    /* no room, so nothing farther may start */
} look;

/* One chunk of a moment to come. */
static ps_status prefetch_one(ps_store *s, const ps_access *a, int32_t distance, look *l)
{
    chunk *c = &s->chunks[a->chunk];
    if (c->flight.active && c->flight.dst == a->tier) {
        l->n_ahead++;
        return PS_OK;
    }
    if (is_current(c, a->tier) || c->current == 0 || a->mode == PS_ACCESS_OVERWRITE) return PS_OK;
    l->n_ahead++;
    if (c->flight.active || c->pins > 0) { /* in use, or on its way elsewhere: later */
        c->is_awaited = true;
        return PS_OK;
    }
    bool there = false;
    const int64_t growth = a->tier == PS_TIER_DEVICE ? non_model_growth(s, distance) : 0;
    PS_TRY(try_room(s, a->tier, c->bytes + growth, distance, PS_REASON_EVICT, &there));
    /* making room may have sent this very chunk's copy elsewhere on its way, or dropped its source: look again */
    if (!there || c->flight.active || c->current == 0) {
        l->blocked = true;
        return PS_OK;
    }
    PS_TRY(ps_store_start_load(s, a->chunk, a->tier, PS_REASON_PREFETCH));
    s->stats.n_prefetched++;
    return PS_OK;
}

/* ---- accesses that may need something ---- */

bool ps_store_is_unready(const chunk *c, ps_tier tier)
{
    if (c->flight.active && c->flight.dst == tier) return true;
    return c->current != 0 && !is_current(c, tier);
}

void ps_store_note_ready(ps_store *s, ps_chunk_id id)
{
    chunk *c = &s->chunks[id];
    ps_store_note_standing(s, id);
    if (s->unready == NULL) return;
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        const bool is_unready = ps_store_is_unready(c, (ps_tier)t);
        int32_t n;
        if (is_unready == c->is_unready[t]) continue;
        c->is_unready[t] = is_unready;
        const int32_t *const accesses = ps_schedule_accesses(s->schedule, id, (ps_tier)t, &n);
        for (int32_t i = 0; i < n; i++) s->unready[accesses[i] / 64] ^= (uint64_t)1 << (accesses[i] % 64);
    }
}

static ps_status mark_all(ps_store *s)
{
    if (s->unready != NULL) return PS_OK;
    const size_t n_words = (size_t)ps_schedule_trace(s->schedule)->n_accesses / 64 + 1;
    PS_TRY(ps_mem_alloc(n_words, sizeof *s->unready, &s->unready));
    for (ps_chunk_id id = 0; id < s->n_ids; id++) {
        memset(s->chunks[id].is_unready, 0, sizeof s->chunks[id].is_unready);
        ps_store_note_ready(s, id);
    }
    return PS_OK;
}

/* The first marked access in [j, end), or end. */
static int32_t next_unready(const ps_store *s, int32_t j, int32_t end)
{
    if (j >= end) return end;
    int32_t w = j / 64;
    uint64_t word = s->unready[w] & (~(uint64_t)0 << (j % 64));
    while (word == 0)
        if (++w > (end - 1) / 64)
            return end;
        else
            word = s->unready[w];
    return (int32_t)ps_min_i64(end, w * 64 + __builtin_ctzll(word));
}

/* Accesses [begin, end) of the trace, of moments to come; *goes_on false: nothing farther may start. */
static ps_status look_at(ps_store *s, int32_t begin, int32_t end, look *l, bool *goes_on)
{
    const ps_trace *t = ps_schedule_trace(s->schedule);
    const ps_access_past *pasts = ps_schedule_pasts(s->schedule);
    for (int32_t j = next_unready(s, begin, end); j < end && *goes_on; j = next_unready(s, j + 1, end)) {
        const int32_t distance = (pasts[j].moment - s->now + t->n_moments) % t->n_moments;
        if (pasts[j].change_elsewhere <= distance) continue; /* a copy made before that would be stale */
        PS_TRY(prefetch_one(s, &t->accesses[j], distance, l));
        *goes_on = !l->blocked && l->n_ahead < s->d.prefetch;
    }
    return PS_OK;
}

/* Room for activations: they cannot wait. */
static ps_status prepare_activations(ps_store *s, int32_t n_moments)
{
    const int32_t horizon = (int32_t)ps_min_i64((int64_t)ACTIVATION_LOOK_AHEAD * s->d.prefetch, n_moments - 1);
    const int64_t growth = non_model_growth(s, horizon);
    bool there = true;
    return growth <= 0 ? PS_OK : try_room(s, PS_TIER_DEVICE, growth, horizon, PS_REASON_ACTIVATIONS, &there);
}

ps_status ps_store_look_ahead(ps_store *s)
{
    if (s->d.prefetch == 0) return PS_OK;
    const ps_trace *t = ps_schedule_trace(s->schedule);
    PS_TRY(prepare_activations(s, t->n_moments));
    if (s->moment_serial <= s->quiet_until) return PS_OK;
    PS_TRY(mark_all(s));
    look l = {.n_ahead = 0};
    bool goes_on = true;
    const ps_moment *now = &t->moments[s->now];
    PS_TRY(look_at(s, now->first_access + now->n_accesses, t->n_accesses, &l, &goes_on));
    if (goes_on) PS_TRY(look_at(s, 0, now->first_access, &l, &goes_on));
    if (!goes_on) return PS_OK;
    const int32_t handover = ps_schedule_next_handover(s->schedule, s->now);
    s->quiet_until = handover == PS_NEVER ? INT64_MAX : s->moment_serial + handover;
    return PS_OK;
}
