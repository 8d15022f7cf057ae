/* victim_walk.h - who leaves a tier, by looking at every chunk: the rule as it is told, for comparison with the store's
 * trees. */
#ifndef VICTIM_WALK_H
#define VICTIM_WALK_H

#include "chunk/chunk_fixture.h"
#include "chunk/store_impl.h"

/* The higher leaves first. */
static inline int64_t walk_rank(const ps_store *s, ps_chunk_id id, ps_tier tier)
{
    const chunk *c = &s->chunks[id];
    const bool is_lru = s->d.policy == &ps_policy_lru || (s->d.policy == &ps_policy_opt && s->schedule == NULL);
    if (tier == PS_TIER_HOST && is_current(c, PS_TIER_DEVICE)) return INT64_MAX; /* it only saves a copy back */
    if (is_leaving(c, tier)) return INT64_MAX - 1; /* that was decided when it was chosen */
    if (is_lru) return (int64_t)(s->tick - c->last_use_tick);
    if (s->schedule == NULL) return 0;
    const int32_t distance = s->d.hands_over && s->d.policy == &ps_policy_opt
                                 ? ps_schedule_next_use_anywhere(s->schedule, id, s->now)
                                 : ps_schedule_next_use(s->schedule, id, tier, s->now);
    if (s->d.policy == &ps_policy_opt || distance == PS_NEVER) return distance;
    const ps_trace *t = ps_schedule_trace(s->schedule);
    int32_t rank = distance;
    for (int32_t use = (s->now + distance) % t->n_moments; use > 0 && rank > 0; use--, rank--)
        if (t->moments[use].phase != PS_PHASE_UPDATE || t->moments[use - 1].phase != PS_PHASE_UPDATE) break;
    return rank;
}

static inline bool walk_wants_to_stay(const ps_store *s, const chunk *c, ps_tier tier)
{
    const bool any = s->d.hands_over;
    return (c->pins > 0 && (any || c->pin_tier == tier)) ||
           (c->wanted_serial == s->moment_serial && c->wanted_tier == tier);
}

static inline ps_chunk_id walk_victim(const ps_store *s, ps_tier tier, const bool *passed)
{
    ps_chunk_id best = -1;
    int64_t best_rank = 0;
    for (ps_chunk_id id = 0; id < s->n_ids; id++) {
        const chunk *c = &s->chunks[id];
        if (c->payload[tier] == NULL || passed[id] || walk_wants_to_stay(s, c, tier)) continue;
        if (c->flight.active && (c->flight.dst == tier || c->flight.dst == PS_TIER_DEVICE)) continue;
        const int64_t rank = walk_rank(s, id, tier);
        const bool is_first_clean = best >= 0 && is_clean_on(c, tier) && !is_clean_on(&s->chunks[best], tier);
        if (best < 0 || rank > best_rank || (rank == best_rank && is_first_clean)) best = id, best_rank = rank;
    }
    return best;
}

static inline ps_chunk_id walk_spare(const ps_store *s, ps_chunk_id begin, ps_spare_kind kind, ps_chunk_id for_id)
{
    if (kind == PS_SPARE_USED_LATER && s->schedule == NULL) return -1;
    for (ps_chunk_id id = begin; id < s->n_ids; id++) {
        const chunk *c = &s->chunks[id];
        if (c->payload[PS_TIER_HOST] == NULL || c->flight.active || !is_clean_on(c, PS_TIER_HOST)) continue;
        if (walk_wants_to_stay(s, c, PS_TIER_HOST)) continue;
        if (is_current(c, PS_TIER_DEVICE)) return id;
        if (kind == PS_SPARE_USED_LATER && ps_schedule_next_use_anywhere(s->schedule, id, s->now) >
                                               ps_schedule_next_use_anywhere(s->schedule, for_id, s->now))
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
        ps_store_clear_passed(s);
        do {
            id = ps_store_pick_victim(s, (ps_tier)t);
            assert_int_equal(id, walk_victim(s, (ps_tier)t, passed));
            if (id < 0) break;
            passed[id] = true;
            ps_store_pass_over(s, id);
        } while (roll(d, 8) != 0);
        ps_store_clear_passed(s);
    }
    const ps_chunk_id for_id = roll(d, s->n_ids);
    for (int kind = PS_SPARE_DUPLICATE; kind <= PS_SPARE_USED_LATER; kind++)
        for (ps_chunk_id id = 0; id >= 0;) {
            const ps_chunk_id next = ps_store_next_spare(s, id, (ps_spare_kind)kind, for_id);
            assert_int_equal(next, walk_spare(s, id, (ps_spare_kind)kind, for_id));
            id = next < 0 ? -1 : next + 1;
        }
}

#endif
