/* split.h - an fp32 value as a bf16 one and 16 bits beside it: optimizer.params.state_format = compact_split.
 *
 *     x    an fp32 value, bits u
 *     p    x rounded to bf16, to nearest even: bits r, the parameter that operators read
 *     low  u - (r << 16), from -0x7fff to 0x8000, modulo 2^16: it is the lower half of u
 *
 * join(p, low) is x, exactly, subnormal numbers, both zeros, infinities and what rounds to infinity included, but for
 * these:
 *     - x half-way between two bf16 values of which the upper one, in magnitude, is even: both neighbours of an even p
 *       would have the same 16 bits. It becomes the next fp32 value of larger magnitude. One in 2^17 values, by 2^-24;
 *     - a NaN becomes the quiet NaN that p is.
 * What join gives is kept exactly, so nothing changes however often a value is split and joined. */
#ifndef PS_BASE_SPLIT_H
#define PS_BASE_SPLIT_H

#include "base/dtype.h"

#define PS_SPLIT_HALF 0x8000u
/* What rounding added to the upper half, of a low half as 32 bits: 2^16 where it is above PS_SPLIT_HALF, else 0. */
#define PS_SPLIT_CARRY(low) (((low) + 0x7fff) & 0x10000)

#ifndef __cplusplus /* kernels for GPUs have their own functions */

static inline float ps_split_join(uint16_t p, uint16_t low)
{
    const uint32_t u = ((uint32_t)p << 16) + low - PS_SPLIT_CARRY((uint32_t)low);
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The low half beside ps_bf16_from_f32(x). */
static inline uint16_t ps_split_low(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if (x != x) return 0;
    const uint32_t low = u & 0xffffu;
    return (uint16_t)(low == PS_SPLIT_HALF ? low + (u >> 16 & 1u) : low);
}

static inline void ps_split_join_all(const uint16_t *p, const uint16_t *low, float *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = ps_split_join(p[i], low[i]);
}

static inline void ps_split_all(const float *from, uint16_t *p, uint16_t *low, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        p[i] = ps_bf16_from_f32(from[i]);
        low[i] = ps_split_low(from[i]);
    }
}

#endif

#endif
