/* transfer.c - copies of payloads between tiers: starting, waiting, failing. */
#include "base/machine.h"
#include "chunk/store_impl.h"

static ps_link link_between(ps_tier src, ps_tier dst)
{
    if (src == PS_TIER_DISK) return PS_LINK_DISK_READ;
    if (dst == PS_TIER_DISK) return PS_LINK_DISK_WRITE;
    return dst == PS_TIER_DEVICE ? PS_LINK_HOST_TO_DEVICE : PS_LINK_DEVICE_TO_HOST;
}

/* ---- starting ---- */

/* Between device and host, each queue waiting for what it needs. */
static ps_status copy_payload(ps_store *s, ps_chunk_id id, ps_tier src, ps_tier dst, ps_event *done)
{
    chunk *c = &s->chunks[id];
    ps_queue *q = s->copies[link_between(src, dst)];
    PS_TRY(ps_store_await_whole(s, id, src, q, PS_WAIT_WRITE_BACK));
    PS_TRY(ps_store_await_unused(s, id, dst, q, PS_WAIT_ROOM));
    PS_TRY(ps_queue_copy(q, c->payload[dst], c->payload[src], c->bytes));
    *done = ps_queue_event(q);
    ps_store_note_item(s, id, src, *done, false);
    ps_store_note_item(s, id, dst, *done, true);
    return PS_OK;
}

/* The disk begins when the memory is unused, or its content whole. */
static ps_status read_payload(ps_store *s, ps_chunk_id id, ps_tier dst, ps_disk_parts *parts)
{
    const chunk *c = &s->chunks[id];
    ps_events unused = {.n = 0};
    ps_event done;
    if (ps_store_bounces(s, dst)) return ps_store_bounce(s, id, false, parts);
    ps_events_add_all_at(&unused, &c->in_use[dst], PS_WAIT_ROOM);
    PS_TRY(ps_disk_read(s->d.disk, c->disk_offset, c->payload[dst], c->bytes, &unused, &done));
    ps_disk_parts_add(parts, done);
    return PS_OK;
}

static ps_status write_payload(ps_store *s, ps_chunk_id id, ps_tier src, ps_disk_parts *parts)
{
    const chunk *c = &s->chunks[id];
    ps_events whole = {.n = 0};
    ps_event done;
    if (ps_store_bounces(s, src)) return ps_store_bounce(s, id, true, parts);
    ps_events_add_at(&whole, c->ready[src], PS_WAIT_WRITE_BACK);
    PS_TRY(ps_disk_write(s->d.disk, c->disk_offset, c->payload[src], c->bytes, &whole, &done));
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

/* When it cannot be issued as a whole, nothing of it is under way. */
static ps_status issue(ps_store *s, ps_chunk_id id, ps_tier src, ps_tier dst, flight *f)
{
    ps_status st;
    if (f->link == PS_LINK_DISK_READ)
        st = read_payload(s, id, dst, &f->parts);
    else if (f->link == PS_LINK_DISK_WRITE)
        st = write_payload(s, id, src, &f->parts);
    else
        return copy_payload(s, id, src, dst, &f->done);
    if (st != PS_OK)
        (void)await_parts(&f->parts);
    else
        f->done = part(&f->parts, f->parts.n - 1);
    return st;
}

ps_status ps_store_start_transfer(ps_store *s, ps_chunk_id id, ps_tier src, ps_tier dst, ps_reason why)
{
    chunk *c = &s->chunks[id];
    PS_ASSERT(!c->flight.active && src != dst && is_current(c, src));
    PS_TRY(ps_store_land(s, id));
    const ps_link link = link_between(src, dst);
    const int64_t asked_ns = ps_profile_now(s->d.profile);
    flight f = {.active = true, .src = src, .dst = dst, .link = link};
    PS_TRY(issue(s, id, src, dst, &f));

    int64_t begin_ns;
    f.done_ns = ps_timeline_transfer(&s->time, link, c->bytes, &begin_ns);
    c->flight = f;
    ps_store_note_ready(s, id);
    s->flying[s->n_flying++] = id;
    s->stats.moved_bytes[link] += c->bytes;
    s->stats.n_moves[link]++;
    ps_store_record_copy(s, id, asked_ns, why);
    if (tells_times(s)) ps_store_record_moved(s, id, begin_ns);
    return s->d.wait_at_once ? ps_store_retire(s, id) : PS_OK;
}

void ps_store_wait_estimated(ps_store *s, ps_chunk_id id, ps_link link, int64_t done_ns)
{
    const int64_t begin_ns = s->time.now_ns;
    ps_timeline_wait(&s->time, link, done_ns);
    if (tells_times(s) && s->time.now_ns > begin_ns) ps_store_record_wait(s, id, link, begin_ns);
}

/* ---- ending ---- */

static void forget_flight(ps_store *s, ps_chunk_id id)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < s->n_flying; i++)
        if (s->flying[i] != id) s->flying[kept++] = s->flying[i];
    s->n_flying = kept;
    s->chunks[id].flight.active = false;
    ps_store_note_ready(s, id);
    note_free(s, &s->chunks[id]);
}

/* The host waits for what the disk does: it may fail, and what it came from is still there then. For other copies it
 * waits where the device does not work later; else whoever uses the payload next does, on its queue. */
static ps_status await_flight(ps_store *s, ps_chunk_id id, const flight *f)
{
    if (s->d.works_later && f->parts.n == 0) return PS_OK;
    const bool done = ps_store_has_landed(f);
    const int64_t begin_ns = done ? 0 : ps_clock_ns(), profile_ns = done ? 0 : ps_profile_now(s->d.profile);
    const ps_status st = f->parts.n > 0 ? await_parts(&f->parts) : ps_event_wait(f->done);
    if (done) return st;
    s->stats.wait_ns += ps_clock_ns() - begin_ns;
    ps_store_record_wait(s, id, f->link, profile_ns);
    return st;
}

bool ps_store_has_landed(const flight *f)
{
    for (int32_t i = 0; i < f->parts.n; i++)
        if (!ps_event_is_done(part(&f->parts, i))) return false;
    return ps_event_is_done(f->done);
}

static void note_arrived(ps_store *s, ps_chunk_id id, const flight *f)
{
    s->chunks[id].current |= TIER_BIT(f->dst);
    ps_store_note_ready(s, id);
    if (f->dst == PS_TIER_DISK) ps_store_record_residency(s, id, PS_TIER_DISK, PS_PROFILE_ARRIVE, PS_REASON_WRITE_BACK);
}

ps_status ps_store_retire(ps_store *s, ps_chunk_id id)
{
    const chunk *c = &s->chunks[id];
    if (!c->flight.active) return PS_OK;
    const flight f = c->flight;
    const ps_status st = await_flight(s, id, &f);
    ps_store_wait_estimated(s, id, f.link, f.done_ns);
    forget_flight(s, id);
    if (st == PS_OK)
        note_arrived(s, id, &f);
    else if (f.dst != PS_TIER_DISK)
        ps_store_take_payload(s, id, f.dst, PS_REASON_DROP);
    return st;
}

ps_status ps_store_retire_on_timeline(ps_store *s, ps_chunk_id id)
{
    chunk *c = &s->chunks[id];
    if (c->flight.parts.n == 0 || ps_store_has_landed(&c->flight)) return ps_store_retire(s, id);
    PS_ASSERT(!c->overdue.active && c->flight.done_ns <= s->time.now_ns);
    c->overdue = c->flight;
    s->n_overdue++;
    forget_flight(s, id);
    note_arrived(s, id, &c->overdue);
    return PS_OK;
}

ps_status ps_store_land(ps_store *s, ps_chunk_id id)
{
    chunk *c = &s->chunks[id];
    if (!c->overdue.active) return PS_OK;
    const flight f = c->overdue;
    c->overdue.active = false;
    s->n_overdue--;
    const ps_status st = await_flight(s, id, &f);
    if (st == PS_OK) return PS_OK;
    if (f.dst == PS_TIER_DISK)
        ps_store_forget_disk_content(s, id, PS_REASON_DROP);
    else
        ps_store_take_payload(s, id, f.dst, PS_REASON_DROP);
    return st;
}

ps_status ps_store_retire_due(ps_store *s)
{
    for (int32_t i = 0; i < s->n_flying;) {
        if (s->chunks[s->flying[i]].flight.done_ns <= s->time.now_ns)
            PS_TRY(ps_store_retire_on_timeline(s, s->flying[i])); /* removes entry i */
        else
            i++;
    }
    return PS_OK;
}

ps_status ps_store_start_load(ps_store *s, ps_chunk_id id, ps_tier tier, ps_reason why)
{
    chunk *c = &s->chunks[id];
    const ps_tier other = tier == PS_TIER_DEVICE ? PS_TIER_HOST : PS_TIER_DEVICE;
    const ps_tier src = is_current(c, other) ? other : PS_TIER_DISK;
    if (ps_store_can_hand_over(s, id, tier)) {
        ps_store_hand_over(s, id, tier, why);
        return PS_OK;
    }
    PS_TRY(ps_store_give_payload(s, id, tier, why == PS_REASON_WRITE_BACK ? why : PS_REASON_LOAD));
    const ps_status st = ps_store_start_transfer(s, id, src, tier, why);
    if (st != PS_OK && has_payload(c, tier)) ps_store_take_payload(s, id, tier, PS_REASON_DROP);
    return st;
}

ps_status ps_store_bring(ps_store *s, ps_chunk_id id, ps_tier tier, ps_reason why)
{
    if (ps_store_trade_places(s, id, tier, why)) return PS_OK;
    PS_TRY(ps_store_make_room(s, tier, s->chunks[id].bytes, PS_REASON_EVICT));
    return ps_store_start_load(s, id, tier, why);
}

ps_status ps_store_drop_spare_host(ps_store *s, ps_chunk_id for_id)
{
    const int64_t need = s->chunks[for_id].bytes;
    for (int kind = PS_SPARE_DUPLICATE; kind <= PS_SPARE_USED_LATER; kind++)
        for (ps_chunk_id id = 0; ps_store_free_bytes(s, PS_TIER_HOST) < need; id++) {
            id = ps_store_next_spare(s, id, (ps_spare_kind)kind, for_id);
            if (id < 0) break;
            PS_TRY(ps_store_land(s, id));
            ps_store_take_payload(s, id, PS_TIER_HOST, kind == PS_SPARE_DUPLICATE ? PS_REASON_DROP : PS_REASON_EVICT);
            s->stats.n_dropped++;
        }
    return PS_OK;
}

static void note_leaving(ps_store *s, ps_chunk_id id, ps_tier from)
{
    if (has_payload(&s->chunks[id], from)) s->chunks[id].leaving |= TIER_BIT(from); /* it was not handed over */
    ps_store_note_standing(s, id);
    s->stats.n_written_back++;
}

ps_status ps_store_start_write_back(ps_store *s, ps_chunk_id id, ps_tier from, ps_tier room_on, bool *started)
{
    *started = false;
    chunk *c = &s->chunks[id];
    if (from == PS_TIER_DEVICE && room_on != PS_TIER_HOST) {
        if (ps_store_free_bytes(s, PS_TIER_HOST) < c->bytes) PS_TRY(ps_store_drop_spare_host(s, id));
        if (ps_store_free_bytes(s, PS_TIER_HOST) >= c->bytes) {
            const ps_status st = ps_store_start_load(s, id, PS_TIER_HOST, PS_REASON_WRITE_BACK);
            *started = st == PS_OK;
            if (*started) note_leaving(s, id, from);
            return st;
        }
    }
    PS_TRY(ps_store_take_slot(s, id));
    if (c->disk_offset != NO_SLOT) {
        PS_TRY(ps_store_start_transfer(s, id, from, PS_TIER_DISK, PS_REASON_WRITE_BACK));
        *started = true;
    } else if (from == PS_TIER_HOST && room_on != PS_TIER_DEVICE &&
               ps_store_free_bytes(s, PS_TIER_DEVICE) >= c->bytes) {
        PS_TRY(ps_store_start_load(s, id, PS_TIER_DEVICE, PS_REASON_WRITE_BACK)); /* no disk: up, where there is room */
        *started = true;
    }
    if (*started) note_leaving(s, id, from);
    return PS_OK;
}
