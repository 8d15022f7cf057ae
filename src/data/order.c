#include "data/order.h"

#include "base/base.h"
#include "base/rng.h"

#define ROUNDS 6

/* At most some four repetitions on average, except for tiny n, where the domain is kept large because few bits permute
 * badly. */
#define HALF_BITS_MIN 4

int64_t ps_order_at(uint64_t seed, uint64_t epoch, int64_t n, int64_t i)
{
    PS_ASSERT(i >= 0 && i < n);
    int half_bits = HALF_BITS_MIN;
    while ((int64_t)1 << 2 * half_bits < n) half_bits++;
    const uint32_t mask = (uint32_t)(((uint64_t)1 << half_bits) - 1);
    const ps_rng_key key = {seed, epoch};
    uint64_t x = (uint64_t)i;
    do {
        uint32_t left = (uint32_t)(x >> half_bits), right = (uint32_t)x & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint32_t words[4];
            ps_rng_block(key, round << 32 | right, words);
            const uint32_t next = left ^ (words[0] & mask);
            left = right;
            right = next;
        }
        x = (uint64_t)left << half_bits | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}
