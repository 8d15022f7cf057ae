/* write_back.c - eviction of a chunk: the destination of its content, and what is dropped there without a copy. */
#include "chunk/scheduling.h"

/* ---- taking slots of other chunks ---- */

/* The chunk whose slot is the best to take, or -1: one whose content in the slot is stale, else one whose content is in
 * RAM too; among these the smallest slot that is large enough. */
static ps_chunk_id find_spare_slot(const ps_scheduling *s, bool of_standalone, int64_t bytes)
{
    ps_chunk_id best = -1;
    bool best_stale = false;
    for (ps_chunk_id id = 0; id < s->r->n_ids; id++) {
        const chunk *c = &s->r->chunks[id];
        const bool stale = !is_current(c, PS_TIER_DISK);
        if (c->slot_bytes < bytes || s->m->flights[id].active || c->current == TIER_BIT(PS_TIER_DISK)) continue;
        if (ps_residency_is_standalone(s->r, id) != of_standalone) continue;
        if (best >= 0 && (best_stale != stale ? best_stale : s->r->chunks[best].slot_bytes <= c->slot_bytes)) continue;
        best = id;
        best_stale = stale;
    }
    return best;
}

static ps_status empty_slot(ps_scheduling *s, ps_chunk_id id)
{
    PS_TRY(ps_movement_land(s->m, id));
    ps_residency_forget_disk_content(s->r, id, PS_REASON_DROP);
    s->quiet_until = 0;
    return PS_OK;
}

/* Frees slots of standalone chunks, until there is room for this one. */
static ps_status take_room_of_standalone(ps_scheduling *s, ps_chunk_id id)
{
    while (!ps_residency_has_slot_room(s->r, id)) {
        const ps_chunk_id spare = find_spare_slot(s, true, 1);
        if (spare < 0) return PS_OK;
        PS_TRY(empty_slot(s, spare));
        ps_residency_free_slot(s->r, spare);
    }
    return PS_OK;
}

/* Takes a slot of a list's chunk, where there are no homes. */
static ps_status take_slot_of_list(ps_scheduling *s, ps_chunk_id id)
{
    const ps_chunk_id spare = find_spare_slot(s, false, s->r->chunks[id].bytes);
    if (spare < 0) return PS_OK;
    PS_TRY(empty_slot(s, spare));
    ps_residency_pass_slot(s->r, spare, id);
    return PS_OK;
}

/* Give the chunk a slot of the file if it has none and one is free: not without a disk, or when its budget is used
 * up. */
static ps_status take_slot(ps_scheduling *s, ps_chunk_id id)
{
    ps_residency *r = s->r;
    if (r->disk == NULL || r->chunks[id].disk_offset != NO_SLOT) return PS_OK;
    if (!ps_residency_has_slot_room(r, id) && s->is_short_of_slots) {
        PS_TRY(take_room_of_standalone(s, id));
        if (!ps_residency_has_slot_room(r, id) && !ps_residency_is_standalone(r, id)) return take_slot_of_list(s, id);
    }
    if (ps_residency_has_slot_room(r, id)) ps_residency_take_slot(r, id);
    return PS_OK;
}

/* ---- eviction ---- */

ps_status ps_scheduling_drop(ps_scheduling *s, ps_chunk_id id, ps_tier tier, ps_reason why)
{
    PS_ASSERT(is_clean_on(&s->r->chunks[id], tier));
    PS_TRY(ps_movement_land(s->m, id));
    ps_residency_free(s->r, id, tier, why);
    s->n_dropped++;
    return PS_OK;
}

ps_status ps_scheduling_drop_spare_host(ps_scheduling *s, ps_chunk_id for_id)
{
    const int64_t need = s->r->chunks[for_id].bytes;
    for (int kind = PS_SPARE_DUPLICATE; kind <= PS_SPARE_USED_LATER; kind++)
        for (ps_chunk_id id = 0; ps_residency_free_bytes(s->r, PS_TIER_HOST) < need; id++) {
            id = ps_scheduling_next_spare(s, id, (ps_spare_kind)kind, for_id);
            if (id < 0) break;
            const ps_reason why = kind == PS_SPARE_DUPLICATE ? PS_REASON_DROP : PS_REASON_EVICT;
            PS_TRY(ps_scheduling_drop(s, id, PS_TIER_HOST, why));
        }
    return PS_OK;
}

static void note_leaving(ps_scheduling *s, ps_chunk_id id, ps_tier from)
{
    chunk *c = &s->r->chunks[id];
    if (has_payload(c, from)) c->leaving |= TIER_BIT(from); /* not a zero-copy move */
    ps_residency_note(s->r, id, PS_CHANGED_USE);
    s->n_written_back++;
}

ps_status ps_scheduling_write_back(ps_scheduling *s, ps_chunk_id id, ps_tier from, ps_tier room_on, bool *started)
{
    *started = false;
    const chunk *c = &s->r->chunks[id];
    if (from == PS_TIER_DEVICE && room_on != PS_TIER_HOST) {
        if (ps_residency_free_bytes(s->r, PS_TIER_HOST) < c->bytes) PS_TRY(ps_scheduling_drop_spare_host(s, id));
        if (ps_residency_free_bytes(s->r, PS_TIER_HOST) >= c->bytes) {
            const ps_status st = ps_movement_load(s->m, id, PS_TIER_HOST, PS_REASON_WRITE_BACK);
            *started = st == PS_OK;
            if (*started) note_leaving(s, id, from);
            return st;
        }
    }
    PS_TRY(take_slot(s, id));
    if (c->disk_offset != NO_SLOT) {
        PS_TRY(ps_movement_start(s->m, id, from, PS_TIER_DISK, PS_REASON_WRITE_BACK));
        *started = true;
    } else if (from == PS_TIER_HOST && room_on != PS_TIER_DEVICE &&
               ps_residency_free_bytes(s->r, PS_TIER_DEVICE) >= c->bytes) {
        PS_TRY(ps_movement_load(s->m, id, PS_TIER_DEVICE, PS_REASON_WRITE_BACK)); /* no disk: to the device, where there
                                                                                   * is room */
        *started = true;
    }
    if (*started) note_leaving(s, id, from);
    return PS_OK;
}

ps_status ps_scheduling_write_to_disk(ps_scheduling *s, ps_chunk_id id)
{
    const chunk *c = &s->r->chunks[id];
    if (c->current == 0 || is_current(c, PS_TIER_DISK) || s->m->flights[id].active) return PS_OK;
    PS_TRY(take_slot(s, id));
    if (c->disk_offset == NO_SLOT) return PS_OK;
    return ps_movement_start(s->m, id, is_current(c, PS_TIER_HOST) ? PS_TIER_HOST : PS_TIER_DEVICE, PS_TIER_DISK,
                             PS_REASON_WRITE_BACK);
}
