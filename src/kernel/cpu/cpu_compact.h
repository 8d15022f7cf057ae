/* cpu_compact.h - groups of base/compact.h as vectors, with its operations. For the files in isa/. */
#ifndef PS_KERNEL_CPU_COMPACT_H
#define PS_KERNEL_CPU_COMPACT_H

#include "base/compact.h"
#include "kernel/cpu/cpu_vec.h"

#define GROUP_VECTORS (PS_FORMAT_GROUP / VF_LANES)

/* Codes as integers; a vector of them from code `at` on. */
PS_CPU_INLINE vi codes_get(const ps_compact_group *g, int at, bool is_signed)
{
#if defined(PS_VEC_AVX512)
    const __m128i packed = _mm_loadu_si128((const __m128i *)(const void *)(g->codes + at));
    return (vi)(is_signed ? _mm512_cvtepi8_epi32(packed) : _mm512_cvtepu8_epi32(packed));
#elif defined(PS_VEC_AVX2)
    const __m128i packed = _mm_loadl_epi64((const __m128i *)(const void *)(g->codes + at));
    return (vi)(is_signed ? _mm256_cvtepi8_epi32(packed) : _mm256_cvtepu8_epi32(packed));
#else
    vi c;
    for (int l = 0; l < VF_LANES; l++) c[l] = is_signed ? (int8_t)g->codes[at + l] : g->codes[at + l];
    return c;
#endif
}

/* x rounded to an integer, whose lowest byte is the code. */
#define CODE_BIAS 0x4b400000 /* the bits of PS_FORMAT_ROUND */
PS_CPU_INLINE vi code_of(vf x)
{
    return (vi)(x + PS_FORMAT_ROUND);
}

/* All codes of a group. */
PS_CPU_INLINE void codes_put(ps_compact_group *g, const vi c[GROUP_VECTORS], bool is_signed)
{
#if defined(PS_VEC_AVX512)
    (void)is_signed;
    for (int k = 0; k < GROUP_VECTORS; k++)
        _mm_storeu_si128((__m128i *)(void *)(g->codes + k * VF_LANES), _mm512_cvtepi32_epi8((__m512i)c[k]));
#elif defined(PS_VEC_AVX2)
    const __m256i low = _mm256_packs_epi32((__m256i)(c[0] - CODE_BIAS), (__m256i)(c[1] - CODE_BIAS));
    const __m256i high = _mm256_packs_epi32((__m256i)(c[2] - CODE_BIAS), (__m256i)(c[3] - CODE_BIAS));
    const __m256i mixed = is_signed ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)(void *)g->codes, _mm256_permutevar8x32_epi32(mixed, order));
#else
    (void)is_signed;
    for (int i = 0; i < PS_FORMAT_GROUP; i++) g->codes[i] = (uint8_t)c[i / VF_LANES][i % VF_LANES];
#endif
}

PS_CPU_INLINE vf vf_size(vf x)
{
    return (vf)((vi)x & INT32_MAX);
}

PS_CPU_INLINE vf signed_get(const ps_compact_group *g, int at)
{
    const vf c = __builtin_convertvector(codes_get(g, at, true), vf);
    return g->scale * (c / (254.0f - vf_size(c)));
}

PS_CPU_INLINE vf root_get(const ps_compact_group *g, int at)
{
    const vf u = g->scale * (__builtin_convertvector(codes_get(g, at, false), vf) * PS_FORMAT_STEP_ROOT);
    return u * u;
}

/* The largest bits, as numbers: magnitudes, with NaN above infinity. */
PS_CPU_INLINE vi sizes_max(vi a, vi b)
{
#if defined(PS_VEC_AVX512)
    return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined(PS_VEC_AVX2)
    return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    const vi above = a > b;
    return (a & above) | (b & ~above);
#endif
}

PS_CPU_INLINE int32_t sizes_fold(vi a)
{
#if defined(PS_VEC_AVX512)
    return _mm512_reduce_max_epi32((__m512i)a);
#elif defined(PS_VEC_AVX2)
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128((__m256i)a), _mm256_extracti128_si256((__m256i)a, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1)));
#else
    int32_t most = a[0];
    for (int l = 1; l < VF_LANES; l++) most = a[l] > most ? a[l] : most;
    return most;
#endif
}

/* Sets the scale of a group with these largest bits. False: its codes are zeros. */
PS_CPU_INLINE bool set_scale(ps_compact_group *g, int32_t most, float least)
{
    float scale;
    memcpy(&scale, &most, sizeof scale);
    const bool ends = !(scale < PS_FORMAT_END), is_zero = scale < least;
    const uint32_t nan = PS_FORMAT_NAN_BITS;
    g->scale = is_zero ? 0.0f : scale;
    if (__builtin_expect(ends, 0)) memcpy(&g->scale, &nan, sizeof nan);
    if (__builtin_expect(!ends && !is_zero, 1)) return true;
    memset(g->codes, 0, sizeof g->codes);
    return false;
}

PS_CPU_INLINE void signed_put(ps_compact_group *g, const vf x[GROUP_VECTORS], int32_t most)
{
    if (!set_scale(g, most, PS_FORMAT_LEAST_SIGNED)) return;
    const float s = g->scale;
    vi c[GROUP_VECTORS];
    for (int k = 0; k < GROUP_VECTORS; k++) c[k] = code_of(254.0f * (x[k] / (s + vf_size(x[k]))));
    codes_put(g, c, true);
}

PS_CPU_INLINE void root_put(ps_compact_group *g, const vf u[GROUP_VECTORS], int32_t most)
{
    if (!set_scale(g, most, PS_FORMAT_LEAST_ROOT)) return;
    const float steps = 255.0f / g->scale;
    vi c[GROUP_VECTORS];
    for (int k = 0; k < GROUP_VECTORS; k++) {
        c[k] = code_of(u[k] * steps);
        c[k] = c[k] - ((c[k] == CODE_BIAS) & (u[k] > 0.0f));
    }
    codes_put(g, c, false);
}

/* The largest bits of a group. */
PS_CPU_INLINE int32_t group_most(const vf x[GROUP_VECTORS])
{
    vi most = (vi)vf_size(x[0]);
    for (int k = 1; k < GROUP_VECTORS; k++) most = sizes_max(most, (vi)vf_size(x[k]));
    return sizes_fold(most);
}

/* A vector of an optimizer's step from element i on, n of them at most; *m becomes the state of this step. */
typedef void (*vector_update)(ps_dtype param_t, ps_dtype grad_t, const void *args, int64_t i, int64_t n, vf *m);

/* Elements [lo, hi) from the beginning of a group on, of an optimizer whose one state is compact: groups[] of all. */
PS_CPU_INLINE void update_compact_groups(vector_update update, ps_dtype param_t, ps_dtype grad_t, const void *args,
                                         void *groups, int64_t lo, int64_t hi)
{
    for (int64_t first = lo; first < hi; first += PS_FORMAT_GROUP) {
        ps_compact_group *const group = (ps_compact_group *)groups + first / PS_FORMAT_GROUP;
        vf m[GROUP_VECTORS];
        for (int k = 0; k < GROUP_VECTORS; k++) {
            const int64_t i = first + k * VF_LANES;
            m[k] = signed_get(group, k * VF_LANES);
            update(param_t, grad_t, args, i, hi - i, &m[k]);
        }
        signed_put(group, m, group_most(m));
    }
}

#endif
