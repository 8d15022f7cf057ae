/* dequantize: a group at a time. For 16 bits its products of scale and values are rounded once, and looked up. */
#include "base/quantized.h"
#include "kernel/cpu/cpu_backend.h"
#include "kernel/cpu/cpu_vec.h"

enum { VALUES = 16 }; /* of NF4 */

/* ---- NF4 ---- */

/* to[i]: of the dtype, the values of the group's codes. */
PS_CPU_INLINE void nf4_values(ps_dtype t, uint16_t scale, void *to)
{
    static const float values[VALUES] = {PS_NF4_VALUES};
    const float s = ps_bf16_to_f32(scale);
    for (int i = 0; i < VALUES; i += VF_LANES) vf_put(t, to, i, VF_LANES, s * vf_load(values + i));
}

#if defined(PS_VEC_AVX512) || defined(PS_VEC_AVX2)
/* The 32 codes of 16 bytes. */
PS_CPU_INLINE void nf4_codes(const uint8_t *bytes, __m128i codes[2])
{
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)bytes), mask = _mm_set1_epi8(15);
    const __m128i high = _mm_and_si128(_mm_srli_epi16(b, 4), mask), low = _mm_and_si128(b, mask);
    codes[0] = _mm_unpacklo_epi8(high, low);
    codes[1] = _mm_unpackhi_epi8(high, low);
}
#endif

static void nf4_group_16(uint16_t *y, const uint8_t *codes, const uint16_t table[VALUES])
{
#if defined(PS_VEC_AVX512) || defined(PS_VEC_AVX2)
    const __m128i first = _mm_loadu_si128((const __m128i *)(const void *)table),
                  second = _mm_loadu_si128((const __m128i *)(const void *)(table + 8)), byte = _mm_set1_epi16(255);
    const __m128i low = _mm_packus_epi16(_mm_and_si128(first, byte), _mm_and_si128(second, byte)),
                  high = _mm_packus_epi16(_mm_srli_epi16(first, 8), _mm_srli_epi16(second, 8));
    for (int k = 0; k < PS_QUANT_GROUP / 2; k += 16) {
        __m128i c[2];
        nf4_codes(codes + k, c);
        for (int i = 0; i < 2; i++) {
            const __m128i l = _mm_shuffle_epi8(low, c[i]), h = _mm_shuffle_epi8(high, c[i]);
            __m128i *const to = (__m128i *)(void *)(y + 2 * k + 16 * i);
            _mm_storeu_si128(to, _mm_unpacklo_epi8(l, h));
            _mm_storeu_si128(to + 1, _mm_unpackhi_epi8(l, h));
        }
    }
#else
    for (int k = 0; k < PS_QUANT_GROUP / 2; k++) y[2 * k] = table[codes[k] >> 4], y[2 * k + 1] = table[codes[k] & 15];
#endif
}

static void nf4_group_32(float *y, const uint8_t *codes, const float table[VALUES])
{
#if defined(PS_VEC_AVX512)
    const __m512 values = _mm512_loadu_ps(table);
    for (int k = 0; k < PS_QUANT_GROUP / 2; k += 16) {
        __m128i c[2];
        nf4_codes(codes + k, c);
        for (int i = 0; i < 2; i++)
            _mm512_storeu_ps(y + 2 * k + 16 * i, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(c[i]), values));
    }
#elif defined(PS_VEC_AVX2)
    const __m256 low = _mm256_loadu_ps(table), high = _mm256_loadu_ps(table + 8);
    for (int k = 0; k < PS_QUANT_GROUP / 2; k += 16) {
        __m128i c[2];
        nf4_codes(codes + k, c);
        for (int i = 0; i < 4; i++) {
            const __m256i at = _mm256_cvtepu8_epi32(i % 2 == 0 ? c[i / 2] : _mm_srli_si128(c[i / 2], 8));
            const __m256 is_high = _mm256_castsi256_ps(_mm256_slli_epi32(at, 28));
            _mm256_storeu_ps(y + 2 * k + 8 * i, _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, at),
                                                                 _mm256_permutevar8x32_ps(high, at), is_high));
        }
    }
#else
    for (int k = 0; k < PS_QUANT_GROUP / 2; k++) y[2 * k] = table[codes[k] >> 4], y[2 * k + 1] = table[codes[k] & 15];
#endif
}

PS_CPU_INLINE void nf4_group(ps_dtype t, void *y, uint16_t scale, const uint8_t *codes)
{
    _Alignas(64) float values[VALUES];
    nf4_values(t, scale, values);
    if (t == PS_DTYPE_F32)
        nf4_group_32(y, codes, values);
    else
        nf4_group_16(y, codes, (const uint16_t *)(const void *)values);
}

/* ---- int8 ---- */

PS_CPU_INLINE vf int8_get(const int8_t *codes)
{
#if defined(PS_VEC_AVX512)
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)codes)));
#elif defined(PS_VEC_AVX2)
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)codes)));
#else
    vf v;
    for (int l = 0; l < VF_LANES; l++) v[l] = (float)codes[l];
    return v;
#endif
}

PS_CPU_INLINE void int8_group(ps_dtype t, void *y, uint16_t scale, const int8_t *codes)
{
    const float s = ps_bf16_to_f32(scale);
    for (int i = 0; i < PS_QUANT_GROUP; i += VF_LANES) vf_put(t, y, i, VF_LANES, s * int8_get(codes + i));
}

/* ---- all ---- */

PS_CPU_INLINE void group(ps_dtype t, const ps_dequantize_args *a, int64_t i, void *y)
{
    const int64_t record = i / PS_QUANT_RECORD, in = i % PS_QUANT_RECORD;
    if (a->quant == PS_QUANT_NF4) {
        const ps_nf4_record *const r = (const ps_nf4_record *)a->x + record;
        nf4_group(t, y, r->scales[in / PS_QUANT_GROUP], r->codes + in / 2);
    } else {
        const ps_int8_record *const r = (const ps_int8_record *)a->x + record;
        int8_group(t, y, r->scales[in / PS_QUANT_GROUP], r->codes + in);
    }
}

PS_CPU_INLINE void dequantize_range(ps_dtype t, const ps_dequantize_args *a, int64_t lo, int64_t hi)
{
    for (; lo + PS_QUANT_GROUP <= hi; lo += PS_QUANT_GROUP) group(t, a, lo, ps_cpu_at(t, a->y, lo));
    if (lo == hi) return;
    _Alignas(64) float last[PS_QUANT_GROUP];
    group(t, a, lo, last);
    memcpy(ps_cpu_at(t, a->y, lo), last, (size_t)(hi - lo) * ps_dtype_bytes(t));
}

static void dequantize_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_dequantize_args *const a = args;
#define CALL(t) dequantize_range(t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status dequantize(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_dequantize_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_pool_run_range(ps_cpu_of(self)->pool, a->n, PS_QUANT_RECORD, PS_CPU_PARALLEL_MIN, dequantize_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(dequantize) = {.run = dequantize};
