/* changes.c - the state of scheduling, brought up to date from the list of changes of the levels below. */
#include "base/mem.h"
#include "chunk/scheduling.h"

ps_status ps_scheduling_init(ps_scheduling *s)
{
    const size_t n = (size_t)s->r->n_ids;
    s->now = -1;
    PS_TRY(ps_mem_alloc(n, sizeof *s->standings, &s->standings));
    PS_TRY(ps_mem_alloc(n, sizeof *s->passed, &s->passed));
    PS_TRY(ps_mem_alloc(n, sizeof *s->noted, &s->noted));
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) PS_TRY(ps_max_tree_init(&s->leaving[t], s->r->n_ids));
    PS_TRY(ps_max_tree_init(&s->spare, s->r->n_ids));
    for (size_t i = 0; i < n; i++) s->standings[i].wanted_serial = -1;
    return PS_OK;
}

void ps_scheduling_deinit(ps_scheduling *s)
{
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) ps_max_tree_deinit(&s->leaving[t]);
    ps_max_tree_deinit(&s->spare);
    ps_max_tree_deinit(&s->framework_bytes);
    ps_mem_free(s->unready);
    ps_mem_free(s->standings);
    ps_mem_free(s->passed);
    ps_mem_free(s->noted);
}

/* ---- changes ---- */

/* Would an access on the tier have to wait for a copy? The content is in flight to it, or only elsewhere. */
static bool is_unready(const ps_scheduling *s, ps_chunk_id id, ps_tier tier)
{
    const chunk *c = &s->r->chunks[id];
    if (s->m->flights[id].active && s->m->flights[id].dst == tier) return true;
    return c->current != 0 && !is_current(c, tier) && !ps_scheduling_is_in_reach(s, c);
}

static void mark_accesses(ps_scheduling *s, ps_chunk_id id)
{
    bool *was_unready = s->standings[id].is_unready;
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        int32_t n;
        if (is_unready(s, id, (ps_tier)t) == was_unready[t]) continue;
        was_unready[t] = !was_unready[t];
        const int32_t *const accesses = ps_schedule_accesses(s->schedule, id, (ps_tier)t, &n);
        for (int32_t i = 0; i < n; i++) s->unready[accesses[i] / 64] ^= (uint64_t)1 << (accesses[i] % 64);
    }
}

ps_status ps_scheduling_mark_accesses(ps_scheduling *s)
{
    if (s->unready != NULL) return PS_OK;
    const size_t n_words = (size_t)ps_schedule_trace(s->schedule)->n_accesses / 64 + 1;
    PS_TRY(ps_mem_alloc(n_words, sizeof *s->unready, &s->unready));
    for (ps_chunk_id id = 0; id < s->r->n_ids; id++) {
        for (int t = 0; t < PS_RAM_TIER_COUNT; t++) s->standings[id].is_unready[t] = false;
        mark_accesses(s, id);
    }
    return PS_OK;
}

void ps_scheduling_take_changes(ps_scheduling *s)
{
    ps_residency *r = s->r;
    for (int32_t i = 0; i < r->n_changed; i++) {
        const ps_chunk_id id = r->changed[i];
        const unsigned changes = r->chunks[id].changes;
        bool *is_awaited = &s->standings[id].is_awaited;
        r->chunks[id].changes = 0;
        if ((changes & (PS_CHANGED_PLACE | PS_CHANGED_USE)) != 0) ps_scheduling_note(s, id);
        if ((changes & PS_CHANGED_PLACE) != 0 && s->unready != NULL) mark_accesses(s, id);
        if ((changes & PS_CHANGED_DROPPED) != 0 || ((changes & PS_CHANGED_FREE) != 0 && *is_awaited))
            s->quiet_until = 0;
        if ((changes & PS_CHANGED_FREE) != 0) *is_awaited = false;
    }
    r->n_changed = 0;
}

ps_status ps_scheduling_check(const ps_scheduling *s, ps_chunk_id id)
{
    if (s->r->chunks[id].changes != 0) return PS_OK;
    for (int t = 0; t < PS_RAM_TIER_COUNT && s->unready != NULL; t++)
        if (s->standings[id].is_unready[t] != is_unready(s, id, (ps_tier)t))
            return PS_FAIL(PS_ESTATE, "chunk id %d: its accesses on %s are marked wrongly", id,
                           ps_tier_name((ps_tier)t));
    return ps_scheduling_check_victim(s, id);
}
