/* store.c - creation and destruction of the store, and access to chunks: pin, unpin, discard. */
#include "chunk/store_impl.h"

#include <string.h>

#include "base/mem.h"

ps_status ps_store_create(const ps_store_desc *desc, ps_store **out)
{
    *out = NULL;
    ps_status st = PS_OK;
    ps_store *s = NULL;
    PS_ASSERT(desc->lists.n < PS_LISTS_MAX);
    PS_TRY(ps_mem_alloc(1, sizeof *s, &s));
    s->r = (ps_residency){.layout = desc->layout,
                          .lists = desc->lists,
                          .ram = {desc->ram[PS_TIER_DEVICE], desc->ram[PS_TIER_HOST]},
                          .compute = {desc->compute[PS_TIER_DEVICE], desc->compute[PS_TIER_HOST]},
                          .disk = desc->disk,
                          .disk_budget_bytes = desc->disk_budget_bytes,
                          .n_keeping = desc->n_keeping,
                          .keeping_first = desc->keeping_first,
                          .keeping_end = desc->keeping_end,
                          .is_unified_memory = desc->is_unified_memory,
                          .counts_non_model = desc->counts_non_model,
                          .profile = desc->profile};
    s->m = (ps_movement){.r = &s->r,
                         .is_asynchronous = desc->is_asynchronous,
                         .time.throughput = desc->throughput != NULL ? *desc->throughput : ps_link_bandwidths_default};
    s->s = (ps_scheduling){.r = &s->r,
                           .m = &s->m,
                           .options = desc->options != NULL ? *desc->options : (ps_store_options){0},
                           .shares_slots = desc->shares_slots};
    PS_TRY_GOTO(ps_residency_init(&s->r));
    PS_TRY_GOTO(ps_movement_init(&s->m));
    PS_TRY_GOTO(ps_scheduling_init(&s->s));
    *out = s;
    s = NULL;
out:
    ps_store_destroy(s);
    return st;
}

void ps_store_destroy(ps_store *s)
{
    if (s == NULL) return;
    (void)ps_movement_wait_all(&s->m); /* content is discarded: failures do not matter */
    for (ps_chunk_id id = 0; s->s.standings != NULL && id < s->r.n_ids; id++) ps_residency_free_all(&s->r, id);
    ps_residency_deinit(&s->r);
    ps_movement_deinit(&s->m);
    ps_scheduling_deinit(&s->s);
    ps_mem_free(s);
}

/* ---- access ---- */

/* New pages are zeros already: the threads that write them first share the page faults. */
static ps_status clear_payload(ps_store *s, ps_chunk_id id, ps_tier tier)
{
    chunk *c = &s->r.chunks[id];
    if (!ps_device_has_memory(s->r.ram[tier]) || ps_device_gave_zeros(s->r.ram[tier])) return PS_OK;
    ps_queue *q = s->r.compute[tier];
    PS_TRY(ps_residency_await_unused(&s->r, id, tier, q, PS_WAIT_ROOM));
    if (q == NULL) {
        memset(c->payload[tier], 0, (size_t)c->bytes);
        return PS_OK;
    }
    PS_TRY(ps_queue_fill(q, c->payload[tier], 0, c->bytes));
    ps_residency_note_item(&s->r, id, tier, ps_queue_event(q), true);
    return PS_OK;
}

/* The transfer in flight that ends first. */
static ps_chunk_id first_to_land(const ps_store *s)
{
    ps_chunk_id first = s->m.flying[0];
    for (int32_t i = 1; i < s->m.n_flying; i++)
        if (s->m.flights[s->m.flying[i]].done_ns < s->m.flights[first].done_ns) first = s->m.flying[i];
    return first;
}

/* Wait for the chunk's transfer. Loads begin as other transfers end and make room. */
static ps_status await_landing(ps_store *s, ps_chunk_id id)
{
    const flight f = s->m.flights[id];
    while (s->s.schedule != NULL && s->s.now >= 0) {
        const ps_chunk_id first = first_to_land(s);
        if (s->m.flights[first].done_ns >= f.done_ns) break;
        ps_movement_wait_estimated(&s->m, id, f.link, s->m.flights[first].done_ns);
        PS_TRY(ps_movement_retire_on_timeline(&s->m, first));
        PS_TRY(ps_scheduling_look_ahead(&s->s));
    }
    return ps_movement_retire(&s->m, id);
}

/* Make the payload resident on the tier, its content current (or to be overwritten). */
static ps_status make_resident(ps_store *s, ps_chunk_id id, ps_tier tier, ps_access_mode mode)
{
    const chunk *c = &s->r.chunks[id];
    const flight *f = &s->m.flights[id];
    const bool is_overdue = s->m.n_overdue > 0 && s->m.overdue[id].active;
    if (is_overdue && (s->m.overdue[id].dst != PS_TIER_DISK || mode != PS_ACCESS_READ))
        PS_TRY(ps_movement_land(&s->m, id));
    const bool is_there = is_current(c, tier) || ps_movement_can_move(&s->m, id, tier);
    if (f->active && (f->dst == tier || mode != PS_ACCESS_READ || !is_there)) PS_TRY(await_landing(s, id));
    if (is_current(c, tier)) return PS_OK;
    if (c->current != 0 && (mode != PS_ACCESS_OVERWRITE || ps_movement_can_move(&s->m, id, tier))) {
        PS_TRY(ps_scheduling_bring(&s->s, id, tier, PS_REASON_WANTED));
        return is_current(c, tier) ? PS_OK : ps_movement_retire(&s->m, id);
    }
    PS_TRY(ps_scheduling_make_room(&s->s, tier, c->bytes, PS_REASON_EVICT));
    PS_TRY(ps_residency_allocate(&s->r, id, tier, PS_REASON_CREATE));
    const ps_status st = mode != PS_ACCESS_OVERWRITE ? clear_payload(s, id, tier) : PS_OK;
    if (st != PS_OK) {
        ps_residency_free(&s->r, id, tier, PS_REASON_DROP);
        return st;
    }
    ps_residency_set_current(&s->r, id, tier);
    return PS_OK;
}

/* Computing continues when the content is complete and, before a change, the payload is unused. */
static ps_status order_pin(ps_store *s, ps_chunk_id id, ps_tier tier, ps_access_mode mode)
{
    ps_queue *q = s->r.compute[tier];
    PS_TRY(ps_residency_await_whole(&s->r, id, tier, q, PS_WAIT_ARRIVAL));
    return mode == PS_ACCESS_READ ? PS_OK : ps_residency_await_unused(&s->r, id, tier, q, PS_WAIT_CHANGE);
}

/* "To be overwritten" made visible in a payload with content; new ones are poisoned already (ps_device_poison). */
static void poison_payload(const ps_store *s, ps_chunk_id id, ps_tier tier, ps_access_mode mode)
{
#if PS_DEBUG >= 3
    const chunk *c = &s->r.chunks[id];
    const ps_device *dev = s->r.ram[tier];
    const bool is_ram = ps_device_has_memory(dev) && ps_device_host_can_touch(dev) && !s->m.is_asynchronous;
    if (is_ram && mode == PS_ACCESS_OVERWRITE && c->pins == 1) memset(c->payload[tier], 0xff, (size_t)c->bytes);
#else
    (void)s, (void)id, (void)tier, (void)mode;
#endif
}

/* The content on `tier` is about to change, so copies on other tiers become stale and are dropped. The look-ahead knows
 * changes that the schedule predicts: quiet_until stays. */
static void make_only_copy(ps_store *s, ps_chunk_id id, ps_tier tier)
{
    ps_scheduling_take_changes(&s->s);
    const bool is_predicted = s->s.standings[id].wanted_serial == s->s.moment_serial;
    const int64_t quiet_until = is_predicted ? s->s.quiet_until : 0;
    if (s->r.chunks[id].payload[ps_other_ram(tier)] != NULL)
        ps_residency_free(&s->r, id, ps_other_ram(tier), PS_REASON_DROP);
    if (s->r.chunks[id].keeps && s->r.chunks[id].kept_offset == NO_SLOT) ps_residency_keep_slot(&s->r, id);
    ps_residency_forget_disk_content(&s->r, id, PS_REASON_DROP);
    ps_scheduling_take_changes(&s->s);
    s->s.quiet_until = quiet_until;
}

ps_status ps_store_pin(ps_store *s, ps_chunk_id id, ps_tier tier, ps_access_mode mode, void **out)
{
    PS_ASSERT(id >= 0 && id < s->r.n_ids && tier < PS_RAM_TIER_COUNT && s->r.chunks[id].bytes > 0);
    if (out != NULL) *out = NULL;
    chunk *c = &s->r.chunks[id];
    if (c->pins > 0 && c->pin_tier != tier)
        return PS_FAIL(PS_ESTATE, "chunk %d of %s is pinned on %s and cannot be pinned on %s",
                       ps_lists_index_of(&s->r.lists, s->r.layout, id),
                       s->r.lists.list[ps_residency_list_of(&s->r, id)].name, ps_tier_name(c->pin_tier),
                       ps_tier_name(tier));
    c->pins++;
    c->pin_tier = tier;
    ps_status st = make_resident(s, id, tier, mode);
    if (st == PS_OK) st = order_pin(s, id, tier, mode);
    if (st != PS_OK) {
        c->pins--;
        return ps_store_with_moment(s, st);
    }
    poison_payload(s, id, tier, mode);
    c->last_use_tick = ++s->tick;
    c->leaving &= ~TIER_BIT(tier);
    ps_residency_note(&s->r, id, PS_CHANGED_USE);
    if (mode != PS_ACCESS_READ) make_only_copy(s, id, tier);
    c->is_changing = c->is_changing || mode != PS_ACCESS_READ;
    if (out != NULL) *out = c->payload[tier];
    STORE_CHECK(s);
    return PS_OK;
}

void ps_store_unpin(ps_store *s, ps_chunk_id id)
{
    chunk *c = &s->r.chunks[id];
    PS_ASSERT(c->pins > 0);
    s->s.standings[id].wanted_serial = -1;
    const ps_queue *q = s->r.compute[c->pin_tier];
    if (q != NULL) ps_residency_note_item(&s->r, id, c->pin_tier, ps_queue_event(q), c->is_changing);
    if (--c->pins == 0) {
        c->is_changing = false;
        ps_residency_note(&s->r, id, PS_CHANGED_FREE);
    }
    STORE_CHECK(s);
}

void *ps_store_payload(const ps_store *s, ps_chunk_id id)
{
    const chunk *c = &s->r.chunks[id];
    PS_ASSERT(c->pins > 0);
    return c->payload[c->pin_tier];
}

void ps_store_discard(ps_store *s, ps_chunk_id id)
{
    PS_ASSERT(s->r.chunks[id].pins == 0 && !s->r.chunks[id].keeps);
    (void)ps_movement_retire(&s->m, id); /* a failed copy of dead content does not matter */
    (void)ps_movement_land(&s->m, id);
    ps_residency_free_all(&s->r, id);
    ps_residency_forget_disk_content(&s->r, id, PS_REASON_DISCARD);
    STORE_CHECK(s);
}

void ps_store_resize_standalone(ps_store *s, int64_t bytes)
{
    const int64_t in_pages = ps_round_up(bytes, s->r.page_bytes);
    for (int32_t i = 0; i < s->r.lists.n_standalone; i++) {
        const ps_chunk_id id = ps_store_chunk(s->r.layout, s->r.lists.n, i);
        if (s->r.chunks[id].bytes == in_pages) continue;
        ps_store_discard(s, id);
        ps_residency_free_slot(&s->r, id);
        s->r.chunks[id].bytes = in_pages;
    }
    s->r.lists.standalone_bytes = bytes;
}

ps_status ps_store_synchronize(ps_store *s)
{
    PS_TRY(ps_movement_wait_all(&s->m));
    (void)ps_residency_trim_non_model(&s->r, 0);
    s->s.needed_bytes = 0;
    STORE_CHECK(s);
    return PS_OK;
}

ps_status ps_store_copy_residency(ps_store *s, const ps_store *from)
{
    ps_residency *r = &s->r;
    PS_ASSERT(r->n_ids == from->r.n_ids && from->m.n_flying == 0 && from->m.n_overdue == 0 &&
              from->r.use[PS_TIER_DEVICE].non_model_bytes == 0);
    for (ps_chunk_id id = 0; id < r->n_ids; id++) {
        const chunk *c = &from->r.chunks[id];
        PS_ASSERT(c->bytes == r->chunks[id].bytes && c->pins == 0 && !c->keeps);
        for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
            if (c->payload[t] != NULL) PS_TRY(ps_residency_allocate(r, id, (ps_tier)t, PS_REASON_START));
        r->chunks[id].current = c->current;
        r->chunks[id].leaving = c->leaving;
        r->chunks[id].disk_offset = c->disk_offset;
        r->chunks[id].slot_bytes = c->slot_bytes;
        r->chunks[id].has_second_home = c->has_second_home;
        r->chunks[id].last_use_tick = c->last_use_tick;
        ps_residency_note(r, id, PS_CHANGED_PLACE);
    }
    r->use[PS_TIER_DISK] = from->r.use[PS_TIER_DISK];
    r->disk_used_bytes = from->r.disk_used_bytes;
    r->disk_peak_bytes = from->r.disk_peak_bytes;
    r->has_homes = from->r.has_homes;
    r->standalone_slot_bytes = from->r.standalone_slot_bytes;
    r->second_home_bytes = from->r.second_home_bytes;
    s->tick = from->tick;
    return PS_OK;
}

/* ---- collectives ---- */

int64_t ps_store_begin_collective(ps_store *s, const ps_store_collective *c)
{
    int64_t begin_ns;
    const int64_t end_ns = ps_timeline_occupy(&s->m.time, PS_LINK_COLLECTIVES, c->ns, &begin_ns);
    s->m.moved_bytes[PS_LINK_COLLECTIVES] += c->sent_bytes;
    s->m.n_moves[PS_LINK_COLLECTIVES]++;
    if (ps_movement_tells_times(&s->m))
        ps_profile_add(s->r.profile, &(ps_profile_record){
                                         .kind = PS_PROFILE_COLLECTIVE,
                                         .chunk = c->chunk,
                                         .begin_ns = begin_ns,
                                         .end_ns = end_ns,
                                         .collective = {.name = c->name, .group = c->group, .bytes = c->sent_bytes}});
    return end_ns;
}

void ps_store_end_collective(ps_store *s, int64_t done_ns)
{
    ps_movement_wait_estimated(&s->m, -1, PS_LINK_COLLECTIVES, done_ns);
}
