#include "data/character_pairs.h"

#include <string.h>

#include "base/base.h"
#include "base/mem.h"

ps_status ps_character_pairs_init(ps_character_pairs *s, int64_t n_pairs_max)
{
    memset(s, 0, sizeof *s);
    uint64_t n_slots = 16; /* at most half of them in use */
    while (n_slots < 2 * (uint64_t)n_pairs_max) n_slots *= 2;
    s->mask = n_slots - 1;
    return ps_mem_alloc(n_slots, sizeof *s->slots, &s->slots);
}

void ps_character_pairs_deinit(ps_character_pairs *s)
{
    ps_mem_free(s->slots);
    memset(s, 0, sizeof *s);
}

/* No pair is 0: characters have 21 bits. */
static uint64_t key_of(int32_t left, int32_t right)
{
    return (uint64_t)1 << 63 | (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The slot that holds the pair, or the free one where it belongs. */
static uint64_t *slot_of(const ps_character_pairs *s, uint64_t key)
{
    for (uint64_t i = key * 0x9E3779B97F4A7C15u >> 32 & s->mask;; i = (i + 1) & s->mask)
        if (s->slots[i] == key || s->slots[i] == 0) return &s->slots[i];
}

void ps_character_pairs_add(ps_character_pairs *s, int32_t left, int32_t right)
{
    if ((left | right) < 128)
        s->ascii[(left << 7 | right) / 64] |= (uint64_t)1 << right % 64;
    else
        *slot_of(s, key_of(left, right)) = key_of(left, right);
}

bool ps_character_pairs_have(const ps_character_pairs *s, int32_t left, int32_t right)
{
    if ((left | right) < 128) return s->ascii[(left << 7 | right) / 64] >> right % 64 & 1;
    return *slot_of(s, key_of(left, right)) != 0;
}
