/* compact.h - how an optimizer's states are stored; compact: in 8 bits, as groups of 32 codes with one scale, the
 * largest magnitude s of the group.
 *
 *     PS_FORMAT_F32       x itself
 *     PS_FORMAT_BF16      x rounded to nearest even; what an update stores is rounded by base/stochastic.h
 *     PS_FORMAT_SIGNED    c = round(254 x / (s + |x|)), -127 to 127     x = s c / (254 - |c|)
 *     PS_FORMAT_ROOT      u = sqrt(x), c = round(u 255 / s), 0 to 255   u = s (c / 255), x = u u     s: of the u
 *
 * The signed one is 127 y with y = 2 r / (1 + |r|), r = x / s: finer near 0. In the root no positive x becomes 0. The
 * largest magnitude is exact, and so is a group that was rounded before: encode(decode(group)) has the same bytes.
 *
 * A group whose s is below PS_FORMAT_LEAST_..., far below what an update sees, becomes zeros; one whose s is 2^127 or
 * more, or not finite, becomes NaN. The last group of an array may be used in part; its other codes are 0.
 *
 * Each line is one or more IEEE operations in float, each rounded, without FMA, so that kernels of all backends have
 * these bits. Rounding to an integer is an addition of PS_FORMAT_ROUND, to nearest even. */
#ifndef PS_BASE_COMPACT_H
#define PS_BASE_COMPACT_H

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/item.h"

enum { PS_FORMAT_GROUP = 32 };

typedef enum ps_format { PS_FORMAT_F32, PS_FORMAT_BF16, PS_FORMAT_SIGNED, PS_FORMAT_ROOT } ps_format;

/* All bytes zero: 32 zeros. */
typedef struct ps_compact_group {
    float scale;
    uint8_t codes[PS_FORMAT_GROUP]; /* of PS_FORMAT_SIGNED in two's complement */
} ps_compact_group;

#define PS_FORMAT_ROUND 0x1.8p23f /* added to a float below 2^22: its integer is in the low bits */
#define PS_FORMAT_LEAST_SIGNED 0x1p-100f
#define PS_FORMAT_LEAST_ROOT 0x1p-55f /* of the roots */
#define PS_FORMAT_END 0x1p127f
#define PS_FORMAT_NAN_BITS 0x7fc00000u
#define PS_FORMAT_STEP_ROOT (1.0f / 255.0f)

#ifndef __cplusplus /* kernels for GPUs have their own functions */

_Static_assert(sizeof(ps_compact_group) == 36, "a group has no padding");

static inline ps_item ps_format_item(ps_format f)
{
    return f == PS_FORMAT_F32    ? (ps_item){(int32_t)sizeof(float), 1}
           : f == PS_FORMAT_BF16 ? (ps_item){(int32_t)sizeof(uint16_t), 1}
                                 : (ps_item){(int32_t)sizeof(ps_compact_group), PS_FORMAT_GROUP};
}

/* Bytes of n elements from the beginning of a group on. */
static inline int64_t ps_format_bytes(ps_format f, int64_t n)
{
    return ps_item_bytes(ps_format_item(f), n);
}

/* Is it one of groups? */
static inline bool ps_format_is_compact(ps_format f)
{
    return f == PS_FORMAT_SIGNED || f == PS_FORMAT_ROOT;
}

/* Element i of a group; f is compact, as below. */
static inline float ps_compact_get(ps_format f, const ps_compact_group *g, int64_t i)
{
    if (f == PS_FORMAT_SIGNED) {
        const int32_t c = (int8_t)g->codes[i];
        return g->scale * ((float)c / (float)(254 - (c < 0 ? -c : c)));
    }
    const float u = g->scale * ((float)g->codes[i] * PS_FORMAT_STEP_ROOT);
    return u * u;
}

static inline int32_t ps_compact_round(float x)
{
    const float shifted = x + PS_FORMAT_ROUND;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    return bits - 0x4b400000;
}

/* Makes *g a group of x[n], n at most 32. */
static inline void ps_compact_set(ps_format f, ps_compact_group *g, const float *x, int64_t n)
{
    const float least = f == PS_FORMAT_SIGNED ? PS_FORMAT_LEAST_SIGNED : PS_FORMAT_LEAST_ROOT;
    float u[PS_FORMAT_GROUP] = {0}, s = 0;
    bool ends = false;
    for (int64_t i = 0; i < n; i++) {
        u[i] = f == PS_FORMAT_SIGNED ? x[i] : sqrtf(x[i]);
        const float size = fabsf(u[i]);
        if (!(size < PS_FORMAT_END)) ends = true;
        if (size > s) s = size;
    }
    memset(g, 0, sizeof *g);
    if (ends) {
        const uint32_t nan = PS_FORMAT_NAN_BITS;
        memcpy(&g->scale, &nan, sizeof nan);
    }
    if (ends || s < least) return;
    const float steps = 255.0f / s;
    g->scale = s;
    for (int64_t i = 0; i < n; i++) {
        if (f == PS_FORMAT_SIGNED) {
            g->codes[i] = (uint8_t)ps_compact_round(254.0f * (u[i] / (s + fabsf(u[i]))));
        } else {
            const int32_t c = ps_compact_round(u[i] * steps);
            g->codes[i] = (uint8_t)(c == 0 && u[i] > 0 ? 1 : c);
        }
    }
}

/* to[n]: elements [first, first + n) of an array that begins with a group. */
static inline void ps_format_decode(ps_format f, const void *from, int64_t first, float *to, int64_t n)
{
    const ps_compact_group *const groups = (const ps_compact_group *)from;
    if (f == PS_FORMAT_F32)
        memcpy(to, (const float *)from + first, (size_t)n * sizeof *to);
    else if (f == PS_FORMAT_BF16)
        for (int64_t i = 0; i < n; i++) to[i] = ps_dtype_load(PS_DTYPE_BF16, from, first + i);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = ps_compact_get(f, &groups[(first + i) / PS_FORMAT_GROUP], (first + i) % PS_FORMAT_GROUP);
}

/* n elements from the beginning of a group on; those of the last group after them become 0. */
static inline void ps_format_encode(ps_format f, void *to, const float *from, int64_t n)
{
    ps_compact_group *const groups = (ps_compact_group *)to;
    if (f == PS_FORMAT_F32)
        memcpy(to, from, (size_t)n * sizeof *from);
    else if (f == PS_FORMAT_BF16)
        for (int64_t i = 0; i < n; i++) ps_dtype_store(PS_DTYPE_BF16, to, i, from[i]);
    else
        for (int64_t i = 0; i < n; i += PS_FORMAT_GROUP)
            ps_compact_set(f, &groups[i / PS_FORMAT_GROUP], from + i, ps_min_i64(PS_FORMAT_GROUP, n - i));
}

#endif

#endif
