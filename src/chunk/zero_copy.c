/* zero_copy.c - moves between device and host with unified memory: a payload keeps its address, and its bytes count in
 * the other tier's budget from then on. Nothing is read or written, nothing waits.
 *
 * So a chunk has one payload in RAM, never two, and moves to a tier when it is used there: moving earlier would gain
 * nothing, and use room. Where both tiers are full, payloads swap:
 *
 *     device  |=== a ===|= b =|          |=== c ===|= b =|
 *     host    |=== c ===|= d =|   -->    |=== a ===|= d =|       c is needed on the device, a is evicted
 *
 * A payload that the disk is writing may move meanwhile, as its address stays; one that it is reading, after the read
 * has ended on the timeline. */
#include "chunk/movement.h"

bool ps_movement_can_move(const ps_movement *m, ps_chunk_id id, ps_tier to)
{
    const chunk *c = &m->r->chunks[id];
    if (!m->r->is_unified_memory || !is_current(c, ps_other_ram(to))) return false;
    return c->pins == 0 || c->pin_tier == to;
}

/* The first half: the bytes no longer count on the tier. */
static void leave(ps_movement *m, ps_chunk_id id, ps_tier from, ps_reason why)
{
    ps_residency *r = m->r;
    int64_t offset = 0;
    ps_region **run = ps_residency_run(r, id, from, &offset);
    if (run != NULL)
        ps_region_let_go(*run, offset, r->chunks[id].bytes);
    else
        ps_device_let_go(r->ram[from], r->chunks[id].bytes);
    ps_residency_count(r, id, from, -1);
    ps_residency_record(r, id, from, PS_PROFILE_LEAVE, why == PS_REASON_WRITE_BACK ? PS_REASON_EVICT : PS_REASON_DROP);
}

/* The second half: they count on the other one. */
static void enter(ps_movement *m, ps_chunk_id id, ps_tier to, ps_reason why)
{
    ps_residency *r = m->r;
    const ps_tier from = ps_other_ram(to);
    int64_t offset = 0;
    ps_region **run = ps_residency_run(r, id, to, &offset);
    if (run != NULL)
        ps_region_adopt_pages(*run, r->runs[from][run - r->runs[to]], offset, r->chunks[id].bytes);
    else
        ps_device_adopt_pages(r->ram[to], r->ram[from], r->chunks[id].bytes);
    ps_residency_count(r, id, to, 1);
    ps_residency_record(r, id, to, PS_PROFILE_ARRIVE, why == PS_REASON_WRITE_BACK ? why : PS_REASON_LOAD);
}

/* It takes no time: its begin and end are recorded at once. */
static void record(const ps_movement *m, ps_chunk_id id, ps_tier to, ps_link link, ps_reason why)
{
    if (!ps_profile_is_on(m->r->profile)) return;
    const int64_t now_ns = ps_profile_now(m->r->profile);
    const flight f = {.src = ps_other_ram(to),
                      .dst = to,
                      .link = link,
                      .done.ticket = (ps_ticket)m->n_moves[link],
                      .done_ns = now_ns};
    ps_movement_record(m, id, &f, now_ns, why);
    ps_movement_record_end(m, id, &f, now_ns);
}

/* The state of the payload moves to the other tier. */
static void note_moved(ps_movement *m, ps_chunk_id id, ps_tier to, ps_reason why)
{
    chunk *c = &m->r->chunks[id];
    const ps_tier from = ps_other_ram(to);
    const ps_link link = to == PS_TIER_DEVICE ? PS_LINK_HOST_TO_DEVICE : PS_LINK_DEVICE_TO_HOST;
    c->payload[to] = c->payload[from];
    c->ready[to] = c->ready[from];
    c->in_use[to] = c->in_use[from];
    c->payload[from] = NULL;
    c->leaving = c->leaving != 0 ? TIER_BIT(to) : 0; /* in RAM, not only on that tier */
    c->current = (c->current & ~TIER_BIT(from)) | TIER_BIT(to);
    if (m->flights[id].active) m->flights[id].src = to;
    if (m->n_overdue > 0 && m->overdue[id].dst == from) m->overdue[id].dst = to;
    ps_residency_note(m->r, id, PS_CHANGED_PLACE);
    m->moved_bytes[link] += c->bytes;
    m->n_moves[link]++;
    record(m, id, to, link, why);
}

void ps_movement_swap(ps_movement *m, ps_chunk_id id, ps_tier to, const ps_chunk_id *others, int n, ps_reason why)
{
    const ps_tier from = ps_other_ram(to);
    PS_ASSERT(ps_movement_can_move(m, id, to));
    leave(m, id, from, why);
    for (int i = 0; i < n; i++) leave(m, others[i], to, PS_REASON_WRITE_BACK);
    for (int i = 0; i < n; i++) enter(m, others[i], from, PS_REASON_WRITE_BACK);
    enter(m, id, to, why);
    for (int i = 0; i < n; i++) note_moved(m, others[i], from, PS_REASON_WRITE_BACK);
    note_moved(m, id, to, why);
}

void ps_movement_move(ps_movement *m, ps_chunk_id id, ps_tier to, ps_reason why)
{
    ps_movement_swap(m, id, to, NULL, 0, why);
}
