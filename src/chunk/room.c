/* room.c - room on a full tier. */
#include "base/bytes.h"
#include "chunk/scheduling.h"

int64_t ps_scheduling_non_model_ahead(const ps_scheduling *s, int32_t n_ahead)
{
    const ps_max_tree *last_bytes = s->framework_bytes.nodes != NULL ? &s->framework_bytes : NULL;
    return ps_round_up(ps_schedule_non_model_ahead(s->schedule, last_bytes, s->now, n_ahead), s->r->page_bytes);
}

/* Decommit non-model memory beyond the needs of moments now .. now + n_ahead; a store at rest needs none for the
 * current one. True when there was any. */
static bool shrink_non_model(ps_scheduling *s, int32_t n_ahead)
{
    int64_t keep = s->needed_bytes;
    const bool knows_need = s->schedule != NULL && s->now >= 0 && !(s->is_resting && n_ahead == 0);
    if (knows_need) keep = ps_max_i64(keep, ps_scheduling_non_model_ahead(s, n_ahead));
    return ps_residency_trim_non_model(s->r, keep);
}

/* The oldest transfer from or to the tier, else the oldest of all, or -1. */
static ps_chunk_id first_flight(const ps_scheduling *s, ps_tier tier)
{
    for (int32_t i = 0; i < s->m->n_flying; i++) {
        const flight *f = &s->m->flights[s->m->flying[i]];
        if (f->src == tier || f->dst == tier) return s->m->flying[i];
    }
    return s->m->n_flying > 0 ? s->m->flying[0] : -1;
}

/* No other chunk can leave. */
static ps_status no_room(const ps_scheduling *s, ps_tier tier, int64_t bytes)
{
    const ps_device_stats d = ps_device_get_stats(s->r->ram[tier]);
    char text[3][PS_BYTES_TEXT_MAX];
    return PS_FAIL(PS_EBUDGET, "%s memory has no room for %s: of its budget of %s %s cannot be moved away",
                   ps_tier_name(tier), ps_bytes_format(bytes, text[0]), ps_bytes_format(d.budget_bytes, text[1]),
                   ps_bytes_format(d.used_bytes, text[2]));
}

/* Free memory of the device that activations of the coming moments will not use. */
static int64_t lasting_free_bytes(const ps_scheduling *s)
{
    const int64_t free_bytes = ps_residency_free_bytes(s->r, PS_TIER_DEVICE);
    if (s->schedule == NULL || !ps_residency_has_non_model(s->r) || s->now < 0) return free_bytes;
    const int64_t ahead = ps_scheduling_non_model_ahead(s, PS_ACTIVATION_LOOK_AHEAD * s->options.prefetch);
    return free_bytes - ps_max_i64(0, ahead - s->r->use[PS_TIER_DEVICE].non_model_bytes);
}

/* With unified memory, a victim of one tier moves to the other as long as that has room, clean or not. */
static ps_status displace(ps_scheduling *s, ps_chunk_id id, ps_tier tier, bool *went)
{
    const ps_tier to = ps_other_ram(tier);
    const int64_t bytes = s->r->chunks[id].bytes;
    *went = false;
    if (!ps_movement_can_move(s->m, id, to)) return PS_OK;
    if (to == PS_TIER_HOST && ps_residency_free_bytes(s->r, to) < bytes) PS_TRY(ps_scheduling_drop_spare_host(s, id));
    if ((to == PS_TIER_HOST ? ps_residency_free_bytes(s->r, to) : lasting_free_bytes(s)) < bytes) return PS_OK;
    ps_movement_move(s->m, id, to, PS_REASON_WRITE_BACK);
    s->n_written_back++;
    *went = true;
    return PS_OK;
}

/* As many as needed and possible. That costs nothing: no other chunk has to leave for it. */
static ps_status displace_some(ps_scheduling *s, ps_tier tier, int64_t bytes)
{
    bool went = true;
    while (went && s->r->is_unified_memory && ps_residency_free_bytes(s->r, tier) < bytes) {
        const ps_chunk_id id = ps_scheduling_pick_victim(s, tier);
        if (id < 0) break;
        PS_TRY(displace(s, id, tier, &went));
    }
    return PS_OK;
}

/* Conditions on victims, and the reason. */
typedef struct leave {
    int32_t distance; /* only chunks whose next use is later than so many moments from now; -1: any */
    bool keeps_clean; /* clean ones stay, as they can go at any time */
    ps_reason why;
} leave;

/* A load for the next step can wait: until the end of the step the victims are chunks that are not needed again, which
 * are written once. A chunk evicted to disk now would be written and read once more. */
static bool is_spared(const ps_scheduling *s, ps_chunk_id id, ps_tier from, const leave *how)
{
    const chunk *c = &s->r->chunks[id];
    if (!s->options.spares_writes || how->distance < 0 || how->why != PS_REASON_EVICT) return false;
    if (s->r->disk == NULL || is_clean_on(c, from) || is_leaving(c, from)) return false;
    if (from == PS_TIER_DEVICE && ps_residency_free_bytes(s->r, PS_TIER_HOST) >= c->bytes) return false;
    return s->now + how->distance >= ps_schedule_trace(s->schedule)->n_moments;
}

/* Evict victims, or begin to, until there is enough free or coming room. */
static ps_status begin_leaving(ps_scheduling *s, ps_room *room, const leave *how)
{
    const ps_tier tier = room->tier;
    while (ps_residency_free_bytes(s->r, tier) + room->coming_bytes < room->bytes) {
        ps_tier from;
        const ps_chunk_id id = ps_scheduling_pick_victim_for(s, tier, &from);
        if (id < 0) break;
        const chunk *c = &s->r->chunks[id];
        const bool too_near = how->distance >= 0 && ps_scheduling_next_use(s, id, from) <= how->distance;
        if (too_near && !is_leaving(c, from)) break; /* all others are nearer */
        if (is_spared(s, id, from, how)) break;
        bool comes = true;
        if (!is_clean_on(c, from) && !s->m->flights[id].active && !too_near)
            PS_TRY(ps_scheduling_write_back(s, id, from, tier, &comes));
        const bool is_here = has_payload(c, from); /* otherwise it was a zero-copy move */
        if (is_here && is_clean_on(c, from) && !s->m->flights[id].active && !too_near && !how->keeps_clean) {
            PS_TRY(ps_scheduling_drop(s, id, from, how->why));
            PS_TRY(displace_some(s, tier, room->bytes));
            continue;
        }
        ps_scheduling_pass_over(s, id);
        if (is_here && comes && !too_near) room->coming_bytes += c->bytes;
    }
    room->is_there = ps_residency_free_bytes(s->r, tier) >= room->bytes;
    return PS_OK;
}

/* The leaving chunk of the tier whose copy elsewhere ends first; -1: none is in flight. */
static ps_chunk_id first_to_leave(const ps_scheduling *s, ps_tier tier)
{
    ps_chunk_id first = -1;
    for (int32_t i = 0; i < s->m->n_flying; i++) {
        const ps_chunk_id id = s->m->flying[i];
        const flight *f = &s->m->flights[id];
        if (!s->standings[id].is_passed || f->dst == tier) continue;
        if (s->r->is_unified_memory ? f->dst != PS_TIER_DISK : s->r->chunks[id].payload[tier] == NULL) continue;
        if (first < 0 || f->done_ns < s->m->flights[first].done_ns) first = id;
    }
    return first;
}

static ps_status make_room(ps_scheduling *s, ps_tier tier, int64_t bytes, ps_reason why)
{
    const leave how = {.distance = -1, .why = why};
    if (s->r->ram[tier] == NULL) return PS_FAIL(PS_EBUDGET, "%s: the tier does not exist", ps_tier_name(tier));
    for (;;) {
        ps_room room = {.tier = tier, .bytes = bytes};
        ps_scheduling_clear_passed(s);
        PS_TRY(displace_some(s, tier, bytes));
        if (ps_residency_free_bytes(s->r, tier) >= bytes) return PS_OK;
        if (tier == PS_TIER_DEVICE) (void)shrink_non_model(s, s->options.prefetch);
        PS_TRY(begin_leaving(s, &room, &how));
        if (room.is_there) return PS_OK;
        const ps_chunk_id leaving = first_to_leave(s, tier);
        if (leaving >= 0) {
            PS_TRY(ps_movement_retire(s->m, leaving));
            continue;
        }
        const bool has_shrunk = shrink_non_model(s, 0);
        if (ps_residency_free_bytes(s->r, tier) >= bytes) return PS_OK;
        /* a chunk without room elsewhere may find room on the device now */
        if (has_shrunk && tier == PS_TIER_HOST) continue;
        /* a chunk fetched too early may leave again once it has arrived; a copy further down makes room there */
        const ps_chunk_id arriving = first_flight(s, tier);
        if (arriving >= 0)
            PS_TRY(ps_movement_retire(s->m, arriving));
        else if (ps_device_free_bytes(s->r->ram[tier]) >= bytes)
            return PS_OK; /* the chunk limit is soft, the budget is hard; a run permits what its trial did */
        else if (s->shares_slots && !s->is_short_of_slots)
            s->is_short_of_slots = true;
        else
            return no_room(s, tier, bytes);
    }
}

ps_status ps_scheduling_make_room(ps_scheduling *s, ps_tier tier, int64_t bytes, ps_reason why)
{
    const ps_status st = make_room(s, tier, bytes, why);
    s->is_short_of_slots = false;
    return st;
}

ps_status ps_scheduling_try_room(ps_scheduling *s, ps_room *room, int32_t distance, ps_reason why)
{
    ps_scheduling_clear_passed(s);
    PS_TRY(displace_some(s, room->tier, room->bytes));
    room->coming_bytes = 0;
    room->is_there = ps_residency_free_bytes(s->r, room->tier) >= room->bytes;
    if (room->is_there) return PS_OK;
    if (room->tier == PS_TIER_DEVICE) (void)shrink_non_model(s, distance);
    return begin_leaving(s, room, &(leave){.distance = distance, .why = why});
}

ps_status ps_scheduling_prepare_room(ps_scheduling *s, ps_room *room, int32_t distance)
{
    return begin_leaving(s, room, &(leave){.distance = distance, .keeps_clean = true, .why = PS_REASON_EVICT});
}

ps_status ps_scheduling_commit_non_model(ps_scheduling *s)
{
    const int64_t more = s->needed_bytes - s->r->use[PS_TIER_DEVICE].non_model_bytes;
    if (more <= 0) return PS_OK; /* an excess stays until room is needed */
    PS_TRY(ps_scheduling_make_room(s, PS_TIER_DEVICE, more, PS_REASON_ACTIVATIONS));
    return ps_residency_commit_non_model(s->r, s->needed_bytes);
}

/* ---- swaps ---- */

/* Payloads that leave a tier in a swap. */
#define SWAP_MAX 8

/* The chunks that would leave `to` to make room for this one: as many as needed, if they fit into the room it
 * leaves. */
static int find_partners(ps_scheduling *s, ps_chunk_id for_id, ps_tier to, ps_chunk_id partners[SWAP_MAX])
{
    const int64_t bytes = s->r->chunks[for_id].bytes;
    int64_t missing = bytes - ps_residency_free_bytes(s->r, to);
    int64_t room = ps_residency_free_bytes(s->r, ps_other_ram(to)) + bytes;
    int n = 0;
    ps_scheduling_clear_passed(s);
    while (missing > 0) {
        const ps_chunk_id id = n < SWAP_MAX ? ps_scheduling_pick_victim(s, to) : -1;
        if (id < 0) return -1;
        ps_scheduling_pass_over(s, id);
        if (s->r->chunks[id].bytes > room) continue;
        partners[n++] = id;
        missing -= s->r->chunks[id].bytes;
        room -= s->r->chunks[id].bytes;
    }
    return n;
}

ps_status ps_scheduling_bring(ps_scheduling *s, ps_chunk_id id, ps_tier tier, ps_reason why)
{
    ps_chunk_id partners[SWAP_MAX];
    const int n = ps_movement_can_move(s->m, id, tier) ? find_partners(s, id, tier, partners) : -1;
    if (n >= 0) {
        ps_movement_swap(s->m, id, tier, partners, n, why);
        return PS_OK;
    }
    PS_TRY(ps_scheduling_make_room(s, tier, s->r->chunks[id].bytes, PS_REASON_EVICT));
    return ps_movement_load(s->m, id, tier, why);
}
