/* transfer.c - copies of payloads between tiers: starting, waiting, failing. */
#include <time.h>

#include "base/machine.h"
#include "base/mem.h"
#include "chunk/movement.h"
#include "device/blocking.h"
#include "device/order.h"
#include "device/sim_time.h"

/* Period of checks of a copy that is waited for. */
#define LOOK_AGAIN_NS 50000

ps_status ps_movement_init(ps_movement *m)
{
    const ps_residency *r = m->r;
    ps_device *device = r->ram[PS_TIER_DEVICE];
    m->is_simulated = !ps_device_has_memory(device);
    m->is_timed = ps_sim_time_of(device) != NULL;
    PS_TRY(ps_mem_alloc((size_t)r->n_ids, sizeof *m->flights, &m->flights));
    PS_TRY(ps_mem_alloc((size_t)r->n_ids, sizeof *m->overdue, &m->overdue));
    PS_TRY(ps_mem_alloc((size_t)r->n_ids, sizeof *m->flying, &m->flying));
    for (int link = PS_LINK_HOST_TO_DEVICE; link <= PS_LINK_DEVICE_TO_HOST && !r->is_unified_memory; link++) {
        const char *name = link == PS_LINK_HOST_TO_DEVICE ? "to-device" : "to-host";
        PS_TRY(ps_queue_create(device, name, PS_QUEUE_COPY, &m->copies[link]));
        ps_queue_set_profile(m->copies[link], r->profile, link);
        ps_sim_queue_join(m->copies[link], link);
    }
    if (r->disk != NULL) ps_disk_set_profile(r->disk, r->profile, PS_LINK_DISK_READ, PS_LINK_DISK_WRITE);
    return ps_bounce_init(m);
}

void ps_movement_deinit(ps_movement *m)
{
    for (int l = 0; l < PS_LINK_COUNT; l++) ps_queue_destroy(m->copies[l]);
    ps_bounce_deinit(m);
    ps_mem_free(m->flights);
    ps_mem_free(m->overdue);
    ps_mem_free(m->flying);
}

static ps_link link_between(ps_tier src, ps_tier dst)
{
    if (src == PS_TIER_DISK) return PS_LINK_DISK_READ;
    if (dst == PS_TIER_DISK) return PS_LINK_DISK_WRITE;
    return dst == PS_TIER_DEVICE ? PS_LINK_HOST_TO_DEVICE : PS_LINK_DEVICE_TO_HOST;
}

/* ---- starting ---- */

/* Between device and host, each queue waiting for the events it needs. */
static ps_status copy_payload(ps_movement *m, ps_chunk_id id, ps_tier src, ps_tier dst, ps_event *done)
{
    const chunk *c = &m->r->chunks[id];
    ps_queue *q = m->copies[link_between(src, dst)];
    PS_TRY(ps_residency_await_whole(m->r, id, src, q, PS_WAIT_WRITE_BACK));
    PS_TRY(ps_residency_await_unused(m->r, id, dst, q, PS_WAIT_ROOM));
    PS_TRY(ps_queue_copy(q, c->payload[dst], c->payload[src], c->bytes));
    *done = ps_queue_event(q);
    ps_residency_note_item(m->r, id, src, *done, false);
    ps_residency_note_item(m->r, id, dst, *done, true);
    return PS_OK;
}

/* Between a payload and the chunk's slot. The disk begins when the memory is unused, or its content complete. */
static ps_status transfer_slot(ps_movement *m, ps_chunk_id id, ps_tier ram, bool is_write, ps_disk_parts *parts)
{
    const chunk *c = &m->r->chunks[id];
    ps_events after = {.n = 0};
    ps_event done;
    if (ps_movement_bounces(m, ram)) return ps_movement_bounce(m, id, is_write, parts);
    if (is_write) {
        ps_events_add_at(&after, c->ready[ram], PS_WAIT_WRITE_BACK);
        PS_TRY(ps_disk_write(m->r->disk, c->disk_offset, c->payload[ram], c->bytes, &after, &done));
    } else {
        ps_events_add_all_at(&after, &c->in_use[ram], PS_WAIT_ROOM);
        PS_TRY(ps_disk_read(m->r->disk, c->disk_offset, c->payload[ram], c->bytes, &after, &done));
    }
    ps_disk_parts_add(parts, done);
    return PS_OK;
}

void ps_disk_parts_add(ps_disk_parts *p, ps_event e)
{
    if (e.queue == NULL) return;
    if (p->n == 0) p->first = e;
    PS_ASSERT(e.queue == p->first.queue && e.ticket == p->first.ticket + (ps_ticket)p->n);
    p->n++;
}

static ps_event part(const ps_disk_parts *p, int32_t i)
{
    return (ps_event){p->first.queue, p->first.ticket + (ps_ticket)i};
}

/* The host waits for all of them; the first failure. */
static ps_status await_parts(const ps_disk_parts *p)
{
    ps_status first = PS_OK;
    for (int32_t i = 0; i < p->n; i++) {
        const ps_status st = ps_event_wait(part(p, i));
        if (first == PS_OK) first = st;
    }
    return first;
}

/* ---- profile ---- */

/* Share of n parts through buffers of the same size. */
static int64_t part_bytes(const ps_movement *m, ps_chunk_id id, int32_t i, int32_t n)
{
    const int64_t bytes = m->r->chunks[id].bytes, piece_bytes = m->bounce.piece_bytes;
    return n == 1 ? bytes : ps_min_i64(piece_bytes, bytes - i * piece_bytes);
}

void ps_movement_record(const ps_movement *m, ps_chunk_id id, const flight *f, int64_t asked_ns, ps_reason why)
{
    const bool is_cut = f->parts.n > 1 && !m->is_simulated; /* a trial records its estimate as one */
    const int32_t n = is_cut ? f->parts.n : 1;
    for (int32_t i = 0; i < n; i++)
        ps_profile_add(m->r->profile, &(ps_profile_record){.kind = PS_PROFILE_COPY,
                                                           .chunk = id,
                                                           .begin_ns = asked_ns,
                                                           .end_ns = asked_ns,
                                                           .copy = {.ticket = f->done.ticket - (ps_ticket)(n - 1 - i),
                                                                    .bytes = part_bytes(m, id, i, n),
                                                                    .link = (uint8_t)f->link,
                                                                    .from = (uint8_t)f->src,
                                                                    .to = (uint8_t)f->dst,
                                                                    .reason = (uint8_t)why}});
}

void ps_movement_record_end(const ps_movement *m, ps_chunk_id id, const flight *f, int64_t begin_ns)
{
    ps_profile_add(m->r->profile, &(ps_profile_record){.kind = PS_PROFILE_MOVED,
                                                       .chunk = id,
                                                       .begin_ns = begin_ns,
                                                       .end_ns = f->done_ns,
                                                       .copy = {.ticket = f->done.ticket, .link = (uint8_t)f->link}});
}

static void record_wait(const ps_movement *m, ps_chunk_id id, ps_link link, int64_t begin_ns)
{
    ps_profile *p = m->r->profile;
    ps_profile_add(p, &(ps_profile_record){.kind = PS_PROFILE_WAIT,
                                           .chunk = id,
                                           .begin_ns = begin_ns,
                                           .end_ns = ps_profile_now(p),
                                           .copy = {.link = (uint8_t)link}});
}

/* ---- issuing ---- */

/* If it cannot be issued as a whole, nothing of it is in flight. */
static ps_status issue(ps_movement *m, ps_chunk_id id, ps_tier src, ps_tier dst, flight *f)
{
    const bool is_write = f->link == PS_LINK_DISK_WRITE;
    if (!is_write && f->link != PS_LINK_DISK_READ) return copy_payload(m, id, src, dst, &f->done);
    const ps_status st = transfer_slot(m, id, is_write ? src : dst, is_write, &f->parts);
    if (st != PS_OK)
        (void)await_parts(&f->parts);
    else
        f->done = part(&f->parts, f->parts.n - 1);
    return st;
}

ps_status ps_movement_start(ps_movement *m, ps_chunk_id id, ps_tier src, ps_tier dst, ps_reason why)
{
    const int64_t bytes = m->r->chunks[id].bytes;
    PS_ASSERT(!m->flights[id].active && src != dst && is_current(&m->r->chunks[id], src));
    PS_TRY(ps_movement_land(m, id));
    const ps_link link = link_between(src, dst);
    const int64_t asked_ns = ps_profile_now(m->r->profile);
    flight f = {.active = true, .src = src, .dst = dst, .link = link};
    PS_TRY(issue(m, id, src, dst, &f));

    int64_t begin_ns;
    f.done_ns = ps_timeline_transfer(&m->time, link, bytes, &begin_ns);
    m->flights[id] = f;
    ps_residency_note(m->r, id, PS_CHANGED_PLACE);
    m->flying[m->n_flying++] = id;
    m->moved_bytes[link] += bytes;
    m->n_moves[link]++;
    ps_movement_record(m, id, &f, asked_ns, why);
    if (ps_movement_tells_times(m)) ps_movement_record_end(m, id, &f, begin_ns);
    return PS_OK;
}

void ps_movement_wait_estimated(ps_movement *m, ps_chunk_id id, ps_link link, int64_t done_ns)
{
    const int64_t begin_ns = m->time.now_ns;
    ps_timeline_wait(&m->time, link, done_ns);
    if (ps_movement_tells_times(m) && m->time.now_ns > begin_ns) record_wait(m, id, link, begin_ns);
}

/* ---- ending ---- */

static void forget_flight(ps_movement *m, ps_chunk_id id)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < m->n_flying; i++)
        if (m->flying[i] != id) m->flying[kept++] = m->flying[i];
    m->n_flying = kept;
    m->flights[id].active = false;
    ps_residency_note(m->r, id, PS_CHANGED_PLACE | PS_CHANGED_FREE);
}

/* Has it ended, failed or not? */
static bool has_landed(const flight *f)
{
    for (int32_t i = 0; i < f->parts.n; i++)
        if (!ps_event_is_done(part(&f->parts, i))) return false;
    return ps_event_is_done(f->done);
}

/* The host waits for the disk's part: it may fail, and its source still exists then. For other copies it waits unless
 * the device is asynchronous; there the next user of the payload waits, on its queue. */
static ps_status await_flight(ps_movement *m, ps_chunk_id id, const flight *f)
{
    if (m->is_asynchronous && f->parts.n == 0) return PS_OK;
    const bool done = has_landed(f);
    const int64_t begin_ns = done ? 0 : ps_clock_ns(), profile_ns = done ? 0 : ps_profile_now(m->r->profile);
    const ps_status st = f->parts.n > 0 ? await_parts(&f->parts) : ps_event_wait(f->done);
    if (done) return st;
    m->wait_ns += ps_clock_ns() - begin_ns;
    record_wait(m, id, f->link, profile_ns);
    return st;
}

static void note_arrived(ps_movement *m, ps_chunk_id id, const flight *f)
{
    ps_residency_set_current(m->r, id, f->dst);
    if (f->dst == PS_TIER_DISK) ps_residency_record(m->r, id, PS_TIER_DISK, PS_PROFILE_ARRIVE, PS_REASON_WRITE_BACK);
}

ps_status ps_movement_retire(ps_movement *m, ps_chunk_id id)
{
    if (!m->flights[id].active) return PS_OK;
    const flight f = m->flights[id];
    const ps_status st = await_flight(m, id, &f);
    ps_movement_wait_estimated(m, id, f.link, f.done_ns);
    forget_flight(m, id);
    if (st == PS_OK)
        note_arrived(m, id, &f);
    else if (f.dst != PS_TIER_DISK)
        ps_residency_free(m->r, id, f.dst, PS_REASON_DROP);
    return st;
}

ps_status ps_movement_retire_on_timeline(ps_movement *m, ps_chunk_id id)
{
    const flight *f = &m->flights[id];
    if (f->parts.n == 0 || has_landed(f)) return ps_movement_retire(m, id);
    PS_ASSERT(!m->overdue[id].active && f->done_ns <= m->time.now_ns);
    m->overdue[id] = *f;
    m->n_overdue++;
    forget_flight(m, id);
    note_arrived(m, id, &m->overdue[id]);
    return PS_OK;
}

ps_status ps_movement_land(ps_movement *m, ps_chunk_id id)
{
    if (m->n_overdue == 0 || !m->overdue[id].active) return PS_OK;
    const flight f = m->overdue[id];
    m->overdue[id].active = false;
    m->n_overdue--;
    const ps_status st = await_flight(m, id, &f);
    if (st == PS_OK) return PS_OK;
    if (f.dst == PS_TIER_DISK)
        ps_residency_forget_disk_content(m->r, id, PS_REASON_DROP);
    else
        ps_residency_free(m->r, id, f.dst, PS_REASON_DROP);
    return st;
}

ps_status ps_movement_retire_due(ps_movement *m)
{
    for (int32_t i = 0; i < m->n_flying;) {
        if (m->flights[m->flying[i]].done_ns <= m->time.now_ns)
            PS_TRY(ps_movement_retire_on_timeline(m, m->flying[i])); /* removes entry i */
        else
            i++;
    }
    return PS_OK;
}

ps_status ps_movement_load(ps_movement *m, ps_chunk_id id, ps_tier tier, ps_reason why)
{
    const chunk *c = &m->r->chunks[id];
    const ps_tier src = is_current(c, ps_other_ram(tier)) ? ps_other_ram(tier) : PS_TIER_DISK;
    if (ps_movement_can_move(m, id, tier)) {
        ps_movement_move(m, id, tier, why);
        return PS_OK;
    }
    PS_TRY(ps_residency_allocate(m->r, id, tier, why == PS_REASON_WRITE_BACK ? why : PS_REASON_LOAD));
    const ps_status st = ps_movement_start(m, id, src, tier, why);
    if (st != PS_OK && has_payload(c, tier)) ps_residency_free(m->r, id, tier, PS_REASON_DROP);
    return st;
}

/* ---- waiting for all ---- */

/* Everything that was issued to compute or copy. */
static ps_events issued_so_far(const ps_movement *m)
{
    ps_events all = {.n = 0};
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
        if (m->r->compute[t] != NULL) ps_events_add(&all, ps_queue_event(m->r->compute[t]));
    for (int l = 0; l < PS_LINK_COUNT; l++)
        if (m->copies[l] != NULL) ps_events_add(&all, ps_queue_event(m->copies[l]));
    return all;
}

ps_status ps_movement_wait_all(ps_movement *m)
{
    ps_status first = PS_OK;
    while (m->n_flying > 0) {
        const ps_status st = ps_movement_retire(m, m->flying[0]);
        if (first == PS_OK) first = st;
    }
    for (ps_chunk_id id = 0; m->n_overdue > 0 && id < m->r->n_ids; id++) {
        const ps_status st = ps_movement_land(m, id);
        if (first == PS_OK) first = st;
    }
    const ps_events all = issued_so_far(m);
    const ps_status st = m->is_asynchronous ? ps_events_wait(&all) : PS_OK;
    return first == PS_OK ? st : first;
}

static void look_again_later(void)
{
    nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
}

/* It polls instead of waiting for events: a wait would take the failure of a copy, and ps_movement_retire would not get
 * it any more. */
void ps_movement_wait_queues(const ps_movement *m)
{
    const ps_events all = issued_so_far(m);
    ps_block_note(PS_BLOCK_EVENT);
    for (int32_t i = 0; i < m->n_flying; i++)
        while (!has_landed(&m->flights[m->flying[i]])) look_again_later();
    for (ps_chunk_id id = 0; m->n_overdue > 0 && id < m->r->n_ids; id++)
        while (m->overdue[id].active && !has_landed(&m->overdue[id])) look_again_later();
    for (int i = 0; i < all.n; i++)
        while (!ps_event_is_done(all.event[i])) look_again_later();
}
