/* victim_walk.h - the victim of a tier, by looking at every chunk: the rule as stated, for comparison with the store's
 * trees. */
#ifndef VICTIM_WALK_H
#define VICTIM_WALK_H

#include "chunk/chunk_fixture.h"
#include "chunk/store_impl.h"

/* The higher leaves first. */
static inline int64_t walk_rank(const ps_store *s, ps_chunk_id id, ps_tier tier)
{
    const chunk *c = &s->r.chunks[id];
    if (tier == PS_TIER_HOST && is_current(c, PS_TIER_DEVICE)) return INT64_MAX; /* it only saves a copy back */
    if (is_leaving(c, tier)) return INT64_MAX - 1; /* that was decided when it was chosen */
    if (s->s.schedule == NULL) return (int64_t)(s->tick - c->last_use_tick);
    return s->r.is_unified_memory ? ps_schedule_next_use_anywhere(s->s.schedule, id, s->s.now)
                                  : ps_schedule_next_use(s->s.schedule, id, tier, s->s.now);
}

static inline bool walk_wants_to_stay(const ps_store *s, ps_chunk_id id, ps_tier tier)
{
    const bool any = s->r.is_unified_memory;
    const chunk *c = &s->r.chunks[id];
    const ps_standing *x = &s->s.standings[id];
    return (c->pins > 0 && (any || c->pin_tier == tier)) ||
           (x->wanted_serial == s->s.moment_serial && x->wanted_tier == tier);
}

static inline ps_chunk_id walk_victim(const ps_store *s, ps_tier tier, const bool *passed)
{
    ps_chunk_id best = -1;
    int64_t best_rank = 0;
    for (ps_chunk_id id = 0; id < s->r.n_ids; id++) {
        const chunk *c = &s->r.chunks[id];
        if (c->payload[tier] == NULL || passed[id] || walk_wants_to_stay(s, id, tier)) continue;
        if (s->m.flights[id].active && (s->m.flights[id].dst == tier || s->m.flights[id].dst == PS_TIER_DEVICE))
            continue;
        const int64_t rank = walk_rank(s, id, tier);
        const bool is_first_clean = best >= 0 && is_clean_on(c, tier) && !is_clean_on(&s->r.chunks[best], tier);
        if (best < 0 || rank > best_rank || (rank == best_rank && is_first_clean)) best = id, best_rank = rank;
    }
    return best;
}

static inline ps_chunk_id walk_spare(const ps_store *s, ps_chunk_id begin, ps_spare_kind kind, ps_chunk_id for_id)
{
    if (kind == PS_SPARE_USED_LATER && s->s.schedule == NULL) return -1;
    for (ps_chunk_id id = begin; id < s->r.n_ids; id++) {
        const chunk *c = &s->r.chunks[id];
        if (c->payload[PS_TIER_HOST] == NULL || s->m.flights[id].active || !is_clean_on(c, PS_TIER_HOST)) continue;
        if (walk_wants_to_stay(s, id, PS_TIER_HOST)) continue;
        if (is_current(c, PS_TIER_DEVICE)) return id;
        if (kind == PS_SPARE_USED_LATER && ps_schedule_next_use_anywhere(s->s.schedule, id, s->s.now) >
                                               ps_schedule_next_use_anywhere(s->s.schedule, for_id, s->s.now))
            return id;
    }
    return -1;
}

/* All victims of a tier, each passed over as the next one is asked for; and all spare payloads of the host. */
static inline void assert_same_victims(ps_store *s, dice *d)
{
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        bool passed[PS_LISTS_MAX * 64] = {false};
        ps_chunk_id id;
        ps_scheduling_clear_passed(&s->s);
        do {
            id = ps_scheduling_pick_victim(&s->s, (ps_tier)t);
            assert_int_equal(id, walk_victim(s, (ps_tier)t, passed));
            if (id < 0) break;
            passed[id] = true;
            ps_scheduling_pass_over(&s->s, id);
        } while (roll(d, 8) != 0);
        ps_scheduling_clear_passed(&s->s);
    }
    const ps_chunk_id for_id = roll(d, s->r.n_ids);
    for (int kind = PS_SPARE_DUPLICATE; kind <= PS_SPARE_USED_LATER; kind++)
        for (ps_chunk_id id = 0; id >= 0;) {
            const ps_chunk_id next = ps_scheduling_next_spare(&s->s, id, (ps_spare_kind)kind, for_id);
            assert_int_equal(next, walk_spare(s, id, (ps_spare_kind)kind, for_id));
            id = next < 0 ? -1 : next + 1;
        }
}

#endif
