/* cpu_vec.h - a float vector of the width of the instruction set that is compiled for.
 *
 * Kernels are written once on `vf`; arithmetic is + - * / of the compiler's vector types. Lanes are explicit, instead
 * of left to the vectoriser, for two promises of kernel.h: sums add the same elements in the same order for every
 * address, and the last, incomplete vector of an array uses the same instructions as all others, so that bits do not
 * depend on the division of an array. */
#ifndef PS_KERNEL_CPU_VEC_H
#define PS_KERNEL_CPU_VEC_H

#include <math.h>

#include "base/same_math.h"
#include "kernel/cpu/cpu_isa.h"

#ifndef PS_ISA
#error "cpu_vec.h is for the files in isa/"
#endif

#if defined(PS_ISA_avx512) || defined(PS_ISA_avx512_bf16)
#define PS_VEC_AVX512
#define VF_LANES 16
#include <immintrin.h>
#elif defined(PS_ISA_avx2)
#define PS_VEC_AVX2
#define VF_LANES 8
#include <immintrin.h>
#else
#define VF_LANES 4
#endif

typedef float vf __attribute__((vector_size(VF_LANES * 4)));
typedef int32_t vi __attribute__((vector_size(VF_LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(VF_LANES * 4)));

PS_CPU_INLINE vf vf_set1(float x)
{
    return (vf){0} + x;
}

PS_CPU_INLINE vi vi_set1(int32_t x)
{
    return (vi){0} + x;
}

PS_CPU_INLINE vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

PS_CPU_INLINE void vf_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

/* Non-temporal store, where p is aligned to the vector; visible to other threads after _mm_sfence. */
PS_CPU_INLINE void vf_stream(float *p, vf v)
{
    if ((uintptr_t)p % sizeof v != 0) {
        vf_store(p, v);
        return;
    }
#if defined(PS_VEC_AVX512)
    _mm512_stream_ps(p, v);
#elif defined(PS_VEC_AVX2)
    _mm256_stream_ps(p, v);
#else
    vf_store(p, v);
#endif
}

/* Lanes 0, 1, 2 ... */
PS_CPU_INLINE vi vi_lanes(void)
{
    vi v;
    for (int l = 0; l < VF_LANES; l++) v[l] = l;
    return v;
}

/* mask ? a : b, lane by lane; a lane of a mask is all ones or zero. */
PS_CPU_INLINE vf vf_where(vi mask, vf a, vf b)
{
    return (vf)(((vi)a & mask) | ((vi)b & ~mask));
}

/* Whether any lane of a mask is set. */
PS_CPU_INLINE bool vi_any(vi mask)
{
#if defined(PS_VEC_AVX512)
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(PS_VEC_AVX2)
    return _mm256_movemask_epi8((__m256i)mask) != 0;
#else
    int32_t any = 0;
    for (int l = 0; l < VF_LANES; l++) any |= mask[l];
    return any != 0;
#endif
}

/* a b + c, with one rounding where the instruction exists. */
PS_CPU_INLINE vf vf_fma(vf a, vf b, vf c)
{
#if defined(PS_VEC_AVX512)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(PS_VEC_AVX2)
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

/* The second operand when one is NaN. */
PS_CPU_INLINE vf vf_max(vf a, vf b)
{
#if defined(PS_VEC_AVX512)
    return _mm512_max_ps(a, b);
#elif defined(PS_VEC_AVX2)
    return _mm256_max_ps(a, b);
#else
    return vf_where(a > b, a, b);
#endif
}

PS_CPU_INLINE vf vf_min(vf a, vf b)
{
#if defined(PS_VEC_AVX512)
    return _mm512_min_ps(a, b);
#elif defined(PS_VEC_AVX2)
    return _mm256_min_ps(a, b);
#else
    return vf_where(a < b, a, b);
#endif
}

PS_CPU_INLINE vf vf_sqrt(vf a)
{
#if defined(PS_VEC_AVX512)
    return _mm512_sqrt_ps(a);
#elif defined(PS_VEC_AVX2)
    return _mm256_sqrt_ps(a);
#else
    for (int l = 0; l < VF_LANES; l++) a[l] = sqrtf(a[l]);
    return a;
#endif
}

/* Sums over a row have the same order for every vector width: element i is added to running sum i mod VF_SUM; the
 * VF_SUM running sums are reduced by halves at the end.
 *
 *     vf sum[VF_SUMS] = {{0}};
 *     for (int64_t c0 = 0; c0 < n; c0 += VF_SUM)
 *         for (int s = 0; s < VF_SUMS; s++) {
 *             const int64_t c = c0 + s * VF_LANES;
 *             sum[s] += vf_get(t, row, c, n - c);
 *         }
 *     total = vf_fold(sum); */
#define VF_SUM 32

/* Vectors of running sums; several, so that additions are independent. */
#define VF_SUMS (VF_SUM / VF_LANES)

/* Sum of the lanes of one vector, as a tree. Its order depends on the vector width; that of vf_fold does not. */
PS_CPU_INLINE float vf_sum(vf v)
{
    float x[VF_LANES];
    memcpy(x, &v, sizeof v);
    for (int half = VF_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) x[l] += x[l + half];
    return x[0];
}

/* Sum of all running sums. */
PS_CPU_INLINE float vf_fold(const vf sums[VF_SUMS])
{
    vf v[VF_SUMS];
    memcpy(v, sums, sizeof v);
    for (int half = VF_SUMS / 2; half > 0; half /= 2)
        for (int s = 0; s < half; s++) v[s] += v[s + half];
    return vf_sum(v[0]);
}

PS_CPU_INLINE float vf_max_lane(vf v)
{
    float m = v[0];
    for (int l = 1; l < VF_LANES; l++) m = v[l] > m ? v[l] : m;
    return m;
}

/* ---- 16-bit types -------------------------------------------------------------------------------------------------*/

/* The class of subnormal numbers, for vfpclassps. */
#define VF_SUBNORMAL 0x20

PS_CPU_INLINE vf vf_load_bf16(const uint16_t *p)
{
#if defined(PS_VEC_AVX512)
    const __m512i h = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(h, 16));
#elif defined(PS_VEC_AVX2)
    const __m256i h = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(h, 16));
#else
    vf v;
    for (int l = 0; l < VF_LANES; l++) v[l] = ps_bf16_to_f32(p[l]);
    return v;
#endif
}

/* As ps_bf16_from_f32. The hardware conversion is equal except for subnormal numbers, which it flushes to zero. */
PS_CPU_INLINE void vf_store_bf16(uint16_t *p, vf v)
{
#if defined(PS_VEC_AVX512) && defined(__AVX512BF16__)
    if (__builtin_expect(!_mm512_fpclass_ps_mask((__m512)v, VF_SUBNORMAL), 1)) {
        _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)_mm512_cvtneps_pbh((__m512)v));
        return;
    }
#endif
#if defined(PS_VEC_AVX512) || defined(PS_VEC_AVX2)
    const vu u = (vu)v;
    const vu odd = (u >> 16) & 1;
    const vu is_nan = (vu)(v != v);
    const vu r = (((u + 0x7fff + odd) & ~is_nan) | ((u | 0x400000) & is_nan)) >> 16;
#if defined(PS_VEC_AVX512)
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16((__m512i)r));
#else
    const __m256i packed = _mm256_packus_epi32((__m256i)r, (__m256i)r);
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
#endif
#else
    for (int l = 0; l < VF_LANES; l++) p[l] = ps_bf16_from_f32(v[l]);
#endif
}

PS_CPU_INLINE vf vf_load_f16(const uint16_t *p)
{
#if defined(PS_VEC_AVX512)
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
#elif defined(PS_VEC_AVX2)
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
#else
    vf v;
    for (int l = 0; l < VF_LANES; l++) v[l] = ps_f16_to_f32(p[l]);
    return v;
#endif
}

PS_CPU_INLINE void vf_store_f16(uint16_t *p, vf v)
{
#if defined(PS_VEC_AVX512)
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(PS_VEC_AVX2)
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
    for (int l = 0; l < VF_LANES; l++) p[l] = ps_f16_from_f32(v[l]);
#endif
}

/* ---- elements [i, i + n) of an array of type t: at most VF_LANES of them, none when n <= 0 ----------------------- */

PS_CPU_INLINE vf vf_get_whole(ps_dtype t, const void *array)
{
    if (t == PS_DTYPE_F32) return vf_load(array);
    return t == PS_DTYPE_BF16 ? vf_load_bf16(array) : vf_load_f16(array);
}

PS_CPU_INLINE void vf_put_whole(ps_dtype t, void *array, vf v)
{
    if (t == PS_DTYPE_F32)
        vf_store(array, v);
    else if (t == PS_DTYPE_BF16)
        vf_store_bf16(array, v);
    else
        vf_store_f16(array, v);
}

/* Room for one vector of any type; a union, so that both views of it may alias. */
typedef union vf_buffer {
    float words[VF_LANES];
    uint16_t halves[VF_LANES];
} vf_buffer;

/* Lanes from n on are zero. */
PS_CPU_INLINE vf vf_get(ps_dtype t, const void *array, int64_t i, int64_t n)
{
    const void *const p = ps_cpu_at_const(t, array, i);
    if (__builtin_expect(n >= VF_LANES, 1)) return vf_get_whole(t, p);
    vf_buffer buffer = {.words = {0}};
    if (n > 0) memcpy(&buffer, p, (size_t)n * ps_dtype_bytes(t));
    return vf_get_whole(t, &buffer);
}

/* Lanes from n on are not stored. */
PS_CPU_INLINE void vf_put(ps_dtype t, void *array, int64_t i, int64_t n, vf v)
{
    void *const p = ps_cpu_at(t, array, i);
    if (__builtin_expect(n >= VF_LANES, 1)) {
        vf_put_whole(t, p, v);
        return;
    }
    vf_buffer buffer;
    vf_put_whole(t, &buffer, v);
    if (n > 0) memcpy(p, &buffer, (size_t)n * ps_dtype_bytes(t));
}

/* ---- functions ----------------------------------------------------------------------------------------------------*/

/* e^x within 2 ulp for -87.3 <= x <= 88.3, constant outside (1.2e-38, 2.4e38); NaN stays NaN.
 * x = n ln 2 + r, |r| <= ln 2 / 2; e^r by the polynomial of Cephes' expf (Moshier). */
PS_CPU_INLINE vf vf_exp(vf x)
{
    const vf magic = vf_set1(0x1.8p23f); /* adding it rounds to an integer, kept in the low bits */
    x = vf_min(vf_set1(88.3762626647949f), vf_max(vf_set1(-87.3365402f), x));
    const vf shifted = vf_fma(x, vf_set1(1.44269504088896341f), magic);
    const vf n = shifted - magic;
    vf r = vf_fma(n, vf_set1(-0.693359375f), x);
    r = vf_fma(n, vf_set1(2.12194440e-4f), r);
    vf p = vf_set1(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set1(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set1(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set1(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set1(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set1(5.0000001201e-1f));
    p = vf_fma(p, r * r, r) + 1.0f;
    const vu power = ((vu)shifted - (vu)magic + 127) << 23;
    return p * (vf)power;
}

/* 1 - erf(x), relative error about 2e-7 (1 + x^2): the Chebyshev fit of Numerical Recipes, section 6.2, erfcc. */
PS_CPU_INLINE vf vf_erfc(vf x)
{
    static const float c[] = {-0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f, -0.18628806f,
                              0.09678418f,  0.37409196f, 1.00002368f,  -1.26551223f};
    const vf z = vf_max(x, -x);
    const vf t = 1.0f / vf_fma(z, vf_set1(0.5f), vf_set1(1.0f));
    vf p = vf_set1(0.17087277f);
    for (int i = 0; i < (int)PS_ARRAY_LEN(c); i++) p = vf_fma(p, t, vf_set1(c[i]));
    const vf tail = t * vf_exp(vf_fma(-z, z, p));
    return vf_where(x < 0.0f, 2.0f - tail, tail);
}

/* tanh x within 4 ulp, subnormal numbers and the sign of zero too. Near zero, where 1 - 2 / (e^2x + 1) would cancel,
 * the polynomial of Cephes' tanhf (Moshier). */
PS_CPU_INLINE vf vf_tanh(vf x)
{
    const vi sign = (vi)x & INT32_MIN;
    const vf a = (vf)((vi)x ^ sign), a2 = a * a;
    vf p = vf_set1(-5.70498872745e-3f);
    p = vf_fma(p, a2, vf_set1(2.06390887954e-2f));
    p = vf_fma(p, a2, vf_set1(-5.37397155531e-2f));
    p = vf_fma(p, a2, vf_set1(1.33314422036e-1f));
    p = vf_fma(p, a2, vf_set1(-3.33332819422e-1f));
    const vf near = vf_fma(p * a2, a, a), far = 1.0f - 2.0f / (vf_exp(a + a) + 1.0f);
    return (vf)((vi)vf_where(a < 0.625f, near, far) | sign);
}

/* e^x and ln x of one number: rounded from double; the same bits on every level. */
PS_CPU_INLINE float vf_exp_of(float x)
{
    return (float)ps_same_exp((double)x);
}

PS_CPU_INLINE float vf_log_of(float x)
{
    return (float)ps_same_log((double)x);
}

/* ln x within 2 ulp for normal x > 0, without FMA: the same bits on every level. x = 2^k m, sqrt(1/2) <= m < sqrt 2; ln
 * m by the polynomial of Cephes' logf (Moshier). */
PS_CPU_INLINE vf vf_log(vf x)
{
    const vi root = vi_set1(0x3f3504f3); /* sqrt(1/2) */
    const vi from_root = (vi)x - root;
    const vf k = __builtin_convertvector(from_root >> 23, vf);
    const vf f = (vf)((from_root & 0x7fffff) + root) - 1.0f, z = f * f;
    vf p = vf_set1(7.0376836292e-2f);
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    const vf y = (f * z * p - 2.12194440e-4f * k) - 0.5f * z;
    return (f + y) + 0.693359375f * k;
}

/* Cosine and sine of 2 pi x within 1e-7, |x| <= 2^20, without FMA. 4 x = k + r, both exact, |r| <= 1/2: k quarters, and
 * the rest by the polynomials of Cephes' sinf (Moshier). */
PS_CPU_INLINE void vf_cos_sin_turns(vf x, vf *cosine, vf *sine)
{
    const vf magic = vf_set1(0x1.8p23f), shifted = 4.0f * x + magic;
    const vf a = 1.5707963267948966f * (4.0f * x - (shifted - magic)), z = a * a;
    const vf s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * a + a;
    const vf c =
        ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * (z * z) - 0.5f * z + 1.0f;
    const vi quarter = (vi)shifted, odd = -(quarter & 1);
    *cosine = (vf)((vi)vf_where(odd, s, c) ^ (vi)((vu)(quarter + 1) >> 1 << 31));
    *sine = (vf)((vi)vf_where(odd, c, s) ^ (vi)((vu)quarter >> 1 << 31));
}

#endif
