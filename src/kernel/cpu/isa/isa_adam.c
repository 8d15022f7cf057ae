/* With fp32 states Adam is bound by memory, with compact ones by their arithmetic. The operations are those of the
 * reference, in the same order and without FMA, so that master, m and v have the same bits on every backend, step after
 * step. */
#include "base/compact.h"
#include "base/split.h"
#include "kernel/cpu/cpu_vec.h"

/* Prefetch distance in elements of each array. A square root and a division delay later instructions for longer than
 * the reorder window of a core (bench/notes.md). */
#define ADAM_AHEAD 512

/* Prefetching past the end of an array is harmless. */
PS_CPU_INLINE void adam_ask(ps_dtype t, const void *array, int64_t i)
{
    __builtin_prefetch((const void *)((uintptr_t)array + (uintptr_t)(i + ADAM_AHEAD) * ps_dtype_bytes(t)));
}

typedef struct adam_factors {
    float step, shrink, decay;
} adam_factors;

PS_CPU_INLINE adam_factors adam_factors_of(const ps_adam_args *a)
{
    return (adam_factors){.step = a->lr / a->bias1, .shrink = 1.0f / sqrtf(a->bias2), .decay = a->lr * a->weight_decay};
}

/* ---- split: the operations of base/split.h ---- */

/* Elements [i, i + n) as integers; those of a put are below 2^16. */
PS_CPU_INLINE vu halves_get(const uint16_t *p, int64_t i, int64_t n)
{
    return (vu)vf_get(PS_DTYPE_BF16, p, i, n) >> 16;
}

PS_CPU_INLINE void halves_store(uint16_t *p, vu x)
{
#if defined(PS_VEC_AVX512)
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16((__m512i)x));
#elif defined(PS_VEC_AVX2)
    const __m256i packed = _mm256_packus_epi32((__m256i)x, (__m256i)x);
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
#else
    for (int l = 0; l < VF_LANES; l++) p[l] = (uint16_t)x[l];
#endif
}

PS_CPU_INLINE void halves_put(uint16_t *p, int64_t i, int64_t n, vu x)
{
    if (n >= VF_LANES) {
        halves_store(p + i, x);
        return;
    }
    uint16_t some[VF_LANES];
    halves_store(some, x);
    for (int64_t l = 0; l < n; l++) p[i + l] = some[l];
}

PS_CPU_INLINE vf split_get(const ps_adam_args *a, int64_t i, int64_t n)
{
    const vu low = halves_get(a->low, i, n);
    return (vf)((vu)vf_get(PS_DTYPE_BF16, a->param, i, n) + low - PS_SPLIT_CARRY(low));
}

PS_CPU_INLINE void split_put(const ps_adam_args *a, int64_t i, int64_t n, vf w)
{
    const vu u = (vu)w, low = u & 0xffff, is_tie = (vu)(low == PS_SPLIT_HALF), is_nan = (vu)(w != w);
    halves_put(a->low, i, n, (low + (is_tie & (u >> 16) & 1)) & ~is_nan);
}

/* A vector from element i on; *m and *v become those of this step. Returns the square root of *v. */
PS_CPU_INLINE vf adam_vector(ps_dtype param_t, ps_dtype grad_t, bool is_split, const ps_adam_args *a,
                             const adam_factors *f, int64_t i, int64_t n, vf *m, vf *v)
{
    vf w = is_split ? split_get(a, i, n) : vf_get(PS_DTYPE_F32, a->master, i, n);
    vf g = vf_get(grad_t, a->grad, i, n) * a->grad_scale;
    if (a->decoupled_decay)
        w = w - f->decay * w;
    else
        g = g + a->weight_decay * w;
    *m = a->beta1 * *m + a->one_minus_beta1 * g;
    *v = a->beta2 * *v + a->one_minus_beta2 * (g * g);
    const vf root = vf_sqrt(*v);
    w = w - (f->step * *m) / (root * f->shrink + a->eps);
    if (is_split)
        split_put(a, i, n, w);
    else
        vf_put(PS_DTYPE_F32, a->master, i, n, w);
    vf_put(param_t, a->param, i, n, w);
    return root;
}

PS_CPU_INLINE void adam_floats(ps_dtype param_t, ps_dtype grad_t, const ps_adam_args *a, int64_t lo, int64_t hi)
{
    const adam_factors f = adam_factors_of(a);
    for (int64_t i = lo; i < hi; i += VF_LANES) {
        const int64_t n = hi - i;
        adam_ask(PS_DTYPE_F32, a->master, i);
        adam_ask(PS_DTYPE_F32, a->m, i);
        adam_ask(PS_DTYPE_F32, a->v, i);
        adam_ask(grad_t, a->grad, i);
        vf m = vf_get(PS_DTYPE_F32, a->m, i, n), v = vf_get(PS_DTYPE_F32, a->v, i, n);
        (void)adam_vector(param_t, grad_t, false, a, &f, i, n, &m, &v);
        vf_put(PS_DTYPE_F32, a->m, i, n, m);
        vf_put(PS_DTYPE_F32, a->v, i, n, v);
    }
}

/* ---- compact: the operations of base/compact.h ---- */

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

/* Groups are decoded and updated, then encoded, several at a time: either part has few dependent operations, so that
 * a core works on several vectors at once. */
#define COMPACT_GROUPS 8

PS_CPU_INLINE void adam_compact(ps_dtype param_t, ps_dtype grad_t, bool is_split, const ps_adam_args *a, int64_t lo,
                                int64_t hi)
{
    const adam_factors f = adam_factors_of(a);
    ps_compact_group *const all_m = (ps_compact_group *)a->m, *const all_v = (ps_compact_group *)a->v;
    for (int64_t first = lo / PS_FORMAT_GROUP; first * PS_FORMAT_GROUP < hi; first += COMPACT_GROUPS) {
        vf m[COMPACT_GROUPS][GROUP_VECTORS], root[COMPACT_GROUPS][GROUP_VECTORS];
        const int64_t n = ps_min_i64(COMPACT_GROUPS, ps_ceil_div(hi, PS_FORMAT_GROUP) - first);
        for (int64_t j = 0; j < n; j++)
            for (int k = 0; k < GROUP_VECTORS; k++) {
                const int64_t at = (first + j) * PS_FORMAT_GROUP + k * VF_LANES;
                adam_ask(is_split ? param_t : PS_DTYPE_F32, is_split ? a->param : a->master, at);
                if (is_split) adam_ask(PS_DTYPE_BF16, a->low, at);
                adam_ask(grad_t, a->grad, at);
                vf v = root_get(&all_v[first + j], k * VF_LANES), next_m = signed_get(&all_m[first + j], k * VF_LANES);
                root[j][k] = adam_vector(param_t, grad_t, is_split, a, &f, at, hi - at, &next_m, &v);
                m[j][k] = next_m;
            }
        for (int64_t j = 0; j < n; j++) {
            signed_put(&all_m[first + j], m[j], group_most(m[j]));
            root_put(&all_v[first + j], root[j], group_most(root[j]));
        }
    }
}

PS_CPU_INLINE void adam_range(ps_dtype param_t, ps_dtype grad_t, const ps_adam_args *a, int64_t lo, int64_t hi)
{
    if (param_t == PS_DTYPE_BF16 && a->low != NULL)
        adam_compact(param_t, grad_t, true, a, lo, hi);
    else if (a->is_compact)
        adam_compact(param_t, grad_t, false, a, lo, hi);
    else
        adam_floats(param_t, grad_t, a, lo, hi);
}

PS_CPU_INLINE void adam_param(ps_dtype param_t, const ps_adam_args *a, int64_t lo, int64_t hi)
{
#define CALL(t) adam_range(param_t, t, a, lo, hi)
    PS_CPU_BY_DTYPE(a->grad_dtype, CALL);
#undef CALL
}

/* A copy of the arguments: no store can change it, so the compiler keeps it in registers. */
static void adam_block(const void *args, int64_t lo, int64_t hi)
{
    const ps_adam_args a = *(const ps_adam_args *)args;
#define CALL(t) adam_param(t, &a, lo, hi)
    PS_CPU_BY_DTYPE(a.param_dtype, CALL);
#undef CALL
}

static ps_status adam(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_adam_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_blocks(self, a->n, adam_block, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(adam) = {.run = adam};
