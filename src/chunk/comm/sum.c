/* sum.c - a block of the sum stays in the first-level cache while the ranks' values are added to it, so memory is read
 * and written once. */
#include "chunk/comm/sum.h"

#include <immintrin.h>

#include "base/base.h"

enum { SUM_BLOCK = 2048 };

#define SUM_INLINE static inline __attribute__((always_inline))
/* The processor's f16 instructions: compiled separately, called where supported. */
#define SUM_F16C __attribute__((target("avx2,f16c")))

SUM_F16C static void f16_add(float *restrict sum, const uint16_t *restrict v, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(v + i)));
        _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(sum + i), x));
    }
    for (; i < n; i++) sum[i] += ps_f16_to_f32(v[i]);
}

SUM_F16C static void f16_store(uint16_t *restrict out, const float *restrict sum, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(sum + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm_storeu_si128((__m128i *)(void *)(out + i), h);
    }
    for (; i < n; i++) out[i] = ps_f16_from_f32(sum[i]);
}

SUM_INLINE void block_add(ps_dtype dtype, bool has_f16c, float *restrict sum, const void *values, int64_t begin,
                          int64_t n)
{
    if (dtype == PS_DTYPE_F32) {
        const float *v = (const float *)values + begin;
        for (int64_t i = 0; i < n; i++) sum[i] += v[i];
    } else if (dtype == PS_DTYPE_BF16) {
        const uint16_t *v = (const uint16_t *)values + begin;
        for (int64_t i = 0; i < n; i++) sum[i] += ps_bf16_to_f32(v[i]);
    } else if (has_f16c) {
        f16_add(sum, (const uint16_t *)values + begin, n);
    } else {
        const uint16_t *v = (const uint16_t *)values + begin;
        for (int64_t i = 0; i < n; i++) sum[i] += ps_f16_to_f32(v[i]);
    }
}

SUM_INLINE void block_store(ps_dtype dtype, bool has_f16c, void *values, const float *restrict sum, int64_t begin,
                            int64_t n)
{
    if (dtype == PS_DTYPE_F32) {
        memcpy((float *)values + begin, sum, (size_t)n * sizeof *sum);
    } else if (dtype == PS_DTYPE_BF16) {
        uint16_t *v = (uint16_t *)values + begin;
        for (int64_t i = 0; i < n; i++) v[i] = ps_bf16_from_f32(sum[i]);
    } else if (has_f16c) {
        f16_store((uint16_t *)values + begin, sum, n);
    } else {
        uint16_t *v = (uint16_t *)values + begin;
        for (int64_t i = 0; i < n; i++) v[i] = ps_f16_from_f32(sum[i]);
    }
}

/* -0 + x is x for every x, -0 included: a sum of one value is that value. */
SUM_INLINE void sum_blocks(ps_dtype dtype, bool has_f16c, const void *const *values, int32_t n_values, int64_t n,
                           void *out)
{
    float sum[SUM_BLOCK];
    for (int64_t begin = 0; begin < n; begin += SUM_BLOCK) {
        const int64_t m = ps_min_i64(SUM_BLOCK, n - begin);
        for (int64_t i = 0; i < m; i++) sum[i] = -0.0f;
        for (int32_t k = 0; k < n_values; k++) block_add(dtype, has_f16c, sum, values[k], begin, m);
        block_store(dtype, has_f16c, out, sum, begin, m);
    }
}

SUM_F16C static void sum_with_f16c(ps_dtype dtype, const void *const *values, int32_t n_values, int64_t n, void *out)
{
    if (dtype == PS_DTYPE_F32)
        sum_blocks(PS_DTYPE_F32, true, values, n_values, n, out);
    else if (dtype == PS_DTYPE_BF16)
        sum_blocks(PS_DTYPE_BF16, true, values, n_values, n, out);
    else
        sum_blocks(PS_DTYPE_F16, true, values, n_values, n, out);
}

void ps_comm_sum(ps_dtype dtype, const void *const *values, int32_t n_values, int64_t n, void *out)
{
    /* no processor has AVX2 without F16C, a feature name that clang 14 lacks */
    if (__builtin_cpu_supports("avx2"))
        sum_with_f16c(dtype, values, n_values, n, out);
    else
        sum_blocks(dtype, false, values, n_values, n, out);
}
