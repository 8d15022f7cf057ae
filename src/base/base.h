/* base.h - what every file may use: assertions by level, alignment, small arithmetic.
 *
 * PS_DEBUG (make DEBUG=n): 0 none · 1 arguments · 2 store invariants after each transition · 3 full walks, poison. */
#ifndef PS_BASE_BASE_H
#define PS_BASE_BASE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef PS_DEBUG
#define PS_DEBUG 0
#endif

/* For programming errors, never for errors of a user: checked from DEBUG=1 on. */
#if PS_DEBUG >= 1
#define PS_ASSERT(cond) assert(cond)
#else
#define PS_ASSERT(cond) ((void)sizeof(cond))
#endif

/* Exported only for libpatrickstar_data of the same build: version PATRICKSTAR_PRIVATE of src/exports.map. */
#if defined(__GNUC__)
#define PS_PRIVATE_API __attribute__((visibility("default")))
#else
#define PS_PRIVATE_API
#endif

#define PS_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#define PS_KIB ((int64_t)1 << 10)
#define PS_MIB ((int64_t)1 << 20)
#define PS_GIB ((int64_t)1 << 30)

/* Smallest multiple of `unit` (> 0) that is >= x (>= 0). */
static inline int64_t ps_round_up(int64_t x, int64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

static inline int64_t ps_ceil_div(int64_t x, int64_t unit)
{
    return (x + unit - 1) / unit;
}

static inline int64_t ps_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t ps_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
