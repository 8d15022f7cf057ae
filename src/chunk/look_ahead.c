/* look_ahead.c - the copies that the moments of the schedule start: those of the current one, and ahead of time chunks
 * of coming moments and room for their activations. */
#include "chunk/scheduling.h"

/* Device bytes that activations will take beyond what they have, up to `distance` moments ahead. */
static int64_t non_model_growth(const ps_scheduling *s, int32_t distance)
{
    if (!ps_residency_has_non_model(s->r)) return 0;
    return ps_max_i64(0, ps_scheduling_non_model_ahead(s, distance) - s->r->use[PS_TIER_DEVICE].non_model_bytes);
}

/* State of one look-ahead. */
typedef struct look {
    int32_t n_ahead; /* loads in flight, or waiting for their chunk or for room */
    bool blocked;    /* no room, so no later load may start; from then on: */
    ps_room wanted;  /* by that load, and by later ones on its tier */
} look;

/* A load after one that waits for room: write-backs for it may begin. So the link down has work before the link up has
 * room. */
static ps_status prepare_load(ps_scheduling *s, const ps_access *a, int32_t distance, look *l)
{
    if (a->tier != l->wanted.tier && !s->r->is_unified_memory) return PS_OK;
    l->wanted.bytes += s->r->chunks[a->chunk].bytes;
    return ps_scheduling_prepare_room(s, &l->wanted, distance);
}

static ps_room room_for(const ps_scheduling *s, const chunk *c, ps_tier tier, int32_t distance)
{
    const int64_t growth = tier == PS_TIER_DEVICE ? non_model_growth(s, distance) : 0;
    return (ps_room){.tier = tier, .bytes = c->bytes + growth};
}

/* One chunk of a moment to come. */
static ps_status prefetch_one(ps_scheduling *s, const ps_access *a, int32_t distance, look *l)
{
    const chunk *c = &s->r->chunks[a->chunk];
    const flight *f = &s->m->flights[a->chunk];
    if (f->active && (f->dst == a->tier || (s->r->is_unified_memory && f->dst != PS_TIER_DISK))) {
        l->n_ahead++;
        return PS_OK;
    }
    if (is_current(c, a->tier) || ps_scheduling_is_in_reach(s, c) || c->current == 0 || a->mode == PS_ACCESS_OVERWRITE)
        return PS_OK;
    l->n_ahead++;
    if (l->blocked) return prepare_load(s, a, distance, l);
    if (f->active || c->pins > 0) { /* in use, or in flight to another tier: retried when that ends */
        s->standings[a->chunk].is_awaited = true;
        return PS_OK;
    }
    ps_room room = room_for(s, c, a->tier, distance);
    PS_TRY(ps_scheduling_try_room(s, &room, distance, PS_REASON_EVICT));
    /* making room may have started a copy of this chunk to another tier, or dropped its source: check again */
    if (!room.is_there || f->active || c->current == 0) {
        l->blocked = true;
        l->wanted = room;
        return PS_OK;
    }
    PS_TRY(ps_movement_load(s->m, a->chunk, room.tier, PS_REASON_PREFETCH));
    s->n_prefetched++;
    return PS_OK;
}

/* ---- the current moment ---- */

ps_status ps_scheduling_start_wanted(ps_scheduling *s)
{
    const ps_moment *m = &ps_schedule_trace(s->schedule)->moments[s->now];
    const ps_access *accesses = &ps_schedule_trace(s->schedule)->accesses[m->first_access];
    for (int32_t i = 0; i < m->n_accesses; i++) {
        s->standings[accesses[i].chunk].wanted_serial = s->moment_serial;
        s->standings[accesses[i].chunk].wanted_tier = accesses[i].tier;
    }
    PS_TRY(ps_scheduling_commit_non_model(s));
    for (int32_t i = 0; i < m->n_accesses; i++) {
        const ps_access *a = &accesses[i];
        const chunk *c = &s->r->chunks[a->chunk];
        if (has_payload(c, a->tier) || c->current == 0 || a->mode == PS_ACCESS_OVERWRITE || c->pins > 0) continue;
        if (!ps_movement_can_move(s->m, a->chunk, a->tier)) PS_TRY(ps_movement_retire(s->m, a->chunk));
        if (has_payload(c, a->tier)) continue;
        PS_TRY(ps_scheduling_bring(s, a->chunk, a->tier, PS_REASON_WANTED));
    }
    return PS_OK;
}

/* ---- moments to come ---- */

/* The first marked access in [j, end), or end. */
static int32_t next_unready(const ps_scheduling *s, int32_t j, int32_t end)
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

/* Accesses [begin, end) of the trace, of coming moments; *goes_on false: enough is in flight or prepared, or the others
 * are too far ahead. */
static ps_status look_at(ps_scheduling *s, int32_t begin, int32_t end, look *l, bool *goes_on)
{
    const ps_trace *t = ps_schedule_trace(s->schedule);
    const ps_access_past *pasts = ps_schedule_pasts(s->schedule);
    for (int32_t j = next_unready(s, begin, end); j < end && *goes_on; j = next_unready(s, j + 1, end)) {
        const int32_t distance = (pasts[j].moment - s->now + t->n_moments) % t->n_moments;
        *goes_on = s->options.moments_ahead == 0 || distance <= s->options.moments_ahead;
        if (!*goes_on) return PS_OK;
        if (pasts[j].change_elsewhere <= distance) continue; /* a copy made before that would be stale */
        PS_TRY(prefetch_one(s, &t->accesses[j], distance, l));
        ps_scheduling_take_changes(s); /* may mark other accesses */
        *goes_on = l->n_ahead < s->options.prefetch;
    }
    return PS_OK;
}

/* Room for activations: they cannot wait. */
static ps_status prepare_activations(ps_scheduling *s, int32_t n_moments)
{
    const int32_t horizon = (int32_t)ps_min_i64((int64_t)PS_ACTIVATION_LOOK_AHEAD * s->options.prefetch, n_moments - 1);
    const int64_t growth = non_model_growth(s, horizon);
    ps_room room = {.tier = PS_TIER_DEVICE, .bytes = growth};
    return growth <= 0 ? PS_OK : ps_scheduling_try_room(s, &room, horizon, PS_REASON_ACTIVATIONS);
}

ps_status ps_scheduling_look_ahead(ps_scheduling *s)
{
    if (s->options.prefetch == 0) return PS_OK;
    const ps_trace *t = ps_schedule_trace(s->schedule);
    PS_TRY(prepare_activations(s, t->n_moments));
    ps_scheduling_take_changes(s);
    if (s->moment_serial <= s->quiet_until) return PS_OK;
    PS_TRY(ps_scheduling_mark_accesses(s));
    look l = {.n_ahead = 0};
    bool goes_on = true;
    const ps_moment *now = &t->moments[s->now];
    PS_TRY(look_at(s, now->first_access + now->n_accesses, t->n_accesses, &l, &goes_on));
    if (goes_on) PS_TRY(look_at(s, 0, now->first_access, &l, &goes_on));
    if (!goes_on || l.blocked) return PS_OK;
    const int32_t handover = ps_schedule_next_handover(s->schedule, s->now);
    s->quiet_until = handover == PS_NEVER ? INT64_MAX : s->moment_serial + handover;
    return PS_OK;
}
