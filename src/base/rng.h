/* rng.h - counter-based random numbers: the value at (key, index) is a pure function, so any split of the
 * work over threads, chunks or ranks draws the same numbers, and a recomputed dropout mask equals the first.
 *
 * Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11. */
#ifndef PS_BASE_RNG_H
#define PS_BASE_RNG_H

#include <stdint.h>

/* Selects a sequence: `seed` is the user's, `stream` separates the uses (tensor, step, operator). */
typedef struct ps_rng_key {
    uint64_t seed, stream;
} ps_rng_key;

/* Block `index` of the sequence: four independent uniform 32-bit words. */
static inline void ps_rng_block(ps_rng_key key, uint64_t index, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)key.stream, c3 = (uint32_t)(key.stream >> 32);
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1, c3 = (uint32_t)p0, c0 = n0, c2 = n2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Word `index` alone (element index / 4 of block, index % 4 within). */
static inline uint32_t ps_rng_u32(ps_rng_key key, uint64_t index)
{
    uint32_t w[4];
    ps_rng_block(key, index / 4, w);
    return w[index % 4];
}

/* Uniform in [0, 1) with 24 bits, from a random word. */
static inline float ps_rng_unit(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

#endif
