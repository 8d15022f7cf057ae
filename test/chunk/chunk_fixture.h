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

/* A store over RAM and a temporary file. */
typedef struct small_world {
    ps_layout *layout;
    ps_device *ram[PS_RAM_TIER_COUNT];
    ps_disk *disk;
    ps_store *store;
    ps_queue *gate; /* of the test, or NULL; outlives the store */
} small_world;

/* n_chunks tensors that fill a chunk each. desc: all but layout, ram and disk. */
static inline void open_small_world(small_world *w, const ps_store_desc *desc, int32_t n_chunks, int64_t chunk_elements,
                                    const bool *in_first_list_only, int64_t device_bytes, int64_t host_bytes)
{
    int64_t elements[16];
    ps_store_desc d = *desc;
    assert_true(n_chunks <= (int32_t)PS_ARRAY_LEN(elements));
    for (int32_t i = 0; i < n_chunks; i++) elements[i] = chunk_elements;
    *w = (small_world){0};
    assert_ok(ps_layout_create(elements, in_first_list_only, n_chunks, chunk_elements, &w->layout));
    assert_ok(ps_device_create(&ps_device_cpu_ops, "device", device_bytes, &w->ram[PS_TIER_DEVICE]));
    assert_ok(ps_device_create(&ps_device_cpu_ops, "host", host_bytes, &w->ram[PS_TIER_HOST]));
    assert_ok(ps_disk_open("/tmp", PS_DISK_AUTO, 4, &w->disk));
    d.layout = w->layout;
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) d.ram[t] = w->ram[t];
    d.disk = w->disk;
    assert_ok(ps_store_create(&d, &w->store));
}

static inline void close_small_world(small_world *w)
{
    assert_ok(ps_movement_wait_all(&w->store->m));
    assert_int_equal(w->store->m.n_overdue, 0);
    assert_ok(ps_store_check(w->store));
    ps_store_destroy(w->store);
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) ps_device_destroy(w->ram[t]);
    ps_disk_close(w->disk);
    ps_queue_destroy(w->gate);
    ps_layout_destroy(w->layout);
    assert_int_equal(ps_mem_live_bytes(), 0);
}

#endif
