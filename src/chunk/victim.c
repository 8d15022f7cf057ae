/* victim.c - who leaves a tier.
 *
 * There are three trees of maxima (max_tree.h) over chunk ids. One for each RAM tier has the chunks with a payload
 * there, and tells who leaves first (leaving_value). The third has host payloads that another tier has too, and tells
 * whose next use is farthest (spare_value). When all fits, these numbers change often and are seldom asked for: so it
 * is only noted which chunks may have changed, and their numbers are brought up to date when a victim is wanted.
 *
 * Chunks that may not leave now (pinned, wanted, or on their way) stay in the trees and are passed over: they are
 * few. */
#include "chunk/store_impl.h"

/* Value of a host payload that the device has too: it only saves a copy back, and leaves before all others. */
#define DUPLICATE INT64_MAX
/* Value of a payload that was chosen before. */
#define LEAVING (INT64_MAX - 2)

static bool is_duplicate(const chunk *c)
{
    return is_current(c, PS_TIER_HOST) && is_current(c, PS_TIER_DEVICE);
}

/* The policy's order; of equals a clean one leaves first. 0: not at all. */
static int64_t leaving_value(const ps_store *s, ps_chunk_id id, ps_tier tier)
{
    const chunk *c = &s->chunks[id];
    if (c->payload[tier] == NULL || c->is_passed) return 0;
    if (tier == PS_TIER_HOST && is_current(c, PS_TIER_DEVICE)) return DUPLICATE;
    if (is_leaving(c, tier)) return LEAVING + is_clean_on(c, tier);
    const ps_policy_query q = {.schedule = s->schedule,
                               .now = s->now,
                               .turn = s->turn,
                               .chunk = id,
                               .tier = tier,
                               .is_one_memory = s->d.hands_over,
                               .last_use_tick = c->last_use_tick};
    return 2 * s->d.policy->order(&q) + 1 + is_clean_on(c, tier);
}

/* The turn of the chunk's next use. */
static int64_t next_turn(const ps_store *s, ps_chunk_id id)
{
    const int32_t distance = ps_schedule_next_use_anywhere(s->schedule, id, s->now);
    return distance == PS_NEVER ? PS_ORDER_MOST : s->turn + distance;
}

int32_t ps_store_next_use(const ps_store *s, ps_chunk_id id, ps_tier tier)
{
    return s->d.hands_over ? ps_schedule_next_use_anywhere(s->schedule, id, s->now)
                           : ps_schedule_next_use(s->schedule, id, tier, s->now);
}

/* The higher, the better to do without on the host; 0: not to be dropped without a copy. */
static int64_t spare_value(const ps_store *s, ps_chunk_id id)
{
    const chunk *c = &s->chunks[id];
    if (c->payload[PS_TIER_HOST] == NULL || !is_clean_on(c, PS_TIER_HOST)) return 0;
    if (is_duplicate(c)) return DUPLICATE;
    return s->schedule == NULL ? 0 : next_turn(s, id);
}

/* ---- noting changes ---- */

void ps_store_note_standing(ps_store *s, ps_chunk_id id)
{
    if (s->chunks[id].is_noted) return;
    s->chunks[id].is_noted = true;
    s->noted[s->n_noted++] = id;
}

void ps_store_note_turn(ps_store *s)
{
    const ps_trace *t = ps_schedule_trace(s->schedule);
    s->now = (s->now + 1) % t->n_moments;
    s->turn++;
    const ps_moment *m = &t->moments[s->now];
    for (int32_t i = 0; i < m->n_accesses; i++) ps_store_note_standing(s, t->accesses[m->first_access + i].chunk);
}

static void bring_up_to_date(ps_store *s)
{
    for (int32_t i = 0; i < s->n_noted; i++) {
        const ps_chunk_id id = s->noted[i];
        for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
            ps_max_tree_set(&s->leaving[t], id, leaving_value(s, id, (ps_tier)t));
        ps_max_tree_set(&s->spare, id, spare_value(s, id));
        s->chunks[id].is_noted = false;
    }
    s->n_noted = 0;
}

ps_status ps_store_check_standing(const ps_store *s, ps_chunk_id id)
{
    if (s->chunks[id].is_noted) return PS_OK;
    bool is_right = ps_max_tree_get(&s->spare, id) == spare_value(s, id);
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
        is_right = is_right && ps_max_tree_get(&s->leaving[t], id) == leaving_value(s, id, (ps_tier)t);
    return is_right ? PS_OK : PS_FAIL(PS_ESTATE, "chunk id %d: its number among those who may leave is wrong", id);
}

/* ---- choosing ---- */

/* Neither a pin nor the current moment wants it on the tier; of one memory a pin keeps it from being picked on any. */
static bool is_free_on(const ps_store *s, const chunk *c, ps_tier tier)
{
    if (c->pins > 0 && (c->pin_tier == tier || s->d.hands_over)) return false;
    return c->wanted_serial != s->moment_serial || c->wanted_tier != tier;
}

/* May the payload it has there leave the tier at all (perhaps after a wait)? Not while it is being filled, nor as the
 * source of a copy upward that the current or a coming moment waits for. */
static bool may_leave(const ps_store *s, const chunk *c, ps_tier tier)
{
    if (c->flight.active && (c->flight.dst == tier || c->flight.dst == PS_TIER_DEVICE)) return false;
    return is_free_on(s, c, tier);
}

void ps_store_pass_over(ps_store *s, ps_chunk_id id)
{
    chunk *c = &s->chunks[id];
    if (c->is_passed) return;
    c->is_passed = true;
    s->passed[s->n_passed++] = id;
    ps_store_note_standing(s, id);
}

void ps_store_clear_passed(ps_store *s)
{
    for (int32_t i = 0; i < s->n_passed; i++) {
        s->chunks[s->passed[i]].is_passed = false;
        ps_store_note_standing(s, s->passed[i]);
    }
    s->n_passed = 0;
}

ps_chunk_id ps_store_pick_victim(ps_store *s, ps_tier tier)
{
    for (;;) {
        bring_up_to_date(s);
        const ps_chunk_id id = ps_max_tree_most(&s->leaving[tier]);
        if (id < 0 || may_leave(s, &s->chunks[id], tier)) return id;
        ps_store_pass_over(s, id);
    }
}

ps_chunk_id ps_store_pick_victim_for(ps_store *s, ps_tier tier, ps_tier *from)
{
    *from = tier;
    const ps_chunk_id here = ps_store_pick_victim(s, tier);
    if (!s->d.hands_over) return here;
    const ps_tier other = tier == PS_TIER_DEVICE ? PS_TIER_HOST : PS_TIER_DEVICE;
    const ps_chunk_id there = ps_store_pick_victim(s, other);
    if (there < 0) return here;
    if (here >= 0 && ps_max_tree_get(&s->leaving[tier], here) >= ps_max_tree_get(&s->leaving[other], there))
        return here;
    *from = other;
    return there;
}

ps_chunk_id ps_store_next_spare(ps_store *s, ps_chunk_id begin, ps_spare_kind kind, ps_chunk_id for_id)
{
    if (kind == PS_SPARE_USED_LATER && s->schedule == NULL) return -1;
    bring_up_to_date(s);
    const int64_t bound = kind == PS_SPARE_DUPLICATE ? DUPLICATE - 1 : next_turn(s, for_id);
    ps_chunk_id id = begin - 1;
    do {
        id = ps_max_tree_next_above(&s->spare, id + 1, bound);
    } while (id >= 0 && (s->chunks[id].flight.active || !is_free_on(s, &s->chunks[id], PS_TIER_HOST)));
    return id;
}
