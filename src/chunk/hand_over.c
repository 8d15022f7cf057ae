/* hand_over.c - payloads that go between device and host where both are one memory: a payload stays where it lies, and
 * its bytes are drawn on the other tier's budget from then on. Nothing is read or written, nothing waits.
 *
 * So a chunk has one payload in RAM, never two, and goes to a tier when it is wanted there: sooner would gain nothing,
 * and take room. Where both tiers are full, payloads trade places:
 *
 *     device  |=== a ===|= b =|          |=== c ===|= b =|
 *     host    |=== c ===|= d =|   -->    |=== a ===|= d =|       c is wanted on the device, a leaves it
 *
 * What the disk is writing may be handed over meanwhile, as its bytes stay where they are; what it is reading when it
 * has ended on the timeline. */
#include "chunk/store_impl.h"

/* Payloads that leave a tier in a trade. */
#define TRADE_MAX 8

static ps_tier other_ram(ps_tier tier)
{
    return tier == PS_TIER_DEVICE ? PS_TIER_HOST : PS_TIER_DEVICE;
}

bool ps_store_can_hand_over(const ps_store *s, ps_chunk_id id, ps_tier to)
{
    const chunk *c = &s->chunks[id];
    if (!s->d.hands_over || !is_current(c, other_ram(to))) return false;
    return c->pins == 0 || c->pin_tier == to;
}

static void let_go(ps_store *s, ps_chunk_id id, ps_tier from, ps_reason why)
{
    const chunk *c = &s->chunks[id];
    int64_t offset = 0;
    ps_region **run = ps_store_run_region(s, id, from, &offset);
    if (run != NULL)
        ps_region_let_go(*run, offset, c->bytes);
    else
        ps_device_let_go(s->d.ram[from], c->bytes);
    s->stats.chunk_bytes[from] -= c->bytes;
    s->use[from].list_bytes[ps_store_list_of(s, id)] -= c->bytes;
    ps_store_record_residency(s, id, from, PS_PROFILE_LEAVE,
                              why == PS_REASON_WRITE_BACK ? PS_REASON_EVICT : PS_REASON_DROP);
}

static void take_over(ps_store *s, ps_chunk_id id, ps_tier to, ps_reason why)
{
    const chunk *c = &s->chunks[id];
    const ps_tier from = other_ram(to);
    int64_t offset = 0;
    ps_region **run = ps_store_run_region(s, id, to, &offset);
    if (run != NULL)
        ps_region_take_over(*run, s->runs[from][run - s->runs[to]], offset, c->bytes);
    else
        ps_device_take_over(s->d.ram[to], s->d.ram[from], c->bytes);
    s->stats.chunk_bytes[to] += c->bytes;
    s->use[to].list_bytes[ps_store_list_of(s, id)] += c->bytes;
    ps_store_note_use(s, to);
    ps_store_record_residency(s, id, to, PS_PROFILE_ARRIVE, why == PS_REASON_WRITE_BACK ? why : PS_REASON_LOAD);
}

/* The bytes have gone from one budget to the other: so has all that is known of them. */
static void note_handed(ps_store *s, ps_chunk_id id, ps_tier to, ps_reason why)
{
    chunk *c = &s->chunks[id];
    const ps_tier from = other_ram(to);
    const ps_link link = to == PS_TIER_DEVICE ? PS_LINK_HOST_TO_DEVICE : PS_LINK_DEVICE_TO_HOST;
    c->payload[to] = c->payload[from];
    c->ready[to] = c->ready[from];
    c->in_use[to] = c->in_use[from];
    c->payload[from] = NULL;
    c->leaving = c->leaving != 0 ? TIER_BIT(to) : 0; /* RAM, not just that tier */
    c->current = (c->current & ~TIER_BIT(from)) | TIER_BIT(to);
    if (c->flight.active) c->flight.src = to;
    if (c->overdue.dst == from) c->overdue.dst = to;
    ps_store_note_ready(s, id);
    s->stats.moved_bytes[link] += c->bytes;
    s->stats.n_moves[link]++;
    ps_store_record_handed(s, id, from, to, link, why);
}

void ps_store_hand_over(ps_store *s, ps_chunk_id id, ps_tier to, ps_reason why)
{
    PS_ASSERT(ps_store_can_hand_over(s, id, to));
    let_go(s, id, other_ram(to), why);
    take_over(s, id, to, why);
    note_handed(s, id, to, why);
}

/* Who would leave `to` so that the chunk has room there: as many as it takes, and as fit into what the chunk leaves. */
static int find_partners(ps_store *s, ps_chunk_id for_id, ps_tier to, ps_chunk_id partners[TRADE_MAX])
{
    const int64_t bytes = s->chunks[for_id].bytes;
    int64_t missing = bytes - ps_store_free_bytes(s, to), room = ps_store_free_bytes(s, other_ram(to)) + bytes;
    int n = 0;
    ps_store_clear_passed(s);
    while (missing > 0) {
        const ps_chunk_id id = n < TRADE_MAX ? ps_store_pick_victim(s, to) : -1;
        if (id < 0) return -1;
        ps_store_pass_over(s, id);
        if (s->chunks[id].bytes > room) continue;
        partners[n++] = id;
        missing -= s->chunks[id].bytes;
        room -= s->chunks[id].bytes;
    }
    return n;
}

bool ps_store_trade_places(ps_store *s, ps_chunk_id id, ps_tier to, ps_reason why)
{
    ps_chunk_id partners[TRADE_MAX];
    const ps_tier from = other_ram(to);
    if (!ps_store_can_hand_over(s, id, to)) return false;
    const int n = find_partners(s, id, to, partners);
    if (n < 0) return false;
    let_go(s, id, from, why);
    for (int i = 0; i < n; i++) let_go(s, partners[i], to, PS_REASON_WRITE_BACK);
    for (int i = 0; i < n; i++) take_over(s, partners[i], from, PS_REASON_WRITE_BACK);
    take_over(s, id, to, why);
    for (int i = 0; i < n; i++) note_handed(s, partners[i], from, PS_REASON_WRITE_BACK);
    note_handed(s, id, to, why);
    return true;
}
