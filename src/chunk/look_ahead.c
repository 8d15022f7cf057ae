/* look_ahead.c - what is copied ahead of time: chunks of moments to come, and room for their activations. */
#include <string.h>

#include "base/mem.h"
#include "chunk/store_impl.h"

/* Device bytes that activations will take beyond what they have, up to `distance` moments ahead. */
static int64_t non_model_growth(const ps_store *s, int32_t distance)
{
    if (!has_non_model(s)) return 0;
    return ps_max_i64(0, ps_store_non_model_ahead(s, distance) - s->non_model_committed_bytes);
}

/* What a look-ahead has found so far. */
typedef struct look {
    int32_t n_ahead; /* loads under way, or to come as soon as their chunk is free, or there is room */
    bool blocked;    /* no room, so nothing farther may start; from then on: */
    ps_room wanted;  /* by that load, and by those behind it on its tier */
} look;

/* A load behind one that waits for room: what leaves for it may begin to. So the way down has work before the way up
 * has the room. */
static ps_status prepare_load(ps_store *s, const ps_access *a, int32_t distance, look *l)
{
    if (a->tier != l->wanted.tier && !s->d.hands_over) return PS_OK;
    l->wanted.bytes += s->chunks[a->chunk].bytes;
    return ps_store_prepare_room(s, &l->wanted, distance);
}

static ps_room room_for(const ps_store *s, const chunk *c, ps_tier tier, int32_t distance)
{
    const int64_t growth = tier == PS_TIER_DEVICE ? non_model_growth(s, distance) : 0;
    return (ps_room){.tier = tier, .bytes = c->bytes + growth};
}

/* One chunk of a moment to come. */
static ps_status prefetch_one(ps_store *s, const ps_access *a, int32_t distance, look *l)
{
    chunk *c = &s->chunks[a->chunk];
    if (c->flight.active && (c->flight.dst == a->tier || (s->d.hands_over && c->flight.dst != PS_TIER_DISK))) {
        l->n_ahead++;
        return PS_OK;
    }
    if (is_current(c, a->tier) || is_in_reach(s, c) || c->current == 0 || a->mode == PS_ACCESS_OVERWRITE) return PS_OK;
    l->n_ahead++;
    if (l->blocked) return prepare_load(s, a, distance, l);
    if (c->flight.active || c->pins > 0) { /* in use, or on its way elsewhere: when that has ended */
        c->is_awaited = true;
        return PS_OK;
    }
    ps_room room = room_for(s, c, a->tier, distance);
    PS_TRY(ps_store_try_room(s, &room, distance, PS_REASON_EVICT));
    /* making room may have started a copy of this very chunk to elsewhere, or dropped its source: look again */
    if (!room.is_there || c->flight.active || c->current == 0) {
        l->blocked = true;
        l->wanted = room;
        return PS_OK;
    }
    PS_TRY(ps_store_start_load(s, a->chunk, room.tier, PS_REASON_PREFETCH));
    s->stats.n_prefetched++;
    return PS_OK;
}

/* ---- accesses that may need something ---- */

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

/* Accesses [begin, end) of the trace, of moments to come; *goes_on false: enough is under way or prepared. */
static ps_status look_at(ps_store *s, int32_t begin, int32_t end, look *l, bool *goes_on)
{
    const ps_trace *t = ps_schedule_trace(s->schedule);
    const ps_access_past *pasts = ps_schedule_pasts(s->schedule);
    for (int32_t j = next_unready(s, begin, end); j < end && *goes_on; j = next_unready(s, j + 1, end)) {
        const int32_t distance = (pasts[j].moment - s->now + t->n_moments) % t->n_moments;
        if (pasts[j].change_elsewhere <= distance) continue; /* a copy made before that would be stale */
        PS_TRY(prefetch_one(s, &t->accesses[j], distance, l));
        *goes_on = l->n_ahead < s->d.prefetch;
    }
    return PS_OK;
}

/* Room for activations: they cannot wait. */
static ps_status prepare_activations(ps_store *s, int32_t n_moments)
{
    const int32_t horizon = (int32_t)ps_min_i64((int64_t)PS_ACTIVATION_LOOK_AHEAD * s->d.prefetch, n_moments - 1);
    const int64_t growth = non_model_growth(s, horizon);
    ps_room room = {.tier = PS_TIER_DEVICE, .bytes = growth};
    return growth <= 0 ? PS_OK : ps_store_try_room(s, &room, horizon, PS_REASON_ACTIVATIONS);
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
    if (!goes_on || l.blocked) return PS_OK;
    const int32_t handover = ps_schedule_next_handover(s->schedule, s->now);
    s->quiet_until = handover == PS_NEVER ? INT64_MAX : s->moment_serial + handover;
    return PS_OK;
}
