/* cpu_random.h - many random words at once; same numbers as ps_rng_block. For the files in isa/. */
#ifndef PS_KERNEL_CPU_RANDOM_H
#define PS_KERNEL_CPU_RANDOM_H

#include "kernel/cpu/cpu_isa.h"

#define PS_RANDOM_BLOCKS 16
#define PS_RANDOM_WORDS (4 * PS_RANDOM_BLOCKS)

/* Words of the blocks [first_block, first_block + PS_RANDOM_BLOCKS). The rounds of all blocks go side by side, which is
 * what the compiler vectorises. */
static inline void ps_random_words(uint32_t out[PS_RANDOM_WORDS], ps_rng_key key, uint64_t first_block)
{
    uint32_t c0[PS_RANDOM_BLOCKS], c1[PS_RANDOM_BLOCKS], c2[PS_RANDOM_BLOCKS], c3[PS_RANDOM_BLOCKS];
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    for (unsigned l = 0; l < PS_RANDOM_BLOCKS; l++) {
        c0[l] = (uint32_t)(first_block + l), c1[l] = (uint32_t)((first_block + l) >> 32);
        c2[l] = (uint32_t)key.stream, c3[l] = (uint32_t)(key.stream >> 32);
    }
    for (int round = 0; round < 10; round++) {
#pragma omp simd
        for (int l = 0; l < PS_RANDOM_BLOCKS; l++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * c0[l], p1 = (uint64_t)0xCD9E8D57u * c2[l];
            const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1[l] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3[l] ^ k1;
            c1[l] = (uint32_t)p1, c3[l] = (uint32_t)p0, c0[l] = n0, c2[l] = n2;
        }
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    for (int l = 0; l < PS_RANDOM_BLOCKS; l++) {
        out[4 * l] = c0[l], out[4 * l + 1] = c1[l];
        out[4 * l + 2] = c2[l], out[4 * l + 3] = c3[l];
    }
}

/* The same words as dropout factors: `factor` for those kept, 0 for those dropped. */
static inline void ps_random_keep(float out[PS_RANDOM_WORDS], ps_rng_key key, uint64_t first_block, uint32_t threshold,
                                  float factor)
{
    uint32_t words[PS_RANDOM_WORDS];
    ps_random_words(words, key, first_block);
    for (int i = 0; i < PS_RANDOM_WORDS; i++) out[i] = words[i] >= threshold ? factor : 0.0f;
}

#endif
