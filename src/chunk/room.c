/* room.c - room on a full tier. */
#include "chunk/store_impl.h"

int64_t ps_store_non_model_ahead(const ps_store *s, int32_t n_ahead)
{
    const ps_max_tree *told = s->told_bytes.nodes != NULL ? &s->told_bytes : NULL;
    return ps_round_up(ps_schedule_non_model_ahead(s->schedule, told, s->now, n_ahead), s->page_bytes);
}

/* Give back non-model memory beyond what the moments now .. now + n_ahead need; of a store at rest the present one
 * needs none. True when there was any. */
static bool shrink_non_model(ps_store *s, int32_t n_ahead)
{
    int64_t keep = s->non_model_needed_bytes;
    const bool knows_need = s->schedule != NULL && s->now >= 0 && !(s->is_resting && n_ahead == 0);
    if (knows_need) keep = ps_max_i64(keep, ps_store_non_model_ahead(s, n_ahead));
    const int64_t have = s->non_model_committed_bytes;
    if (keep >= have) return false;
    ps_store_release_non_model(s, keep, have - keep);
    s->non_model_committed_bytes = keep;
    ps_store_record_memory(s, PS_TIER_DEVICE);
    return true;
}

static ps_status drop(ps_store *s, ps_chunk_id id, ps_tier tier, ps_reason why)
{
    PS_ASSERT(is_clean_on(&s->chunks[id], tier));
    PS_TRY(ps_store_land(s, id));
    ps_store_take_payload(s, id, tier, why);
    s->stats.n_dropped++;
    return PS_OK;
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

/* Nothing more can leave. */
static ps_status no_room(const ps_store *s, ps_tier tier, int64_t bytes)
{
    const ps_device_stats d = ps_device_get_stats(s->d.ram[tier]);
    return PS_FAIL(PS_EBUDGET,
                   "%s: no room for %lld bytes: %lld of the budget of %lld bytes are in use and cannot leave",
                   ps_tier_name(tier), (long long)bytes, (long long)d.used_bytes, (long long)d.budget_bytes);
}

/* What the device has free and activations of the coming moments will not take. */
static int64_t lasting_free_bytes(const ps_store *s)
{
    const int64_t free_bytes = ps_store_free_bytes(s, PS_TIER_DEVICE);
    if (s->schedule == NULL || !has_non_model(s) || s->now < 0) return free_bytes;
    const int64_t ahead = ps_store_non_model_ahead(s, PS_ACTIVATION_LOOK_AHEAD * s->d.prefetch);
    return free_bytes - ps_max_i64(0, ahead - s->non_model_committed_bytes);
}

/* Where device and host are one memory, who leaves one of them goes to the other as long as that has room, clean or
 * not. */
static ps_status hand_aside(ps_store *s, ps_chunk_id id, ps_tier tier, bool *went)
{
    const ps_tier to = tier == PS_TIER_DEVICE ? PS_TIER_HOST : PS_TIER_DEVICE;
    const int64_t bytes = s->chunks[id].bytes;
    *went = false;
    if (!ps_store_can_hand_over(s, id, to)) return PS_OK;
    if (to == PS_TIER_HOST && ps_store_free_bytes(s, to) < bytes) PS_TRY(ps_store_drop_spare_host(s, id));
    if ((to == PS_TIER_HOST ? ps_store_free_bytes(s, to) : lasting_free_bytes(s)) < bytes) return PS_OK;
    ps_store_hand_over(s, id, to, PS_REASON_WRITE_BACK);
    s->stats.n_written_back++;
    *went = true;
    return PS_OK;
}

/* As many as it takes, and as can. That costs nothing: nothing else shall leave for it. */
static ps_status hand_some_aside(ps_store *s, ps_tier tier, int64_t bytes)
{
    bool went = true;
    while (went && s->d.hands_over && ps_store_free_bytes(s, tier) < bytes) {
        const ps_chunk_id id = ps_store_pick_victim(s, tier);
        if (id < 0) break;
        PS_TRY(hand_aside(s, id, tier, &went));
    }
    return PS_OK;
}

/* Who leaves for whom. */
typedef struct leave {
    int32_t distance; /* only chunks that are used later than so many moments from now; -1: any */
    bool keeps_clean; /* clean ones stay, as they can go at any time */
    ps_reason why;
} leave;

/* A load for the next step could wait: till then others leave for good, and are written once. What would leave for the
 * disk now would be written and read once more. */
static bool is_spared(const ps_store *s, ps_chunk_id id, ps_tier from, const leave *how)
{
    const chunk *c = &s->chunks[id];
    if (!s->d.spares_writes || how->distance < 0 || how->why != PS_REASON_EVICT) return false;
    if (s->d.disk == NULL || is_clean_on(c, from) || is_leaving(c, from)) return false;
    if (from == PS_TIER_DEVICE && ps_store_free_bytes(s, PS_TIER_HOST) >= c->bytes) return false;
    return s->now + how->distance >= ps_schedule_trace(s->schedule)->n_moments;
}

/* Victims leave, or begin to, until the room is there or coming. */
static ps_status begin_leaving(ps_store *s, ps_room *room, const leave *how)
{
    const ps_tier tier = room->tier;
    while (ps_store_free_bytes(s, tier) + room->coming_bytes < room->bytes) {
        ps_tier from;
        const ps_chunk_id id = ps_store_pick_victim_for(s, tier, &from);
        if (id < 0) break;
        chunk *c = &s->chunks[id];
        const bool too_near = how->distance >= 0 && ps_store_next_use(s, id, from) <= how->distance;
        if (too_near && !is_leaving(c, from)) break; /* all others are nearer */
        if (is_spared(s, id, from, how)) break;
        bool comes = true;
        if (!is_clean_on(c, from) && !c->flight.active && !too_near)
            PS_TRY(ps_store_start_write_back(s, id, from, tier, &comes));
        const bool is_here = has_payload(c, from); /* else it was handed over */
        if (is_here && is_clean_on(c, from) && !c->flight.active && !too_near && !how->keeps_clean) {
            PS_TRY(drop(s, id, from, how->why));
            PS_TRY(hand_some_aside(s, tier, room->bytes));
            continue;
        }
        ps_store_pass_over(s, id);
        if (is_here && comes && !too_near) room->coming_bytes += c->bytes;
    }
    room->is_there = ps_store_free_bytes(s, tier) >= room->bytes;
    return PS_OK;
}

/* Of the chunks that are about to leave the tier, the one whose copy elsewhere is there first; -1: none is under way.
 */
static ps_chunk_id first_to_leave(const ps_store *s, ps_tier tier)
{
    ps_chunk_id first = -1;
    for (int32_t i = 0; i < s->n_flying; i++) {
        const chunk *c = &s->chunks[s->flying[i]];
        if (!c->is_passed || c->flight.dst == tier) continue;
        if (s->d.hands_over ? c->flight.dst != PS_TIER_DISK : c->payload[tier] == NULL) continue;
        if (first < 0 || c->flight.done_ns < s->chunks[first].flight.done_ns) first = s->flying[i];
    }
    return first;
}

static ps_status make_room(ps_store *s, ps_tier tier, int64_t bytes, ps_reason why)
{
    const leave how = {.distance = -1, .why = why};
    if (s->d.ram[tier] == NULL) return PS_FAIL(PS_EBUDGET, "%s: the tier does not exist", ps_tier_name(tier));
    for (;;) {
        ps_room room = {.tier = tier, .bytes = bytes};
        ps_store_clear_passed(s);
        PS_TRY(hand_some_aside(s, tier, bytes));
        if (ps_store_free_bytes(s, tier) >= bytes) return PS_OK;
        if (tier == PS_TIER_DEVICE) (void)shrink_non_model(s, s->d.prefetch);
        PS_TRY(begin_leaving(s, &room, &how));
        if (room.is_there) return PS_OK;
        const ps_chunk_id leaving = first_to_leave(s, tier);
        if (leaving >= 0) {
            PS_TRY(ps_store_retire(s, leaving));
            continue;
        }
        const bool has_shrunk = shrink_non_model(s, 0);
        if (ps_store_free_bytes(s, tier) >= bytes) return PS_OK;
        /* who found no room elsewhere may find it on the device now */
        if (has_shrunk && tier == PS_TIER_HOST) continue;
        /* what was fetched too early may leave again once it has arrived; a copy further down makes room there */
        const ps_chunk_id arriving = first_flight(s, tier);
        if (arriving >= 0)
            PS_TRY(ps_store_retire(s, arriving));
        else if (ps_device_free_bytes(s->d.ram[tier]) >= bytes)
            return PS_OK; /* the chunk limit is soft, the budget is hard; a run grants what its trial did */
        else if (s->d.shares_slots && !s->is_short_of_slots)
            s->is_short_of_slots = true;
        else
            return no_room(s, tier, bytes);
    }
}

ps_status ps_store_make_room(ps_store *s, ps_tier tier, int64_t bytes, ps_reason why)
{
    const ps_status st = make_room(s, tier, bytes, why);
    s->is_short_of_slots = false;
    return st;
}

ps_status ps_store_try_room(ps_store *s, ps_room *room, int32_t distance, ps_reason why)
{
    ps_store_clear_passed(s);
    PS_TRY(hand_some_aside(s, room->tier, room->bytes));
    room->coming_bytes = 0;
    room->is_there = ps_store_free_bytes(s, room->tier) >= room->bytes;
    if (room->is_there) return PS_OK;
    if (room->tier == PS_TIER_DEVICE) (void)shrink_non_model(s, distance);
    return begin_leaving(s, room, &(leave){.distance = distance, .why = why});
}

ps_status ps_store_prepare_room(ps_store *s, ps_room *room, int32_t distance)
{
    return begin_leaving(s, room, &(leave){.distance = distance, .keeps_clean = true, .why = PS_REASON_EVICT});
}
