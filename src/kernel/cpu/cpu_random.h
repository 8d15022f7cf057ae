/* cpu_random.h - vectorised random words, equal to those of ps_rng_block. For the files in isa/. */
#ifndef PS_KERNEL_CPU_RANDOM_H
#define PS_KERNEL_CPU_RANDOM_H

#include "kernel/cpu/cpu_vec.h"

#define PS_RANDOM_BLOCKS 16
#define PS_RANDOM_WORDS (4 * PS_RANDOM_BLOCKS)

/* A word of several blocks, each in the lower half of its lane; upper halves are undefined. */
#define PS_RANDOM_LANES (VF_LANES / 2)
typedef uint64_t ps_random_vec __attribute__((vector_size(PS_RANDOM_LANES * 8)));

/* The products of the lower halves. */
PS_CPU_INLINE ps_random_vec ps_random_mul(ps_random_vec a, ps_random_vec b)
{
#if defined(PS_VEC_AVX512)
    return (ps_random_vec)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(PS_VEC_AVX2)
    return (ps_random_vec)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
    return (a & UINT32_MAX) * (b & UINT32_MAX);
#endif
}

/* out[2 l] = even[l], out[2 l + 1] = odd[l] */
PS_CPU_INLINE void ps_random_interleave(void *out, ps_random_vec even, ps_random_vec odd)
{
#if PS_RANDOM_LANES == 8
    const ps_random_vec low = __builtin_shufflevector(even, odd, 0, 8, 1, 9, 2, 10, 3, 11);
    const ps_random_vec high = __builtin_shufflevector(even, odd, 4, 12, 5, 13, 6, 14, 7, 15);
#elif PS_RANDOM_LANES == 4
    const ps_random_vec low = __builtin_shufflevector(even, odd, 0, 4, 1, 5);
    const ps_random_vec high = __builtin_shufflevector(even, odd, 2, 6, 3, 7);
#else
    const ps_random_vec low = __builtin_shufflevector(even, odd, 0, 2);
    const ps_random_vec high = __builtin_shufflevector(even, odd, 1, 3);
#endif
    memcpy(out, &low, sizeof low);
    memcpy((char *)out + sizeof low, &high, sizeof high);
}

/* Words of the blocks [first_block, first_block + PS_RANDOM_LANES): ps_rng_block, lane by lane. */
PS_CPU_INLINE void ps_random_group(uint32_t *out, ps_rng_key key, uint64_t first_block)
{
    const ps_random_vec zero = {0}, m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
    ps_random_vec c0 = zero + first_block, c2 = zero + key.stream;
    for (int l = 0; l < PS_RANDOM_LANES; l++) c0[l] += (uint64_t)l;
    ps_random_vec c1 = c0 >> 32, c3 = c2 >> 32;
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    for (int round = 0; round < 10; round++) {
        const ps_random_vec p0 = ps_random_mul(m0, c0), p1 = ps_random_mul(m1, c2);
        c0 = (p1 >> 32) ^ c1 ^ (zero + k0), c2 = (p0 >> 32) ^ c3 ^ (zero + k1);
        c1 = p1, c3 = p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    ps_random_interleave(out, (c0 & UINT32_MAX) | c1 << 32, (c2 & UINT32_MAX) | c3 << 32);
}

/* Words of the blocks [first_block, first_block + PS_RANDOM_BLOCKS). */
PS_CPU_INLINE void ps_random_words(uint32_t out[PS_RANDOM_WORDS], ps_rng_key key, uint64_t first_block)
{
    for (int b = 0; b < PS_RANDOM_BLOCKS; b += PS_RANDOM_LANES)
        ps_random_group(out + 4 * b, key, first_block + (uint64_t)b);
}

/* The same words as dropout factors: `factor` for those kept, 0 for those dropped. */
PS_CPU_INLINE void ps_random_keep(float out[PS_RANDOM_WORDS], ps_rng_key key, uint64_t first_block, uint32_t threshold,
                                  float factor)
{
    uint32_t words[PS_RANDOM_WORDS];
    ps_random_words(words, key, first_block);
    for (int i = 0; i < PS_RANDOM_WORDS; i += VF_LANES) {
        vu w;
        memcpy(&w, words + i, sizeof w);
        vf_store(out + i, vf_where((vi)(w >= threshold), vf_set1(factor), vf_set1(0.0f)));
    }
}

#endif
