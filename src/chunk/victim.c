/* victim.c - which chunk is evicted from a tier.
 *
 * There are three trees of maxima (max_tree.h) over chunk ids. One for each RAM tier has the chunks with a payload
 * there, and finds the next victim (leaving_value). The third has host payloads that another tier has too, and finds
 * the one with the farthest next use (spare_value). When everything fits, these values change often and are seldom
 * needed: so changed chunks are only noted, and their values are brought up to date when a victim is needed.
 *
 * Chunks that may not leave now (pinned, needed, or in flight) stay in the trees and are passed over: they are few. */
#include "chunk/scheduling.h"

/* Value of a host payload that the device has too: it only saves a copy back, and is evicted first. */
#define DUPLICATE INT64_MAX
/* Value of a payload that was chosen before. */
#define LEAVING (INT64_MAX - 2)
#define NEVER (INT64_MAX / 4)

static bool is_duplicate(const chunk *c)
{
    return is_current(c, PS_TIER_HOST) && is_current(c, PS_TIER_DEVICE);
}

/* Moments from the schedule's beginning, across steps, to the chunk's next use. */
static int64_t turn_of(const ps_scheduling *s, int32_t distance)
{
    return distance == PS_NEVER ? NEVER : s->turn + distance;
}

/* Farthest next use on the tier, with unified memory on any (Belady 1966); least recently used without a schedule. A
 * clean chunk is evicted before a dirty one of equal use. 0: not evicted. */
static int64_t leaving_value(const ps_scheduling *s, ps_chunk_id id, ps_tier tier)
{
    const chunk *c = &s->r->chunks[id];
    if (c->payload[tier] == NULL || s->standings[id].is_passed) return 0;
    if (tier == PS_TIER_HOST && is_current(c, PS_TIER_DEVICE)) return DUPLICATE;
    if (is_leaving(c, tier)) return LEAVING + is_clean_on(c, tier);
    const int64_t order =
        s->schedule == NULL ? NEVER - (int64_t)c->last_use_tick : turn_of(s, ps_scheduling_next_use(s, id, tier));
    return 2 * order + 1 + is_clean_on(c, tier);
}

static int64_t next_turn(const ps_scheduling *s, ps_chunk_id id)
{
    return turn_of(s, ps_schedule_next_use_anywhere(s->schedule, id, s->now));
}

int32_t ps_scheduling_next_use(const ps_scheduling *s, ps_chunk_id id, ps_tier tier)
{
    return s->r->is_unified_memory ? ps_schedule_next_use_anywhere(s->schedule, id, s->now)
                                   : ps_schedule_next_use(s->schedule, id, tier, s->now);
}

/* Higher values are dropped from the host first; 0: cannot be dropped without a copy. */
static int64_t spare_value(const ps_scheduling *s, ps_chunk_id id)
{
    const chunk *c = &s->r->chunks[id];
    if (c->payload[PS_TIER_HOST] == NULL || !is_clean_on(c, PS_TIER_HOST)) return 0;
    if (is_duplicate(c)) return DUPLICATE;
    return s->schedule == NULL ? 0 : next_turn(s, id);
}

/* ---- noting changes ---- */

void ps_scheduling_note(ps_scheduling *s, ps_chunk_id id)
{
    if (s->standings[id].is_noted) return;
    s->standings[id].is_noted = true;
    s->noted[s->n_noted++] = id;
}

static void bring_up_to_date(ps_scheduling *s)
{
    ps_scheduling_take_changes(s);
    for (int32_t i = 0; i < s->n_noted; i++) {
        const ps_chunk_id id = s->noted[i];
        for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
            ps_max_tree_set(&s->leaving[t], id, leaving_value(s, id, (ps_tier)t));
        ps_max_tree_set(&s->spare, id, spare_value(s, id));
        s->standings[id].is_noted = false;
    }
    s->n_noted = 0;
}

ps_status ps_scheduling_check_victim(const ps_scheduling *s, ps_chunk_id id)
{
    if (s->standings[id].is_noted) return PS_OK;
    bool is_right = ps_max_tree_get(&s->spare, id) == spare_value(s, id);
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
        is_right = is_right && ps_max_tree_get(&s->leaving[t], id) == leaving_value(s, id, (ps_tier)t);
    return is_right ? PS_OK : PS_FAIL(PS_ESTATE, "chunk id %d: its value among possible victims is wrong", id);
}

/* ---- choosing ---- */

/* Neither pinned nor needed by the current moment on the tier; with unified memory a pin counts on both. */
static bool is_free_on(const ps_scheduling *s, ps_chunk_id id, ps_tier tier)
{
    const chunk *c = &s->r->chunks[id];
    const ps_standing *x = &s->standings[id];
    if (c->pins > 0 && (c->pin_tier == tier || s->r->is_unified_memory)) return false;
    return x->wanted_serial != s->moment_serial || x->wanted_tier != tier;
}

/* May the payload leave the tier at all (perhaps after a wait)? Not while it is being filled, nor as the source of a
 * copy upward that the current or a coming moment waits for. */
static bool may_leave(const ps_scheduling *s, ps_chunk_id id, ps_tier tier)
{
    const flight *f = &s->m->flights[id];
    if (f->active && (f->dst == tier || f->dst == PS_TIER_DEVICE)) return false;
    return is_free_on(s, id, tier);
}

void ps_scheduling_pass_over(ps_scheduling *s, ps_chunk_id id)
{
    if (s->standings[id].is_passed) return;
    s->standings[id].is_passed = true;
    s->passed[s->n_passed++] = id;
    ps_scheduling_note(s, id);
}

void ps_scheduling_clear_passed(ps_scheduling *s)
{
    for (int32_t i = 0; i < s->n_passed; i++) {
        s->standings[s->passed[i]].is_passed = false;
        ps_scheduling_note(s, s->passed[i]);
    }
    s->n_passed = 0;
}

ps_chunk_id ps_scheduling_pick_victim(ps_scheduling *s, ps_tier tier)
{
    for (;;) {
        bring_up_to_date(s);
        const ps_chunk_id id = ps_max_tree_most(&s->leaving[tier]);
        if (id < 0 || may_leave(s, id, tier)) return id;
        ps_scheduling_pass_over(s, id);
    }
}

ps_chunk_id ps_scheduling_pick_victim_for(ps_scheduling *s, ps_tier tier, ps_tier *from)
{
    *from = tier;
    const ps_chunk_id here = ps_scheduling_pick_victim(s, tier);
    if (!s->r->is_unified_memory) return here;
    const ps_tier other = ps_other_ram(tier);
    const ps_chunk_id there = ps_scheduling_pick_victim(s, other);
    if (there < 0) return here;
    if (here >= 0 && ps_max_tree_get(&s->leaving[tier], here) >= ps_max_tree_get(&s->leaving[other], there))
        return here;
    *from = other;
    return there;
}

ps_chunk_id ps_scheduling_next_spare(ps_scheduling *s, ps_chunk_id begin, ps_spare_kind kind, ps_chunk_id for_id)
{
    if (kind == PS_SPARE_USED_LATER && s->schedule == NULL) return -1;
    bring_up_to_date(s);
    const int64_t bound = kind == PS_SPARE_DUPLICATE ? DUPLICATE - 1 : next_turn(s, for_id);
    ps_chunk_id id = begin - 1;
    do {
        id = ps_max_tree_next_above(&s->spare, id + 1, bound);
    } while (id >= 0 && (s->m->flights[id].active || !is_free_on(s, id, PS_TIER_HOST)));
    return id;
}
