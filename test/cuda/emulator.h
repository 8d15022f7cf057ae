/* emulator.h - CUDA's words for a C++ compiler of the host: included before a .cu file, which then becomes functions that
 * emulate.cpp runs, one fiber a thread of a block.
 *
 * Blocks one after the other, in an order drawn from a seed; warps, and the lanes within, in drawn orders from one
 * barrier to the next: what one thread reads of another without a barrier between is right in one order and wrong in
 * another. A thread that misses a barrier which others wait at, or a lane a shuffle, ends the program with a message.
 * Shared memory is ones (NaN) when a block begins, with guards after each array.
 *
 * Copies to shared memory arrive early, late or at a drawn time (emulate.cpp). Products of a warp are sums in float, in the
 * order of k.
 *
 * Not emulated: the memory model within a barrier's interval, timing; a * b + c is rounded twice, fmaf once. */
#ifndef TEST_CUDA_EMULATOR_H
#define TEST_CUDA_EMULATOR_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

extern "C" {
#include "base/dtype.h"
}

#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __grid_constant__

#include "cuda/emu_calls.h"

#define threadIdx emu_thread_index
#define blockIdx emu_block_index
#define blockDim emu_block_dim
#define gridDim emu_grid_dim

#define PS_SHARED(type, name) type &name = *static_cast<type *>(emu_shared(sizeof(type)))
#define PS_SHARED_SIZED(type, name) type *const name = static_cast<type *>(emu_shared_sized())
#define PS_INFINITY INFINITY

/* ---- barriers and warps ---- */

static inline void __syncthreads(void)
{
    emu_block_barrier();
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emu_warp_barrier(mask);
}

template <typename T> static inline T emu_shuffle(const char *what, unsigned mask, T x, unsigned from)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "");
    uint64_t word = 0;
    memcpy(&word, &x, sizeof x);
    word = emu_warp_sync(what, mask, word)[from % 32];
    memcpy(&x, &word, sizeof x);
    return x;
}

template <typename T> static inline T __shfl_sync(unsigned mask, T x, int lane)
{
    return emu_shuffle("__shfl_sync", mask, x, (unsigned)lane);
}

template <typename T> static inline T __shfl_xor_sync(unsigned mask, T x, int bits)
{
    return emu_shuffle("__shfl_xor_sync", mask, x, emu_thread_index.x ^ (unsigned)bits);
}

/* A lane whose source is below 0 has its own. */
template <typename T> static inline T __shfl_up_sync(unsigned mask, T x, unsigned distance)
{
    const unsigned lane = emu_thread_index.x % 32;
    return emu_shuffle("__shfl_up_sync", mask, x, lane >= distance ? lane - distance : lane);
}

static inline unsigned __ballot_sync(unsigned mask, int vote)
{
    const uint64_t *const votes = emu_warp_sync("__ballot_sync", mask, vote != 0);
    unsigned all = 0;
    for (unsigned i = 0; i < 32; i++) all |= (unsigned)votes[i] << i;
    return all;
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

/* ---- products of a warp, and copies to shared memory: see cuda_mma.cuh ---- */

struct ps_bf16;
struct ps_f16;
template <typename T> struct emu_is_bf16 {
    static constexpr bool value = false;
};
template <> struct emu_is_bf16<ps_bf16> {
    static constexpr bool value = true;
};

template <typename T> static inline void mma_words(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    emu_mma(c, a, b0, b1, emu_is_bf16<T>::value);
}

static inline void load_matrices(unsigned (&r)[4], const void *row)
{
    emu_load_matrices(r, row, false);
}

static inline void load_matrices_turned(unsigned (&r)[4], const void *row)
{
    emu_load_matrices(r, row, true);
}

template <int BYTES> static inline void copy_begin(void *to, const void *from, bool is_there)
{
    emu_copy_begin(to, from, BYTES, is_there);
}

static inline void copies_commit(void)
{
    emu_copies_commit();
}

template <int N> static inline void copies_wait(void)
{
    emu_copies_wait(N);
}

static inline float exp2_fast(float x)
{
    return x < -126.0f ? 0.0f : exp2f(x);
}

/* ---- arithmetic ---- */

static inline int min(int a, int b)
{
    return a < b ? a : b;
}

static inline int max(int a, int b)
{
    return a > b ? a : b;
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

static inline int __float_as_int(float x)
{
    int bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float __int_as_float(int bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}

static inline float __fsub_rn(float a, float b)
{
    return a - b;
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}

/* One thread runs at a time. */
template <typename T> static inline T atomicAdd(T *p, T x)
{
    const T before = *p;
    *p = before + x;
    return before;
}

template <typename T> static inline T atomicMax(T *p, T x)
{
    const T before = *p;
    if (x > before) *p = x;
    return before;
}

#endif
