/* store_profile.c - the store's records for a profile. */
#include <time.h>

#include "chunk/store_impl.h"
#include "device/blocking.h"

/* Between two looks at a copy that is waited for. */
#define LOOK_AGAIN_NS 50000

const char *ps_reason_name(ps_reason r)
{
    static const char *const names[PS_REASON_COUNT] = {
        [PS_REASON_WANTED] = "wanted",  [PS_REASON_PREFETCH] = "prefetch",       [PS_REASON_WRITE_BACK] = "write back",
        [PS_REASON_START] = "start",    [PS_REASON_CREATE] = "create",           [PS_REASON_LOAD] = "load",
        [PS_REASON_EVICT] = "evict",    [PS_REASON_ACTIVATIONS] = "activations", [PS_REASON_DROP] = "drop",
        [PS_REASON_DISCARD] = "discard"};
    return r < PS_REASON_COUNT ? names[r] : "?";
}

static void record_memory(const ps_store *s, ps_tier tier, int64_t now_ns)
{
    ps_profile *p = s->d.profile;
    ps_profile_record r = {
        .kind = PS_PROFILE_MEMORY, .chunk = -1, .begin_ns = now_ns, .memory = {.tier = (uint8_t)tier}};
    if (tier == PS_TIER_DISK) {
        r.memory.chunk_bytes = s->disk_used_bytes;
    } else {
        r.memory.chunk_bytes = s->stats.chunk_bytes[tier];
        r.memory.non_model_bytes = tier == PS_TIER_DEVICE ? s->non_model_committed_bytes : 0;
        r.memory.other_bytes = s->other_bytes[tier];
    }
    ps_profile_add(p, &r);
}

void ps_store_record_memory(const ps_store *s, ps_tier tier)
{
    if (ps_profile_is_on(s->d.profile)) record_memory(s, tier, ps_profile_now(s->d.profile));
}

static void record_chunk(const ps_store *s, ps_chunk_id id, ps_tier tier, ps_profile_kind kind, ps_reason why,
                         int64_t now_ns)
{
    ps_profile_add(s->d.profile, &(ps_profile_record){.kind = kind,
                                                      .chunk = id,
                                                      .begin_ns = now_ns,
                                                      .residency = {.tier = (uint8_t)tier, .reason = (uint8_t)why}});
}

void ps_store_record_residency(const ps_store *s, ps_chunk_id id, ps_tier tier, ps_profile_kind kind, ps_reason why)
{
    if (!ps_profile_is_on(s->d.profile)) return;
    const int64_t now_ns = ps_profile_now(s->d.profile);
    record_chunk(s, id, tier, kind, why, now_ns);
    if (tier != PS_TIER_DISK) record_memory(s, tier, now_ns); /* slots are kept */
}

/* Of n parts through pieces of the same size. */
static int64_t part_bytes(const ps_store *s, ps_chunk_id id, int32_t i, int32_t n)
{
    const int64_t bytes = s->chunks[id].bytes, piece_bytes = s->bounce.piece_bytes;
    return n == 1 ? bytes : ps_min_i64(piece_bytes, bytes - i * piece_bytes);
}

void ps_store_record_copy(const ps_store *s, ps_chunk_id id, int64_t asked_ns, ps_reason why)
{
    const flight *f = &s->chunks[id].flight;
    const bool is_cut = f->parts.n > 1 && !s->is_simulated; /* a trial records its estimate as one */
    const int32_t n = is_cut ? f->parts.n : 1;
    for (int32_t i = 0; i < n; i++)
        ps_profile_add(s->d.profile, &(ps_profile_record){.kind = PS_PROFILE_COPY,
                                                          .chunk = id,
                                                          .begin_ns = asked_ns,
                                                          .end_ns = asked_ns,
                                                          .copy = {.ticket = f->done.ticket - (ps_ticket)(n - 1 - i),
                                                                   .bytes = part_bytes(s, id, i, n),
                                                                   .link = (uint8_t)f->link,
                                                                   .from = (uint8_t)f->src,
                                                                   .to = (uint8_t)f->dst,
                                                                   .reason = (uint8_t)why}});
}

void ps_store_record_moved(const ps_store *s, ps_chunk_id id, int64_t begin_ns)
{
    const flight *f = &s->chunks[id].flight;
    ps_profile_add(s->d.profile, &(ps_profile_record){.kind = PS_PROFILE_MOVED,
                                                      .chunk = id,
                                                      .begin_ns = begin_ns,
                                                      .end_ns = f->done_ns,
                                                      .copy = {.ticket = f->done.ticket, .link = (uint8_t)f->link}});
}

void ps_store_record_handed(const ps_store *s, ps_chunk_id id, ps_tier from, ps_tier to, ps_link link, ps_reason why)
{
    if (!ps_profile_is_on(s->d.profile)) return;
    const int64_t now_ns = ps_profile_now(s->d.profile);
    ps_profile_record r = {.chunk = id,
                           .begin_ns = now_ns,
                           .end_ns = now_ns,
                           .copy = {.ticket = (ps_ticket)s->stats.n_moves[link],
                                    .bytes = s->chunks[id].bytes,
                                    .link = (uint8_t)link,
                                    .from = (uint8_t)from,
                                    .to = (uint8_t)to,
                                    .reason = (uint8_t)why}};
    r.kind = PS_PROFILE_COPY;
    ps_profile_add(s->d.profile, &r);
    r.kind = PS_PROFILE_MOVED;
    ps_profile_add(s->d.profile, &r);
}

void ps_store_record_wait(const ps_store *s, ps_chunk_id id, ps_link link, int64_t begin_ns)
{
    ps_profile *p = s->d.profile;
    ps_profile_add(p, &(ps_profile_record){.kind = PS_PROFILE_WAIT,
                                           .chunk = id,
                                           .begin_ns = begin_ns,
                                           .end_ns = ps_profile_now(p),
                                           .copy = {.link = (uint8_t)link}});
}

void ps_store_profile_start(const ps_store *s)
{
    const int64_t begin_ns = ps_profile_begin_ns(s->d.profile);
    for (ps_chunk_id id = 0; id < s->n_ids; id++)
        for (int t = 0; t < PS_TIER_COUNT; t++)
            if (t == PS_TIER_DISK ? is_current(&s->chunks[id], PS_TIER_DISK) : s->chunks[id].payload[t] != NULL)
                record_chunk(s, id, (ps_tier)t, PS_PROFILE_ARRIVE, PS_REASON_START, begin_ns);
    for (int t = 0; t < PS_TIER_COUNT; t++) record_memory(s, (ps_tier)t, begin_ns);
}

static void look_again_later(void)
{
    nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_NS}, NULL);
}

/* Looks instead of waiting for the event: a wait would be told of a failed copy, and ps_store_retire would not any
 * more. */
static void look_until_done(ps_event e)
{
    while (!ps_event_is_done(e)) look_again_later();
}

void ps_store_profile_settle(const ps_store *s)
{
    ps_block_note(PS_BLOCK_EVENT);
    for (int32_t i = 0; i < s->n_flying; i++)
        while (!ps_store_has_landed(&s->chunks[s->flying[i]].flight)) look_again_later();
    for (ps_chunk_id id = 0; s->n_overdue > 0 && id < s->n_ids; id++)
        while (s->chunks[id].overdue.active && !ps_store_has_landed(&s->chunks[id].overdue)) look_again_later();
    for (int l = 0; l < PS_LINK_COUNT; l++)
        if (s->copies[l] != NULL) look_until_done(ps_queue_event(s->copies[l]));
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++)
        if (s->d.compute[t] != NULL) look_until_done(ps_queue_event(s->d.compute[t]));
}
