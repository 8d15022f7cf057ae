/* slot.c - the place of a chunk's content in the disk file.
 *
 *     budget for all   | 0 1 2 ... of list 0 | lists 1 2 3 of chunk 0 | lists 1 2 3 of chunk 1 | ... |
 *                        second homes: | lists 1 2 of chunk 0 | lists 1 2 of chunk 1 | ... | standalone |
 *                                      (from list keeping_first on: of list 0, too, without whole masters)
 *     for less         | lists, in the order in which they first leave RAM ...          budget | standalone |
 *
 * Where the budget holds all chunks each has a home. Homes of list 0 are in order of use; the chunks that an update
 * reads and writes together are adjacent, so that small ones are one request. A home counts from its first write:
 * before that it is a hole in the file. Standalone chunks always have homes, in a separate part of the file: they can
 * change their size and free their slots without effect on others. Slots are counted against the budget.
 *
 * A chunk that keeps its content over a change (kept.c) has two places: the kept one is its home, or its second home,
 * and the new content goes to the other. They take turns, and both count from the first time on, as the file has both.
 * Without homes nothing is kept. */
#include "chunk/residency.h"

/* Bytes of a slot of the list. */
static int64_t list_bytes(const ps_residency *r, ps_list list)
{
    return r->chunks[ps_store_chunk(r->layout, list, 0)].bytes;
}

/* Bytes of one index of lists [first, end). */
static int64_t bytes_between(const ps_residency *r, ps_list first, ps_list end)
{
    int64_t bytes = 0;
    for (ps_list l = first; l < end; l++) bytes += list_bytes(r, l);
    return bytes;
}

/* Of all lists but the first. */
static int64_t states_bytes(const ps_residency *r)
{
    return bytes_between(r, 1, r->lists.n);
}

/* Of those with second homes. */
static int64_t kept_bytes(const ps_residency *r)
{
    return bytes_between(r, r->keeping_first, r->keeping_end);
}

static int64_t bytes_of_lists(const ps_residency *r)
{
    return r->layout->n_chunks * list_bytes(r, 0) + r->layout->n_mirrored * states_bytes(r);
}

/* The most that is kept at once. */
static int64_t most_kept_bytes(const ps_residency *r)
{
    return r->n_keeping * kept_bytes(r);
}

void ps_residency_choose_homes(ps_residency *r)
{
    const ps_lists *l = &r->lists;
    const int64_t standalone_bytes = l->n_standalone > 0 ? l->n_standalone * list_bytes(r, l->n) : 0;
    const int64_t left_bytes = r->disk_budget_bytes - bytes_of_lists(r) - standalone_bytes;
    r->has_homes = left_bytes >= 0;
    if (left_bytes < most_kept_bytes(r)) r->n_keeping = 0;
}

static int64_t home_of(const ps_residency *r, ps_chunk_id id)
{
    const ps_list list = ps_residency_list_of(r, id);
    const int64_t index = ps_lists_index_of(&r->lists, r->layout, id);
    const int64_t first =
        list == 0 ? index * list_bytes(r, 0)
                  : r->layout->n_chunks * list_bytes(r, 0) + index * states_bytes(r) + bytes_between(r, 1, list);
    if (first != r->chunks[id].kept_offset) return first;
    return bytes_of_lists(r) + index * kept_bytes(r) + bytes_between(r, r->keeping_first, list);
}

static int64_t end_of_homes(const ps_residency *r)
{
    return bytes_of_lists(r) + (r->n_keeping > 0 ? r->layout->n_mirrored * kept_bytes(r) : 0);
}

static int64_t place_of(const ps_residency *r, ps_chunk_id id)
{
    const int64_t end_of_lists = r->has_homes ? end_of_homes(r) : ps_round_up(r->disk_budget_bytes, PS_PAGE_BYTES);
    if (ps_residency_is_standalone(r, id))
        return end_of_lists + ps_lists_index_of(&r->lists, r->layout, id) * r->chunks[id].bytes;
    return r->has_homes ? home_of(r, id) : r->disk_used_bytes - r->standalone_slot_bytes;
}

/* Lists with homes always find theirs free: standalone chunks use only what all lists leave. */
bool ps_residency_has_slot_room(const ps_residency *r, ps_chunk_id id)
{
    const int64_t bytes = r->chunks[id].bytes;
    if (r->chunks[id].has_second_home) return true; /* both places count already */
    if (r->has_homes && ps_residency_is_standalone(r, id))
        return bytes <= r->disk_budget_bytes - bytes_of_lists(r) - most_kept_bytes(r) - r->standalone_slot_bytes;
    return bytes <= r->disk_budget_bytes - r->disk_used_bytes;
}

/* ---- allocated and moved ---- */

static void count_places(ps_residency *r, ps_chunk_id id, int64_t more_bytes)
{
    r->disk_used_bytes += more_bytes;
    r->use[PS_TIER_DISK].list_bytes[ps_residency_list_of(r, id)] += more_bytes;
    if (ps_residency_is_standalone(r, id)) r->standalone_slot_bytes += more_bytes;
}

int64_t ps_residency_places_bytes(const chunk *c)
{
    return c->has_second_home ? 2 * c->bytes : c->slot_bytes;
}

static void set_slot(ps_residency *r, ps_chunk_id id, int64_t offset, int64_t bytes)
{
    chunk *c = &r->chunks[id];
    const int64_t before = ps_residency_places_bytes(c);
    c->disk_offset = offset;
    c->slot_bytes = bytes;
    count_places(r, id, ps_residency_places_bytes(c) - before);
}

void ps_residency_take_slot(ps_residency *r, ps_chunk_id id)
{
    set_slot(r, id, place_of(r, id), r->chunks[id].bytes);
    r->disk_peak_bytes = ps_max_i64(r->disk_peak_bytes, r->disk_used_bytes);
    ps_residency_record_memory(r, PS_TIER_DISK);
}

void ps_residency_free_slot(ps_residency *r, ps_chunk_id id)
{
    set_slot(r, id, NO_SLOT, 0);
}

void ps_residency_pass_slot(ps_residency *r, ps_chunk_id from, ps_chunk_id to)
{
    const chunk *c = &r->chunks[from];
    const int64_t offset = c->disk_offset, bytes = c->slot_bytes;
    set_slot(r, from, NO_SLOT, 0);
    set_slot(r, to, offset, bytes);
}

/* ---- kept over a change ---- */

bool ps_residency_has_room_to_keep(const ps_residency *r, ps_chunk_id id)
{
    const ps_list list = ps_residency_list_of(r, id);
    if (list < r->keeping_first || list >= r->keeping_end) return false;
    return r->chunks[id].has_second_home || r->second_home_bytes + r->chunks[id].bytes <= most_kept_bytes(r);
}

void ps_residency_keep(ps_residency *r, ps_chunk_id id)
{
    chunk *c = &r->chunks[id];
    PS_ASSERT(!c->keeps && c->slot_bytes == c->bytes && ps_residency_has_room_to_keep(r, id));
    c->keeps = true;
    if (c->has_second_home) return;
    c->has_second_home = true;
    r->second_home_bytes += c->bytes;
    count_places(r, id, c->bytes);
    r->disk_peak_bytes = ps_max_i64(r->disk_peak_bytes, r->disk_used_bytes);
    ps_residency_record_memory(r, PS_TIER_DISK);
}

void ps_residency_keep_slot(ps_residency *r, ps_chunk_id id)
{
    chunk *c = &r->chunks[id];
    PS_ASSERT(c->keeps && c->kept_offset == NO_SLOT && c->slot_bytes == c->bytes);
    c->kept_offset = c->disk_offset;
    set_slot(r, id, NO_SLOT, 0);
}

void ps_residency_free_kept(ps_residency *r, ps_chunk_id id)
{
    chunk *c = &r->chunks[id];
    PS_ASSERT(c->keeps);
    c->kept_offset = NO_SLOT;
    c->keeps = false;
}

void ps_residency_restore_slot(ps_residency *r, ps_chunk_id id)
{
    chunk *c = &r->chunks[id];
    const int64_t offset = c->kept_offset;
    PS_ASSERT(offset != NO_SLOT);
    ps_residency_free_kept(r, id);
    set_slot(r, id, offset, c->bytes);
}
