/* ptx_run.h - what C that tool/ptx_to_c.py made of PTX is made of: instructions that are more than an expression, checks of
 * addresses. Included by such files only. Semantics are those of the PTX ISA ("PTX ISA 9.0", chapter 9); a NaN that an
 * operation makes may be another one, and approximations are rounded results. */
#ifndef TEST_CUDA_PTX_RUN_H
#define TEST_CUDA_PTX_RUN_H

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "cuda/emu_calls.h"

static inline float ptx_f32(uint32_t x)
{
    float f;
    memcpy(&f, &x, sizeof f);
    return f;
}

static inline uint32_t ptx_b32(float f)
{
    uint32_t x;
    memcpy(&x, &f, sizeof x);
    return x;
}

static inline double ptx_f64(uint64_t x)
{
    double f;
    memcpy(&f, &x, sizeof f);
    return f;
}

static inline uint64_t ptx_b64(double f)
{
    uint64_t x;
    memcpy(&x, &f, sizeof x);
    return x;
}

/* ---- addresses: each access is of this many bytes, and aligned to them ---- */

#define PTX_RARE(condition) __builtin_expect((condition), 0)

#define PTX_CHECK(kind, site, address, bytes, line)                                                                    \
    if (PTX_RARE(((address) & ((bytes)-1)) != 0 || (address)-sites_[site].begin >= sites_[site].n_places))             \
    emu_site_##kind(&sites_[site], address, bytes, line)

/* Shared memory at an offset, of which the upper half of a register is no part. */
#define PTX_SHARED(site, address, bytes, access, line)                                                                 \
    PTX_CHECK(shared, site, address, bytes, line);                                                                     \
    if (PTX_RARE(emu_finds_races)) emu_touch_shared(address, bytes, access, line)
#define PTX_GLOBAL(site, address, bytes, access, line)                                                                 \
    PTX_CHECK(global, site, address, bytes, line);                                                                     \
    PTX_COUNT(global, site, address, bytes, access, line)
#define PTX_GENERIC(site, address, bytes, access, line)                                                                \
    PTX_CHECK(generic, site, address, bytes, line);                                                                    \
    PTX_COUNT(generic, site, address, bytes, access, line);                                                            \
    if (PTX_RARE(emu_finds_races)) emu_touch_generic(address, bytes, access, line)
/* By --count each is counted, of a kernel's own and of the functions that it calls: first_site_ is the first one's number. */
#ifdef PTX_COUNTS
#define PTX_COUNT(kind, site, address, bytes, access, line)                                                            \
    emu_count_##kind(first_site_ + (site), address, bytes, access, line)
#define PTX_COUNT_OFF(site) emu_count_off(first_site_ + (site))
#else
#define PTX_COUNT(kind, site, address, bytes, access, line) ((void)0)
#define PTX_COUNT_OFF(site) ((void)0)
#endif
/* [begin, begin + size): parameters, and local memory. */
#define PTX_OWN(what, address, bytes, begin, size, line)                                                               \
    if (PTX_RARE(((address) & ((bytes)-1)) != 0 || (address) - (uint64_t)(begin) > (size) - (bytes)))                  \
    emu_site_outside(what, (address) - (uint64_t)(begin), size, bytes, line)

/* ---- numbers ---- */

#define PTX_DIVISION(type, suffix)                                                                                     \
    static inline type ptx_div_##suffix(type a, type b, unsigned line)                                                 \
    {                                                                                                                  \
        if (b == 0) emu_stop_at("a division by zero", line);                                                           \
        return (type)-1 < 0 && b == (type)-1 ? (type)(0 - a) : a / b;                                                  \
    }                                                                                                                  \
    static inline type ptx_rem_##suffix(type a, type b, unsigned line)                                                 \
    {                                                                                                                  \
        if (b == 0) emu_stop_at("a division by zero", line);                                                           \
        return (type)-1 < 0 && b == (type)-1 ? 0 : a % b;                                                              \
    }
PTX_DIVISION(uint32_t, u32)
PTX_DIVISION(int32_t, s32)
PTX_DIVISION(uint64_t, u64)
PTX_DIVISION(int64_t, s64)

/* The other one of a number and a NaN; +0 is more than -0. */
static inline float ptx_max_f32(float a, float b)
{
    if (a != a || b != b) return a == a ? a : b == b ? b : ptx_f32(0x7fffffffu);
    return a > b || (a == b && !__builtin_signbit(a)) ? a : b;
}

static inline float ptx_min_f32(float a, float b)
{
    if (a != a || b != b) return a == a ? a : b == b ? b : ptx_f32(0x7fffffffu);
    return a < b || (a == b && __builtin_signbit(a)) ? a : b;
}

/* By another rounding than to the nearest. */
static inline float ptx_rounded(unsigned rounding, float a, float b, float c)
{
    const unsigned mode = _mm_getcsr();
    volatile float x = a, y = b, z = c, r;
    _mm_setcsr((mode & ~_MM_ROUND_MASK) | rounding);
    r = __builtin_fmaf(x, y, z);
    __asm__ volatile("" ::: "memory");
    _mm_setcsr(mode);
    return r;
}

static inline float ptx_fma_rm(float a, float b, float c)
{
    return ptx_rounded(_MM_ROUND_DOWN, a, b, c);
}

static inline float ptx_add_rz(float a, float b)
{
    return ptx_rounded(_MM_ROUND_TOWARD_ZERO, a, 1.0f, b);
}

static inline float ptx_sat(float x)
{
    return !(x > 0.0f) ? 0.0f : x > 1.0f ? 1.0f : x;
}

static inline float ptx_ftz(float x)
{
    return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}

static inline float ptx_ex2(float x)
{
    return x < -126.0f ? 0.0f : ptx_ftz(exp2f(ptx_ftz(x)));
}

static inline float ptx_rcp(float x)
{
    return ptx_ftz(1.0f / ptx_ftz(x));
}

static inline uint16_t ptx_bf16(float f)
{
    const uint32_t x = ptx_b32(f);
    return f != f ? 0x7fff : (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

static inline uint16_t ptx_f16(float f)
{
    return f != f ? 0x7fff : _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
}

static inline float ptx_of_f16(uint16_t x)
{
    return _cvtsh_ss(x);
}

/* To integers: the nearest that there is; of a NaN 0. */
static inline int32_t ptx_s32_rni(double x)
{
    return x != x ? 0 : x >= 0x1p31 ? INT32_MAX : x < -0x1p31 ? INT32_MIN : (int32_t)__builtin_nearbyint(x);
}

static inline uint32_t ptx_u32_rzi(double x)
{
    return !(x > 0) ? 0 : x >= 0x1p32 ? UINT32_MAX : (uint32_t)x;
}

static inline uint64_t ptx_u64_rzi(double x)
{
    return !(x > 0) ? 0 : x >= 0x1p64 ? UINT64_MAX : (uint64_t)x;
}

/* `length` bits of a in place of those of b from `position` on. */
static inline uint32_t ptx_bfi(uint32_t a, uint32_t b, uint32_t position, uint32_t length)
{
    position &= 255, length &= 255;
    if (position >= 32 || length == 0) return b;
    const uint64_t ones = length >= 32 ? UINT32_MAX : (1ull << length) - 1, mask = ones << position;
    return (uint32_t)((b & ~mask) | ((uint64_t)a << position & mask));
}

/* ---- warps: c has the lanes of a part of a warp in its bits 8 to 12, and the last lane of one that may be read ---- */

static inline uint32_t ptx_shfl_bfly(uint32_t a, uint32_t b, uint32_t c, uint32_t mask, bool *is_valid)
{
    const unsigned lane = emu_thread_index.x % 32, part = c >> 8 & 31, last = (lane & part) | (c & 31 & ~part);
    const unsigned from = lane ^ (b & 31);
    const uint64_t *const all = emu_warp_sync("shfl.bfly", mask, a);
    *is_valid = from <= last;
    return (uint32_t)all[*is_valid ? from : lane];
}

static inline uint32_t ptx_shfl_idx(uint32_t a, uint32_t b, uint32_t c, uint32_t mask, bool *is_valid)
{
    const unsigned lane = emu_thread_index.x % 32, part = c >> 8 & 31, last = (lane & part) | (c & 31 & ~part);
    const unsigned from = (lane & part) | (b & 31 & ~part);
    const uint64_t *const all = emu_warp_sync("shfl.idx", mask, a);
    *is_valid = from <= last;
    return (uint32_t)all[*is_valid ? from : lane];
}

static inline uint32_t ptx_shfl_up(uint32_t a, uint32_t b, uint32_t c, uint32_t mask, bool *is_valid)
{
    const unsigned lane = emu_thread_index.x % 32, part = c >> 8 & 31, first = (lane & part) | (c & 31 & ~part);
    const uint64_t *const all = emu_warp_sync("shfl.up", mask, a);
    *is_valid = (int)(lane - (b & 31)) >= (int)first;
    return (uint32_t)all[*is_valid ? lane - (b & 31) : lane];
}

static inline uint32_t ptx_ballot(bool vote, uint32_t mask)
{
    const uint64_t *const votes = emu_warp_sync("vote.ballot", mask, vote);
    uint32_t all = 0;
    for (unsigned i = 0; i < 32; i++) all |= (mask >> i & 1 ? (uint32_t)votes[i] : 0) << i;
    return all;
}

#endif
