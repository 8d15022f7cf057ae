/* kept.c - content that the disk keeps over a change of its chunk, until it is known which of both counts.
 *
 *               slot     kept slot   RAM
 *     keep      old      -           old, or none     written now, if the disk did not have it
 *     change    -        old         new
 *     leaves    new      old         none, or new     the write-back took the chunk's other place
 *
 *     forget    new, -   -           new, or none
 *     restore   old      -           none */
#include "chunk/store_impl.h"

bool ps_store_can_keep(const ps_store *s, ps_chunk_id id)
{
    const chunk *c = &s->r.chunks[id];
    return c->current != 0 && !c->keeps && ps_residency_has_room_to_keep(&s->r, id);
}

ps_status ps_store_write_ahead(ps_store *s, ps_chunk_id id)
{
    PS_ASSERT(s->r.chunks[id].pins == 0);
    const ps_status st = ps_scheduling_write_to_disk(&s->s, id);
    STORE_CHECK(s);
    return st;
}

/* A transfer in flight may be the one that writes it. */
static ps_status write_now(ps_store *s, ps_chunk_id id)
{
    PS_TRY(ps_movement_retire(&s->m, id));
    if (is_current(&s->r.chunks[id], PS_TIER_DISK)) return PS_OK;
    PS_TRY(ps_scheduling_write_to_disk(&s->s, id));
    return ps_movement_retire(&s->m, id);
}

ps_status ps_store_keep(ps_store *s, ps_chunk_id id)
{
    PS_ASSERT(s->r.chunks[id].pins == 0 && ps_store_can_keep(s, id));
    PS_TRY(ps_movement_land(&s->m, id)); /* the timeline has a write-back done that is not */
    if (!is_current(&s->r.chunks[id], PS_TIER_DISK)) PS_TRY(write_now(s, id));
    ps_residency_keep(&s->r, id);
    STORE_CHECK(s);
    return PS_OK;
}

void ps_store_forget_kept(ps_store *s, ps_chunk_id id)
{
    ps_residency_free_kept(&s->r, id);
    STORE_CHECK(s);
}

void ps_store_restore_kept(ps_store *s, ps_chunk_id id)
{
    ps_residency *r = &s->r;
    PS_ASSERT(r->chunks[id].pins == 0 && r->chunks[id].keeps);
    if (r->chunks[id].kept_offset == NO_SLOT) { /* it has not changed */
        ps_residency_free_kept(r, id);
        return;
    }
    (void)ps_movement_retire(&s->m, id); /* a failed copy of discarded content does not matter */
    (void)ps_movement_land(&s->m, id);
    ps_residency_free_all(r, id);
    ps_residency_forget_disk_content(r, id, PS_REASON_DISCARD);
    ps_residency_restore_slot(r, id);
    ps_residency_set_current(r, id, PS_TIER_DISK);
    ps_residency_record(r, id, PS_TIER_DISK, PS_PROFILE_ARRIVE, PS_REASON_RESTORE);
    s->s.quiet_until = 0;
    STORE_CHECK(s);
}
