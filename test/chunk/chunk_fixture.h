/* chunk_fixture.h - what the tests of layout, schedule, policy and store share. */
#ifndef CHUNK_FIXTURE_H
#define CHUNK_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/mem.h"
#include "base/rng.h"
#include "chunk/store_impl.h"
#include "chunk/store_stats.h"

/* Fail with the library's message. */
#define assert_ok(expr)                                                                                                \
    do {                                                                                                               \
        const ps_status st_ = (expr);                                                                                  \
        if (st_ != PS_OK) fail_msg("%s: %s", ps_status_name(st_), ps_last_error());                                    \
    } while (0)

typedef struct dice {
    ps_rng_key key;
    uint64_t next;
} dice;

static inline dice dice_of(uint64_t seed)
{
    return (dice){.key = {.seed = seed, .stream = 99}};
}

/* 0 .. sides - 1 */
static inline int32_t roll(dice *d, int32_t sides)
{
    return (int32_t)(ps_rng_u32(d->key, d->next++) % (uint32_t)sides);
}

/* Where the content is current: a TIER_BIT for each. */
static inline unsigned copies_of(const ps_store *s, ps_chunk_id id)
{
    return ps_store_get_chunk(s, id).copies;
}

/* All that is not pinned leaves the tier, as far as others have room. */
static inline ps_status evict_all(ps_store *s, ps_tier tier)
{
    for (ps_chunk_id id = 0; id < s->r.n_ids; id++) {
        const chunk *c = &s->r.chunks[id];
        if (!has_payload(c, tier) || c->pins > 0) continue;
        PS_TRY(ps_movement_retire(&s->m, id));
        PS_TRY(ps_movement_land(&s->m, id));
        if (!is_clean_on(c, tier)) {
            bool started = false;
            PS_TRY(ps_scheduling_write_back(&s->s, id, tier, tier, &started));
            if (!started) continue; /* no other tier has room: it stays */
            PS_TRY(ps_movement_retire(&s->m, id));
            if (!has_payload(c, tier)) continue; /* it was a zero-copy move */
        }
        ps_residency_free(&s->r, id, tier, PS_REASON_EVICT);
    }
    STORE_CHECK(s);
    return PS_OK;
}

#endif
