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
#include "chunk/store.h"

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

#endif
