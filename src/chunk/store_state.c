/* store_state.c - states of tensors and chunks, and the invariants of the store. */
#include <string.h>

#include "chunk/store_impl.h"

const char *ps_state_name(ps_state st)
{
    static const char *const names[PS_STATE_COUNT] = {[PS_STATE_FREE] = "FREE",
                                                      [PS_STATE_COMPUTE] = "COMPUTE",
                                                      [PS_STATE_HOLD] = "HOLD",
                                                      [PS_STATE_HOLD_AFTER_FWD] = "HOLD_AFTER_FWD",
                                                      [PS_STATE_HOLD_AFTER_BWD] = "HOLD_AFTER_BWD",
                                                      [PS_STATE_RELEASED] = "RELEASED"};
    return st < PS_STATE_COUNT ? names[st] : "?";
}

ps_status ps_store_tensor_begin(ps_store *s, int32_t tensor)
{
    if (s->tensor_uses[tensor]++ == 0) s->tensor_state[tensor] = PS_STATE_COMPUTE;
    return PS_OK;
}

ps_status ps_store_tensor_end(ps_store *s, int32_t tensor, ps_state state)
{
    if (s->tensor_state[tensor] != PS_STATE_COMPUTE || state == PS_STATE_COMPUTE || state == PS_STATE_RELEASED)
        return PS_FAIL(PS_ESTATE, "tensor %d cannot go from %s to %s", tensor, ps_state_name(s->tensor_state[tensor]),
                       ps_state_name(state));
    if (--s->tensor_uses[tensor] == 0) s->tensor_state[tensor] = state;
    return PS_OK;
}

ps_state ps_store_tensor_state(const ps_store *s, int32_t tensor)
{
    return s->tensor_state[tensor];
}

unsigned ps_store_chunk_copies(const ps_store *s, ps_chunk_id id)
{
    return s->chunks[id].current;
}

ps_state ps_store_chunk_state(const ps_store *s, ps_chunk_id id)
{
    const chunk *c = &s->chunks[id];
    if (c->pins > 0) return PS_STATE_COMPUTE;
    if (c->current == 0) return PS_STATE_RELEASED;
    if (ps_store_list_of(s, id) != 0) return PS_STATE_HOLD;
    /* a chunk of list 0: its least advanced tensor decides */
    unsigned seen = 0;
    const int32_t index = id % s->layout->n_chunks;
    for (int32_t t = 0; t < s->layout->n_tensors; t++) {
        const ps_place *p = &s->layout->places[t];
        if (index >= p->chunk && index < p->chunk + p->n_chunks) seen |= 1u << s->tensor_state[t];
    }
    static const ps_state order[] = {PS_STATE_COMPUTE, PS_STATE_HOLD, PS_STATE_HOLD_AFTER_FWD, PS_STATE_HOLD_AFTER_BWD};
    for (size_t i = 0; i < PS_ARRAY_LEN(order); i++)
        if (seen & 1u << order[i]) return order[i];
    return PS_STATE_FREE;
}

/* FNV-1a over 64-bit words (Fowler, Noll, Vo). */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    for (int byte = 0; byte < 8; byte++) hash = (hash ^ (word >> (8 * byte) & 0xff)) * 0x100000001b3u;
    return hash;
}

uint64_t ps_store_residency(const ps_store *s)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (ps_chunk_id id = 0; id < s->n_ids; id++) {
        const chunk *c = &s->chunks[id];
        hash = mix(hash, c->current);
        hash = mix(hash, c->leaving);
        hash = mix(hash, (uint64_t)(c->disk_offset != NO_SLOT));
        if (!c->flight.active) continue;
        hash = mix(hash, (uint64_t)c->flight.dst + 1);
        hash = mix(hash, (uint64_t)ps_max_i64(0, c->flight.done_ns - s->time.now_ns));
    }
    for (int l = 0; l < PS_LINK_COUNT; l++)
        hash = mix(hash, (uint64_t)ps_max_i64(0, s->time.free_ns[l] - s->time.now_ns));
    return mix(hash, (uint64_t)s->non_model_committed_bytes);
}

ps_status ps_store_take_residency(ps_store *s, const ps_store *from)
{
    PS_ASSERT(s->n_ids == from->n_ids && from->n_flying == 0 && from->n_overdue == 0 &&
              from->non_model_committed_bytes == 0);
    for (ps_chunk_id id = 0; id < s->n_ids; id++) {
        const chunk *c = &from->chunks[id];
        PS_ASSERT(c->bytes == s->chunks[id].bytes && c->pins == 0);
        for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
            if (c->payload[t] != NULL) PS_TRY(ps_store_give_payload(s, id, (ps_tier)t, PS_REASON_START));
        s->chunks[id].current = c->current;
        s->chunks[id].leaving = c->leaving;
        s->chunks[id].disk_offset = c->disk_offset;
        s->chunks[id].slot_bytes = c->slot_bytes;
        s->chunks[id].last_use_tick = c->last_use_tick;
        ps_store_note_ready(s, id);
    }
    s->tick = from->tick;
    s->disk_used_bytes = from->disk_used_bytes;
    s->disk_peak_bytes = from->disk_peak_bytes;
    s->has_homes = from->has_homes;
    s->apart_used_bytes = from->apart_used_bytes;
    memcpy(s->tensor_state, from->tensor_state, (size_t)s->layout->n_tensors * sizeof *s->tensor_state);
    return PS_OK;
}

static ps_status check_chunk(const ps_store *s, ps_chunk_id id, int32_t *n_flights)
{
    const chunk *c = &s->chunks[id];
    if (c->pins < 0) return PS_FAIL(PS_ESTATE, "chunk id %d: %d pins", id, c->pins);
    if (c->pins > 0 && (!has_payload(c, c->pin_tier) && !c->flight.active))
        return PS_FAIL(PS_ESTATE, "chunk id %d: pinned on %s without a payload there", id, ps_tier_name(c->pin_tier));
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        const bool filling = c->flight.active && (int)c->flight.dst == t;
        if (c->payload[t] != NULL && !is_current(c, (ps_tier)t) && !filling)
            return PS_FAIL(PS_ESTATE, "chunk id %d: stale payload on %s", id, ps_tier_name((ps_tier)t));
        if (c->payload[t] == NULL && is_current(c, (ps_tier)t))
            return PS_FAIL(PS_ESTATE, "chunk id %d: current on %s without a payload", id, ps_tier_name((ps_tier)t));
    }
    if (s->d.hands_over && c->payload[PS_TIER_DEVICE] != NULL && c->payload[PS_TIER_HOST] != NULL)
        return PS_FAIL(PS_ESTATE, "chunk id %d: two payloads in one memory", id);
    if (is_current(c, PS_TIER_DISK) && c->disk_offset == NO_SLOT)
        return PS_FAIL(PS_ESTATE, "chunk id %d: current on disk without a slot", id);
    if (c->disk_offset == NO_SLOT ? c->slot_bytes != 0 : c->slot_bytes < c->bytes)
        return PS_FAIL(PS_ESTATE, "chunk id %d: a slot of %lld bytes", id, (long long)c->slot_bytes);
    for (int t = 0; t < PS_RAM_TIER_COUNT && s->unready != NULL; t++)
        if (c->is_unready[t] != ps_store_is_unready(s, c, (ps_tier)t))
            return PS_FAIL(PS_ESTATE, "chunk id %d: its accesses on %s are marked wrongly", id,
                           ps_tier_name((ps_tier)t));
    PS_TRY(ps_store_check_standing(s, id));
    if (c->overdue.active && (c->flight.active || !is_current(c, c->overdue.dst)))
        return PS_FAIL(PS_ESTATE, "chunk id %d: overdue on %s, and not there", id, ps_tier_name(c->overdue.dst));
    if (c->overdue.active && !is_clean_on(c, c->overdue.dst)) /* should it fail, the content is lost */
        return PS_FAIL(PS_ESTATE, "chunk id %d: overdue on %s, and nowhere else", id, ps_tier_name(c->overdue.dst));
    if (c->flight.active) {
        (*n_flights)++;
        if (!is_current(c, c->flight.src) || is_current(c, c->flight.dst))
            return PS_FAIL(PS_ESTATE, "chunk id %d: transfer %s -> %s with wrong ends", id, ps_tier_name(c->flight.src),
                           ps_tier_name(c->flight.dst));
    }
    return PS_OK;
}

ps_status ps_store_check(const ps_store *s)
{
    int64_t bytes[PS_RAM_TIER_COUNT];
    int32_t n_flights = 0, n_overdue = 0;
    int64_t slot_bytes = 0, apart_slot_bytes = 0;
    memcpy(bytes, s->other_bytes, sizeof bytes);
    for (ps_chunk_id id = 0; id < s->n_ids; id++) {
        PS_TRY(check_chunk(s, id, &n_flights));
        n_overdue += s->chunks[id].overdue.active;
        slot_bytes += s->chunks[id].slot_bytes;
        if (ps_store_is_apart(s, id)) apart_slot_bytes += s->chunks[id].slot_bytes;
        for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
            if (s->chunks[id].payload[t] != NULL) bytes[t] += s->chunks[id].bytes;
    }
    if (n_overdue != s->n_overdue)
        return PS_FAIL(PS_ESTATE, "%d transfers overdue, %d counted", n_overdue, s->n_overdue);
    if (n_flights != s->n_flying)
        return PS_FAIL(PS_ESTATE, "%d transfers under way, %d on the list", n_flights, s->n_flying);
    bytes[PS_TIER_DEVICE] += s->non_model_committed_bytes;
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        if (s->d.ram[t] == NULL) continue;
        const ps_device_stats d = ps_device_get_stats(s->d.ram[t]);
        if (d.used_bytes != bytes[t] || d.used_bytes + d.kept_bytes > d.budget_bytes)
            return PS_FAIL(PS_ESTATE, "%s: %lld bytes of payloads, device says %lld used + %lld kept of %lld",
                           ps_tier_name((ps_tier)t), (long long)bytes[t], (long long)d.used_bytes,
                           (long long)d.kept_bytes, (long long)d.budget_bytes);
    }
    if (slot_bytes != s->disk_used_bytes)
        return PS_FAIL(PS_ESTATE, "disk: %lld bytes of slots, %lld used", (long long)slot_bytes,
                       (long long)s->disk_used_bytes);
    if (apart_slot_bytes != s->apart_used_bytes)
        return PS_FAIL(PS_ESTATE, "disk: %lld bytes of slots of chunks apart, %lld used", (long long)apart_slot_bytes,
                       (long long)s->apart_used_bytes);
    if (s->disk_used_bytes > s->d.disk_budget_bytes)
        return PS_FAIL(PS_ESTATE, "disk: %lld bytes used of %lld", (long long)s->disk_used_bytes,
                       (long long)s->d.disk_budget_bytes);
    return PS_OK;
}
