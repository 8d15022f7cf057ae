/* cuda_random.cuh - base/rng.h on the device: the same words. */
#ifndef PS_KERNEL_CUDA_CUDA_RANDOM_CUH
#define PS_KERNEL_CUDA_CUDA_RANDOM_CUH

#include "kernel/cuda/cuda_device.cuh"

/* ps_rng_block */
__device__ inline void random_block(ps_rng_key key, uint64_t index, uint32_t (&out)[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)key.stream, c3 = (uint32_t)(key.stream >> 32);
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint32_t n0 = __umulhi(0xCD9E8D57u, c2) ^ c1 ^ k0, n2 = __umulhi(0xD2511F53u, c0) ^ c3 ^ k1;
        c1 = 0xCD9E8D57u * c2, c3 = 0xD2511F53u * c0, c0 = n0, c2 = n2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* ps_rng_u32 */
__device__ inline uint32_t random_word(ps_rng_key key, uint64_t index)
{
    uint32_t w[4];
    random_block(key, index / 4, w);
    const uint32_t low = index & 1 ? w[1] : w[0], high = index & 1 ? w[3] : w[2];
    return index & 2 ? high : low;
}

/* ps_dropout_threshold */
__device__ inline uint32_t dropout_threshold(float p)
{
    return (uint32_t)((double)p * 4294967296.0);
}

#endif
