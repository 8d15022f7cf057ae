/* stochastic.h - fp32 values rounded to bf16 at random: optimizer.params.state_format = bf16_stochastic.
 *
 *     x     an fp32 value, bits u, between two adjacent bf16 values
 *     word  16 random bits
 *     u + word, without its lower 16 bits
 *
 * It is the neighbour of larger magnitude with a probability of the lower half of u, in 2^16, so the mean over all
 * words is x, also of subnormal numbers. A bf16 value stays what it is, infinities too. What is above the largest finite
 * one may become infinity. A NaN stays one.
 *
 * An update rounds three values of each element by one random word of 32 bits. The three words below are each uniform,
 * and independent in pairs, so no mean and no product of two errors differs from that of separate words. */
#ifndef PS_BASE_STOCHASTIC_H
#define PS_BASE_STOCHASTIC_H

#define PS_STOCHASTIC_PARAM(word) ((word)&0xffffu)
#define PS_STOCHASTIC_VARIANCE(word) ((word) >> 16)
#define PS_STOCHASTIC_MOMENTUM(word) (((word) ^ (word) >> 16) & 0xffffu)

#ifndef __cplusplus /* kernels for GPUs have their own functions */

#include <stdint.h>
#include <string.h>

/* A float that is a bf16 value; word: of 16 bits. */
static inline float ps_stochastic_round(float x, uint32_t word)
{
    uint32_t u;
    if (x != x) return x;
    memcpy(&u, &x, sizeof u);
    u = (u + word) & 0xffff0000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

#endif

#endif
