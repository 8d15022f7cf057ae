/* store.c - the store made and unmade, and access to chunks: pin, unpin, discard. */
#include "chunk/store_impl.h"

#include <string.h>

#include "base/mem.h"

ps_status ps_store_create(const ps_store_desc *desc, ps_store **out)
{
    *out = NULL;
    const ps_layout *l = desc->layout;
    ps_status st = PS_OK;
    ps_store *s = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *s, &s));
    s->d = *desc;
    s->layout = l;
    PS_ASSERT(desc->lists.n < PS_LISTS_MAX);
    s->n_ids = ps_lists_n_ids(&desc->lists, l);
    s->now = -1;
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) {
        s->chunk_limit_bytes[t] = INT64_MAX;
        if (desc->ram[t] == NULL) continue;
        s->other_bytes[t] = ps_device_get_stats(desc->ram[t]).used_bytes;
        s->page_bytes = ps_max_i64(s->page_bytes, ps_device_page_bytes(desc->ram[t]));
    }
    s->is_simulated = !ps_device_has_memory(desc->ram[PS_TIER_DEVICE]);
    s->is_timed = ps_sim_time_of(desc->ram[PS_TIER_DEVICE]) != NULL;
    s->time.rates = desc->rates != NULL ? *desc->rates : ps_link_rates_default;
    PS_TRY_GOTO(ps_mem_alloc((size_t)s->n_ids, sizeof *s->chunks, &s->chunks));
    PS_TRY_GOTO(ps_mem_alloc((size_t)s->n_ids, sizeof *s->flying, &s->flying));
    PS_TRY_GOTO(ps_mem_alloc((size_t)s->n_ids, sizeof *s->passed, &s->passed));
    PS_TRY_GOTO(ps_mem_alloc((size_t)s->n_ids, sizeof *s->noted, &s->noted));
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) PS_TRY_GOTO(ps_max_tree_init(&s->leaving[t], s->n_ids));
    PS_TRY_GOTO(ps_max_tree_init(&s->spare, s->n_ids));
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
        PS_TRY_GOTO(ps_mem_alloc((size_t)(desc->lists.n * l->n_runs), sizeof *s->runs[t], &s->runs[t]));
    PS_TRY_GOTO(ps_mem_alloc((size_t)l->n_tensors, sizeof *s->tensor_state, &s->tensor_state));
    PS_TRY_GOTO(ps_mem_alloc((size_t)l->n_tensors, sizeof *s->tensor_uses, &s->tensor_uses));
    for (ps_chunk_id id = 0; id < s->n_ids; id++) {
        chunk *c = &s->chunks[id];
        c->bytes = ps_round_up(ps_lists_chunk_bytes(&desc->lists, l, ps_store_list_of(s, id)), s->page_bytes);
        c->disk_offset = NO_SLOT;
        c->wanted_serial = -1;
    }
    ps_store_choose_homes(s);
    for (int link = PS_LINK_HOST_TO_DEVICE; link <= PS_LINK_DEVICE_TO_HOST && !desc->hands_over; link++)
        PS_TRY_GOTO(ps_queue_create(desc->ram[PS_TIER_DEVICE], link == PS_LINK_HOST_TO_DEVICE ? "to-device" : "to-host",
                                    PS_QUEUE_COPY, &s->copies[link]));
    for (int link = 0; link < PS_LINK_COUNT; link++) {
        if (s->copies[link] == NULL) continue;
        ps_queue_set_profile(s->copies[link], desc->profile, link);
        ps_sim_queue_join(s->copies[link], link);
    }
    PS_TRY_GOTO(ps_store_take_bounce(s));
    if (desc->disk != NULL) ps_disk_set_profile(desc->disk, desc->profile, PS_LINK_DISK_READ, PS_LINK_DISK_WRITE);
    *out = s;
    s = NULL;
out:
    ps_store_destroy(s);
    return st;
}

void ps_store_destroy(ps_store *s)
{
    if (s == NULL) return;
    /* queues wait for each other: none goes before all are idle */
    if (s->d.works_later) (void)ps_store_await_queues(s);
    if (s->chunks != NULL && s->flying != NULL) {
        while (s->n_flying > 0)
            (void)ps_store_retire(s, s->flying[0]); /* content is given up: failures do not matter */
        for (ps_chunk_id id = 0; id < s->n_ids; id++) {
            (void)ps_store_land(s, id);
            for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
                if (s->chunks[id].payload[t] != NULL) ps_store_take_payload(s, id, (ps_tier)t, PS_REASON_DISCARD);
        }
    }
    for (int t = PS_RAM_TIER_COUNT - 1; t >= 0; t--) { /* the host's may lie beside the device's */
        for (int32_t r = 0; s->runs[t] != NULL && r < s->d.lists.n * s->layout->n_runs; r++)
            ps_region_destroy(s->runs[t][r]);
        ps_mem_free(s->runs[t]);
    }
    ps_store_decommit_non_model(s);
    ps_region_destroy(s->non_model);
    for (int l = 0; l < PS_LINK_COUNT; l++) ps_queue_destroy(s->copies[l]);
    ps_store_give_bounce(s);
    ps_max_tree_deinit(&s->told_bytes);
    ps_mem_free(s->unready);
    ps_mem_free(s->tensor_state);
    ps_mem_free(s->tensor_uses);
    ps_mem_free(s->flying);
    ps_mem_free(s->passed);
    ps_mem_free(s->noted);
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) ps_max_tree_deinit(&s->leaving[t]);
    ps_max_tree_deinit(&s->spare);
    ps_mem_free(s->chunks);
    ps_mem_free(s);
}

/* ---- access ---- */

/* Zeros that are new pages are left alone: the threads that write these first share the work of making them. */
static ps_status clear_payload(ps_store *s, ps_chunk_id id, ps_tier tier)
{
    chunk *c = &s->chunks[id];
    if (!ps_device_has_memory(s->d.ram[tier]) || ps_device_gave_zeros(s->d.ram[tier])) return PS_OK;
    ps_queue *q = s->d.compute[tier];
    PS_TRY(ps_store_await_unused(s, id, tier, q, PS_WAIT_ROOM));
    if (q == NULL) {
        memset(c->payload[tier], 0, (size_t)c->bytes);
        return PS_OK;
    }
    PS_TRY(ps_queue_fill(q, c->payload[tier], 0, c->bytes));
    ps_store_note_item(s, id, tier, ps_queue_event(q), true);
    return PS_OK;
}

/* The one under way that will end first. */
static ps_chunk_id first_to_land(const ps_store *s)
{
    ps_chunk_id first = s->flying[0];
    for (int32_t i = 1; i < s->n_flying; i++)
        if (s->chunks[s->flying[i]].flight.done_ns < s->chunks[first].flight.done_ns) first = s->flying[i];
    return first;
}

/* Wait for the chunk's transfer. As others end meanwhile, what they make room for begins. */
static ps_status await_landing(ps_store *s, ps_chunk_id id)
{
    const flight f = s->chunks[id].flight;
    while (s->schedule != NULL && s->now >= 0) {
        const ps_chunk_id first = first_to_land(s);
        if (s->chunks[first].flight.done_ns >= f.done_ns) break;
        ps_store_wait_estimated(s, id, f.link, s->chunks[first].flight.done_ns);
        PS_TRY(ps_store_retire_on_timeline(s, first));
        PS_TRY(ps_store_look_ahead(s));
    }
    return ps_store_retire(s, id);
}

/* Payload on the tier, its content current (or to be overwritten). */
static ps_status make_resident(ps_store *s, ps_chunk_id id, ps_tier tier, ps_access_mode mode)
{
    chunk *c = &s->chunks[id];
    if (c->overdue.dst != PS_TIER_DISK || mode != PS_ACCESS_READ) PS_TRY(ps_store_land(s, id));
    const bool is_there = is_current(c, tier) || ps_store_can_hand_over(s, id, tier);
    if (c->flight.active && (c->flight.dst == tier || mode != PS_ACCESS_READ || !is_there))
        PS_TRY(await_landing(s, id));
    if (is_current(c, tier)) return PS_OK;
    if (c->current != 0 && (mode != PS_ACCESS_OVERWRITE || ps_store_can_hand_over(s, id, tier))) {
        PS_TRY(ps_store_bring(s, id, tier, PS_REASON_WANTED));
        return is_current(c, tier) ? PS_OK : ps_store_retire(s, id);
    }
    PS_TRY(ps_store_make_room(s, tier, c->bytes, PS_REASON_EVICT));
    PS_TRY(ps_store_give_payload(s, id, tier, PS_REASON_CREATE));
    const ps_status st = mode != PS_ACCESS_OVERWRITE ? clear_payload(s, id, tier) : PS_OK;
    if (st != PS_OK) {
        ps_store_take_payload(s, id, tier, PS_REASON_DROP);
        return st;
    }
    c->current |= TIER_BIT(tier);
    ps_store_note_ready(s, id);
    return PS_OK;
}

/* Whoever computes there goes on when the content is whole and, before a change, nobody else uses it. */
static ps_status order_pin(ps_store *s, ps_chunk_id id, ps_tier tier, ps_access_mode mode)
{
    ps_queue *q = s->d.compute[tier];
    PS_TRY(ps_store_await_whole(s, id, tier, q, PS_WAIT_ARRIVAL));
    return mode == PS_ACCESS_READ ? PS_OK : ps_store_await_unused(s, id, tier, q, PS_WAIT_CHANGE);
}

/* "To be overwritten" made visible in a payload that has content; new ones have none (ps_device_poison). */
static void poison_payload(const ps_store *s, ps_chunk_id id, ps_tier tier, ps_access_mode mode)
{
#if PS_DEBUG >= 3
    const chunk *c = &s->chunks[id];
    const ps_device *dev = s->d.ram[tier];
    const bool is_ram = ps_device_has_memory(dev) && ps_device_host_can_touch(dev) && !s->d.works_later;
    if (is_ram && mode == PS_ACCESS_OVERWRITE && c->pins == 1) memset(c->payload[tier], 0xff, (size_t)c->bytes);
#else
    (void)s, (void)id, (void)tier, (void)mode;
#endif
}

/* The content on `tier` is about to change, so copies elsewhere become stale and are dropped. A change that the
 * schedule foretells is no news to the look-ahead: quiet_until stays. */
static void make_only_copy(ps_store *s, ps_chunk_id id, ps_tier tier)
{
    chunk *c = &s->chunks[id];
    const int64_t quiet_until = c->wanted_serial == s->moment_serial ? s->quiet_until : 0;
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
        if (t != (int)tier && c->payload[t] != NULL) ps_store_take_payload(s, id, (ps_tier)t, PS_REASON_DROP);
    ps_store_forget_disk_content(s, id, PS_REASON_DROP);
    c->current = TIER_BIT(tier);
    ps_store_note_ready(s, id);
    s->quiet_until = quiet_until;
}

ps_status ps_store_pin(ps_store *s, ps_chunk_id id, ps_tier tier, ps_access_mode mode, void **out)
{
    PS_ASSERT(id >= 0 && id < s->n_ids && tier < PS_RAM_TIER_COUNT && s->chunks[id].bytes > 0);
    if (out != NULL) *out = NULL;
    chunk *c = &s->chunks[id];
    if (c->pins > 0 && c->pin_tier != tier)
        return PS_FAIL(PS_ESTATE, "chunk %d of %s is pinned on %s and cannot be pinned on %s",
                       ps_lists_index_of(&s->d.lists, s->layout, id), s->d.lists.list[ps_store_list_of(s, id)].name,
                       ps_tier_name(c->pin_tier), ps_tier_name(tier));
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
    ps_store_note_standing(s, id);
    if (mode != PS_ACCESS_READ) make_only_copy(s, id, tier);
    c->is_changing = c->is_changing || mode != PS_ACCESS_READ;
    if (out != NULL) *out = c->payload[tier];
    STORE_CHECK(s);
    return PS_OK;
}

void ps_store_unpin(ps_store *s, ps_chunk_id id)
{
    chunk *c = &s->chunks[id];
    PS_ASSERT(c->pins > 0);
    c->wanted_serial = -1;
    const ps_queue *q = s->d.compute[c->pin_tier];
    if (q != NULL) ps_store_note_item(s, id, c->pin_tier, ps_queue_event(q), c->is_changing);
    if (--c->pins == 0) {
        c->is_changing = false;
        note_free(s, c);
    }
    STORE_CHECK(s);
}

ps_tier ps_store_pin_tier(const ps_store *s, ps_chunk_id id)
{
    PS_ASSERT(s->chunks[id].pins > 0);
    return s->chunks[id].pin_tier;
}

void *ps_store_payload(const ps_store *s, ps_chunk_id id)
{
    const chunk *c = &s->chunks[id];
    PS_ASSERT(c->pins > 0);
    return c->payload[c->pin_tier];
}

void ps_store_discard(ps_store *s, ps_chunk_id id)
{
    chunk *c = &s->chunks[id];
    PS_ASSERT(c->pins == 0);
    (void)ps_store_retire(s, id); /* a failed copy of dead content harms nobody */
    (void)ps_store_land(s, id);
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
        if (c->payload[t] != NULL) ps_store_take_payload(s, id, (ps_tier)t, PS_REASON_DISCARD);
    ps_store_forget_disk_content(s, id, PS_REASON_DISCARD);
    c->current = 0;
    ps_store_note_ready(s, id);
    STORE_CHECK(s);
}

ps_status ps_store_wait_all(ps_store *s)
{
    ps_status first = PS_OK;
    while (s->n_flying > 0) {
        const ps_status st = ps_store_retire(s, s->flying[0]);
        if (first == PS_OK) first = st;
    }
    for (ps_chunk_id id = 0; s->n_overdue > 0 && id < s->n_ids; id++) {
        const ps_status st = ps_store_land(s, id);
        if (first == PS_OK) first = st;
    }
    const ps_status st = s->d.works_later ? ps_store_await_queues(s) : PS_OK;
    return first == PS_OK ? st : first;
}

ps_status ps_store_settle(ps_store *s)
{
    PS_TRY(ps_store_wait_all(s));
    ps_store_decommit_non_model(s);
    ps_store_record_memory(s, PS_TIER_DEVICE);
    STORE_CHECK(s);
    return PS_OK;
}

/* ---- accounting ---- */

int64_t ps_store_list_bytes(const ps_store *s, ps_list list, ps_tier tier)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < ps_lists_length(&s->d.lists, s->layout, list); i++) {
        const chunk *c = &s->chunks[ps_store_chunk(s->layout, list, i)];
        if (tier == PS_TIER_DISK)
            bytes += c->slot_bytes;
        else if (c->payload[tier] != NULL)
            bytes += c->bytes;
    }
    return bytes;
}

ps_tier_use ps_store_peak(const ps_store *s, ps_tier tier)
{
    return s->peak[tier];
}

ps_store_stats ps_store_get_stats(const ps_store *s)
{
    ps_store_stats stats = s->stats;
    stats.disk_bytes = s->disk_used_bytes;
    stats.disk_peak_bytes = s->disk_peak_bytes;
    stats.non_model_bytes = s->non_model_committed_bytes;
    return stats;
}

const ps_timeline *ps_store_timeline(const ps_store *s)
{
    return &s->time;
}

int64_t ps_store_begin_collective(ps_store *s, const ps_store_collective *c)
{
    int64_t begin_ns;
    const int64_t end_ns = ps_timeline_occupy(&s->time, PS_LINK_COLLECTIVES, c->ns, &begin_ns);
    s->stats.moved_bytes[PS_LINK_COLLECTIVES] += c->sent_bytes;
    s->stats.n_moves[PS_LINK_COLLECTIVES]++;
    if (tells_times(s))
        ps_profile_add(s->d.profile, &(ps_profile_record){
                                         .kind = PS_PROFILE_COLLECTIVE,
                                         .chunk = c->chunk,
                                         .begin_ns = begin_ns,
                                         .end_ns = end_ns,
                                         .collective = {.name = c->name, .group = c->group, .bytes = c->sent_bytes}});
    return end_ns;
}

void ps_store_end_collective(ps_store *s, int64_t done_ns)
{
    ps_store_wait_estimated(s, -1, PS_LINK_COLLECTIVES, done_ns);
}
