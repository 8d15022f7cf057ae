/* quantized.h - weights that are not trained, in 8 or 4 bits: groups of 64 elements with one scale, eight groups a record.
 *
 *     PS_QUANT_NONE   the elements themselves, of the model's type
 *     PS_QUANT_INT8   scale s = bf16(a / 127)   c = round(x (1 / s)), -127 to 127                     x' = s c
 *     PS_QUANT_NF4    scale s = bf16(a)         c: of ps_nf4_values, what is nearest to x (1 / a)     x' = s value[c]
 *
 * a is the group's largest magnitude. NF4: Dettmers, Pagnoni, Holtzman, Zettlemoyer 2023, QLoRA, appendix E; codes are
 * those of bitsandbytes' quantize_4bit for fp32 input, quant_type "nf4" and blocksize 64. Scales are rounded to bf16,
 * where bitsandbytes has fp32 or 8 bits.
 *
 * A matrix is quantized as the array of its elements, row by row, as in bitsandbytes: a group may have the end of a row
 * and the beginning of the next. The last record may be used in part; its other codes are 0, or NF4's of the value 0.
 *
 * A group whose a is below PS_QUANT_LEAST becomes zeros; one whose s is not finite, or that has a NaN, becomes NaN.
 *
 * Each line is one or more IEEE operations in float, each rounded, without FMA. A kernel that takes quantized weights
 * computes with x' rounded to its dtype (ps_dtype_store), so a product has the bits of that with such weights. */
#ifndef PS_BASE_QUANTIZED_H
#define PS_BASE_QUANTIZED_H

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/item.h"

enum { PS_QUANT_GROUP = 64, PS_QUANT_RECORD = 512, PS_QUANT_SCALES = PS_QUANT_RECORD / PS_QUANT_GROUP };

typedef enum ps_quant { PS_QUANT_NONE, PS_QUANT_INT8, PS_QUANT_NF4 } ps_quant;

/* Records are multiples of 16 bytes, as an array of them is aligned. Scales are bf16. */
typedef struct ps_int8_record {
    uint16_t scales[PS_QUANT_SCALES];
    int8_t codes[PS_QUANT_RECORD];
} ps_int8_record;

typedef struct ps_nf4_record {
    uint16_t scales[PS_QUANT_SCALES];
    uint8_t codes[PS_QUANT_RECORD / 2]; /* elements 2 i (high 4 bits) and 2 i + 1 */
} ps_nf4_record;

#define PS_QUANT_LEAST 0x1p-100f

/* The sixteen values, for an array's initializer. */
#define PS_NF4_VALUES                                                                                                  \
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,                   \
        -0.18477343022823334f, -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f,                \
        0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f,    \
        1.0f
#define PS_NF4_ZERO 7 /* the code of 0 */

#ifndef __cplusplus /* kernels for GPUs have their own functions */

_Static_assert(sizeof(ps_int8_record) == 528 && sizeof(ps_nf4_record) == 272, "records have no padding");

/* Not for PS_QUANT_NONE. */
static inline ps_item ps_quant_item(ps_quant q)
{
    return (ps_item){(int32_t)(q == PS_QUANT_INT8 ? sizeof(ps_int8_record) : sizeof(ps_nf4_record)), PS_QUANT_RECORD};
}

/* Element i of an array of records. */
static inline float ps_quant_get(ps_quant q, const void *records, int64_t i)
{
    static const float values[16] = {PS_NF4_VALUES};
    const int64_t in = i % PS_QUANT_RECORD, group = in / PS_QUANT_GROUP;
    if (q == PS_QUANT_INT8) {
        const ps_int8_record *const r = (const ps_int8_record *)records + i / PS_QUANT_RECORD;
        return ps_bf16_to_f32(r->scales[group]) * (float)r->codes[in];
    }
    const ps_nf4_record *const r = (const ps_nf4_record *)records + i / PS_QUANT_RECORD;
    return ps_bf16_to_f32(r->scales[group]) * values[r->codes[in / 2] >> (in % 2 == 0 ? 4 : 0) & 15];
}

/* to[n]: elements [first, first + n). */
static inline void ps_dequantize(ps_quant q, const void *records, int64_t first, float *to, int64_t n)
{
    static const float values[16] = {PS_NF4_VALUES};
    for (int64_t i = 0; i < n;) {
        const int64_t at = first + i, in = at % PS_QUANT_RECORD,
                      here = ps_min_i64(n - i, PS_QUANT_GROUP - in % PS_QUANT_GROUP);
        const ps_int8_record *const r8 = (const ps_int8_record *)records + at / PS_QUANT_RECORD;
        const ps_nf4_record *const r4 = (const ps_nf4_record *)records + at / PS_QUANT_RECORD;
        const float s = ps_bf16_to_f32((q == PS_QUANT_INT8 ? r8->scales : r4->scales)[in / PS_QUANT_GROUP]);
        if (q == PS_QUANT_INT8)
            for (int64_t k = 0; k < here; k++) to[i + k] = s * (float)r8->codes[in + k];
        else
            for (int64_t k = 0; k < here; k++)
                to[i + k] = s * values[r4->codes[(in + k) / 2] >> ((in + k) % 2 == 0 ? 4 : 0) & 15];
        i += here;
    }
}

/* The largest x whose code is c, c < 15: |x - value| is rounded, and of two equal ones the lower code counts. */
#define PS_NF4_ENDS                                                                                                    \
    -0x1.b239b2p-1f, -0x1.38a4e2p-1f, -0x1.d709p-2f, -0x1.5bd4eep-2f, -0x1.e079dap-3f, -0x1.1a7178p-3f,                \
        -0x1.74f0e2p-5f, 0x1.45f5fep-5f, 0x1.ec90c4p-4f, 0x1.a0cfcp-3f, 0x1.2b05a8p-2f, 0x1.8ea7f2p-2f,                \
        0x1.00da06p-1f, 0x1.491b5ep-1f, 0x1.b913b2p-1f

/* codes[n]: of the value that is nearest to x factor, the lower one of two. */
static inline void ps_nf4_codes(const float *x, float factor, uint8_t *codes, int64_t n)
{
    static const float ends[15] = {PS_NF4_ENDS};
    int32_t c[PS_QUANT_GROUP] = {0};
    float y[PS_QUANT_GROUP];
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * factor;
    for (int k = 0; k < 15; k++)
        for (int64_t i = 0; i < n; i++) c[i] += y[i] > ends[k];
    for (int64_t i = 0; i < n; i++) codes[i] = (uint8_t)c[i];
}

/* x factor to the nearest integer, of two the even one, within 127. */
static inline void ps_int8_codes(const float *x, float factor, uint8_t *codes, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float shifted = x[i] * factor + 0x1.8p23f; /* its integer is in the low bits */
        int32_t c;
        memcpy(&c, &shifted, sizeof c);
        c -= 0x4b400000;
        codes[i] = (uint8_t)(int8_t)(c > 127 ? 127 : c < -127 ? -127 : c);
    }
}

/* The bits of the largest magnitude, with NaN above infinity. */
static inline uint32_t ps_quant_largest(const float *x, int64_t n)
{
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return (uint32_t)most;
}

/* Codes of group x[n], n at most 64, to codes[64]; returns its scale. */
static inline uint16_t ps_quant_group(ps_quant q, const float *x, int64_t n, uint8_t *codes)
{
    const uint32_t bits = ps_quant_largest(x, n);
    float a;
    memcpy(&a, &bits, sizeof a);
    const uint16_t scale = ps_bf16_from_f32(q == PS_QUANT_INT8 ? a / 127.0f : a);
    memset(codes, q == PS_QUANT_INT8 ? 0 : PS_NF4_ZERO, PS_QUANT_GROUP);
    if (!isfinite(ps_bf16_to_f32(scale))) return 0x7fc0;
    if (a < PS_QUANT_LEAST) return 0;
    if (q == PS_QUANT_NF4)
        ps_nf4_codes(x, 1.0f / a, codes, n);
    else
        ps_int8_codes(x, 1.0f / ps_bf16_to_f32(scale), codes, n);
    return scale;
}

/* Makes records of from[n]. */
static inline void ps_quantize(ps_quant q, void *records, const float *from, int64_t n)
{
    uint8_t codes[PS_QUANT_GROUP];
    for (int64_t i = 0; i < ps_round_up(n, PS_QUANT_RECORD); i += PS_QUANT_GROUP) {
        const int64_t in = i % PS_QUANT_RECORD, left = n - i < 0 ? 0 : ps_min_i64(n - i, PS_QUANT_GROUP);
        const uint16_t scale = ps_quant_group(q, left > 0 ? from + i : from, left, codes);
        if (q == PS_QUANT_INT8) {
            ps_int8_record *const r = (ps_int8_record *)records + i / PS_QUANT_RECORD;
            r->scales[in / PS_QUANT_GROUP] = scale;
            memcpy(r->codes + in, codes, sizeof codes);
        } else {
            ps_nf4_record *const r = (ps_nf4_record *)records + i / PS_QUANT_RECORD;
            r->scales[in / PS_QUANT_GROUP] = scale;
            for (int64_t k = 0; k < PS_QUANT_GROUP / 2; k++)
                r->codes[in / 2 + k] = (uint8_t)(codes[2 * k] << 4 | codes[2 * k + 1]);
        }
    }
}

#endif

#endif
