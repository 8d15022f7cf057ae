/* slot.c - where in the disk's file a chunk's content lies.
 *
 *     budget for all   | 0 1 2 ... of list 0 | lists 1 2 3 of chunk 0 | lists 1 2 3 of chunk 1 | ... | those apart |
 *     for less         | lists, in the order in which they first leave RAM ...          budget | those apart |
 *
 * Where the budget holds all chunks each has a home. Those of list 0 are used in turn; what an update reads and writes
 * together lies together, so that small ones go as one request. A home counts from when it is first written: till
 * then there is a hole in the file. Chunks apart have homes in any case, in a part of the file of their own: they can
 * change their size, and give up their slots, without a trace. What is counted is the slots: within the budget. */
#include "chunk/store_impl.h"

/* Of each chunk of the list. */
static int64_t list_bytes(const ps_store *s, ps_list list)
{
    return s->chunks[ps_store_chunk(s->layout, list, 0)].bytes;
}

/* Of all lists but the first, an index. */
static int64_t states_bytes(const ps_store *s)
{
    int64_t bytes = 0;
    for (ps_list l = 1; l < s->d.lists.n; l++) bytes += list_bytes(s, l);
    return bytes;
}

static int64_t bytes_of_lists(const ps_store *s)
{
    return s->layout->n_chunks * list_bytes(s, 0) + s->layout->n_mirrored * states_bytes(s);
}

void ps_store_choose_homes(ps_store *s)
{
    const ps_lists *l = &s->d.lists;
    const int64_t apart_bytes = l->n_apart > 0 ? l->n_apart * list_bytes(s, l->n) : 0;
    s->has_homes = bytes_of_lists(s) + apart_bytes <= s->d.disk_budget_bytes;
}

static int64_t home_of(const ps_store *s, ps_chunk_id id)
{
    const ps_list list = ps_store_list_of(s, id);
    const int64_t index = ps_lists_index_of(&s->d.lists, s->layout, id);
    if (list == 0) return index * list_bytes(s, 0);
    int64_t before = 0; /* those of lists before this one */
    for (ps_list l = 1; l < list; l++) before += list_bytes(s, l);
    return s->layout->n_chunks * list_bytes(s, 0) + index * states_bytes(s) + before;
}

static int64_t place_of(const ps_store *s, ps_chunk_id id)
{
    const int64_t end_of_lists = s->has_homes ? bytes_of_lists(s) : ps_round_up(s->d.disk_budget_bytes, PS_PAGE_BYTES);
    if (ps_store_is_apart(s, id))
        return end_of_lists + ps_lists_index_of(&s->d.lists, s->layout, id) * s->chunks[id].bytes;
    return s->has_homes ? home_of(s, id) : s->disk_used_bytes - s->apart_used_bytes;
}

/* Lists that have homes always find theirs free: chunks apart take only what all lists leave. */
static bool has_room(const ps_store *s, ps_chunk_id id)
{
    const int64_t bytes = s->chunks[id].bytes;
    if (s->has_homes && ps_store_is_apart(s, id))
        return bytes <= s->d.disk_budget_bytes - bytes_of_lists(s) - s->apart_used_bytes;
    return bytes <= s->d.disk_budget_bytes - s->disk_used_bytes;
}

/* ---- slots of others ---- */

/* The chunk whose slot can best be given away, or -1: one whose content in the slot is stale, else one whose content is
 * in RAM too; among such the smallest slot that is large enough. */
static ps_chunk_id find_spare_slot(const ps_store *s, bool of_apart, int64_t bytes)
{
    ps_chunk_id best = -1;
    bool best_stale = false;
    for (ps_chunk_id id = 0; id < s->n_ids; id++) {
        const chunk *c = &s->chunks[id];
        const bool stale = !is_current(c, PS_TIER_DISK);
        if (c->slot_bytes < bytes || c->flight.active || c->current == TIER_BIT(PS_TIER_DISK)) continue;
        if (ps_store_is_apart(s, id) != of_apart) continue;
        if (best >= 0 && (best_stale != stale ? best_stale : s->chunks[best].slot_bytes <= c->slot_bytes)) continue;
        best = id;
        best_stale = stale;
    }
    return best;
}

static ps_status empty_slot(ps_store *s, ps_chunk_id id)
{
    PS_TRY(ps_store_land(s, id));
    ps_store_forget_disk_content(s, id, PS_REASON_DROP);
    s->quiet_until = 0;
    return PS_OK;
}

static void give_up_slot(ps_store *s, chunk *c)
{
    s->disk_used_bytes -= c->slot_bytes;
    s->apart_used_bytes -= c->slot_bytes;
    c->disk_offset = NO_SLOT;
    c->slot_bytes = 0;
}

/* Slots of chunks apart, until there is room for this one. */
static ps_status take_room_of_apart(ps_store *s, ps_chunk_id id)
{
    while (!has_room(s, id)) {
        const ps_chunk_id spare = find_spare_slot(s, true, 1);
        if (spare < 0) return PS_OK;
        PS_TRY(empty_slot(s, spare));
        give_up_slot(s, &s->chunks[spare]);
    }
    return PS_OK;
}

/* Of lists, where there are no homes. */
static ps_status take_slot_of_list(ps_store *s, chunk *c)
{
    const ps_chunk_id id = find_spare_slot(s, false, c->bytes);
    if (id < 0) return PS_OK;
    chunk *from = &s->chunks[id];
    PS_TRY(empty_slot(s, id));
    c->disk_offset = from->disk_offset;
    c->slot_bytes = from->slot_bytes;
    from->disk_offset = NO_SLOT;
    from->slot_bytes = 0;
    return PS_OK;
}

/* ---- given and resized ---- */

ps_status ps_store_take_slot(ps_store *s, ps_chunk_id id)
{
    chunk *c = &s->chunks[id];
    if (s->d.disk == NULL || c->disk_offset != NO_SLOT) return PS_OK;
    if (!has_room(s, id) && s->is_short_of_slots) {
        PS_TRY(take_room_of_apart(s, id));
        if (!has_room(s, id) && !ps_store_is_apart(s, id)) return take_slot_of_list(s, c);
    }
    if (!has_room(s, id)) return PS_OK;
    c->disk_offset = place_of(s, id);
    c->slot_bytes = c->bytes;
    s->disk_used_bytes += c->bytes;
    s->disk_peak_bytes = ps_max_i64(s->disk_peak_bytes, s->disk_used_bytes);
    if (ps_store_is_apart(s, id)) s->apart_used_bytes += c->bytes;
    ps_store_record_memory(s, PS_TIER_DISK);
    return PS_OK;
}

void ps_store_resize_apart(ps_store *s, int64_t bytes)
{
    const int64_t in_pages = ps_round_up(bytes, s->page_bytes);
    for (int32_t i = 0; i < s->d.lists.n_apart; i++) {
        const ps_chunk_id id = ps_store_chunk(s->layout, s->d.lists.n, i);
        chunk *c = &s->chunks[id];
        if (c->bytes == in_pages) continue;
        ps_store_discard(s, id);
        give_up_slot(s, c);
        c->bytes = in_pages;
    }
    s->d.lists.apart_bytes = bytes;
}
