/* dtype.h - element types: sizes, names, conversion of single values.
 *
 * bf16 and f16 are stored as uint16_t. Conversion to 16 bits rounds to nearest even, NaN stays NaN (quiet),
 * overflow becomes infinity. Kernels for whole arrays are in kernel/ (cast); these are for references and edges. */
#ifndef PS_BASE_DTYPE_H
#define PS_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "patrickstar.h" /* ps_dtype */

static inline size_t ps_dtype_bytes(ps_dtype t)
{
    return t == PS_DTYPE_F32 ? 4 : 2;
}

const char *ps_dtype_name(ps_dtype t);      /* in files and options: "f32", "bf16", "f16" */
const char *ps_dtype_precision(ps_dtype t); /* in messages, as in the configuration: "fp32", "bf16", "fp16" */

static inline float ps_bf16_to_f32(uint16_t h)
{
    const uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint16_t ps_bf16_from_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

float ps_f16_to_f32(uint16_t h);
uint16_t ps_f16_from_f32(float f);

/* Load element i of an array of type t as float, and store a float there. */
static inline float ps_dtype_load(ps_dtype t, const void *array, int64_t i)
{
    if (t == PS_DTYPE_F32) return ((const float *)array)[i];
    const uint16_t h = ((const uint16_t *)array)[i];
    return t == PS_DTYPE_BF16 ? ps_bf16_to_f32(h) : ps_f16_to_f32(h);
}

static inline void ps_dtype_store(ps_dtype t, void *array, int64_t i, float value)
{
    if (t == PS_DTYPE_F32)
        ((float *)array)[i] = value;
    else
        ((uint16_t *)array)[i] = t == PS_DTYPE_BF16 ? ps_bf16_from_f32(value) : ps_f16_from_f32(value);
}

#endif
