/* With fp32 states Adam is bound by memory, with compact ones by their arithmetic. The operations are those of the
 * reference, in the same order and without FMA, so that master, m and v have the same bits on every backend, step after
 * step. */
#include "base/split.h"
#include "base/stochastic.h"
#include "kernel/cpu/cpu_compact.h"
#include "kernel/cpu/cpu_random.h"

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

/* *w, *m and *v become those of this step. Returns the square root of *v. */
PS_CPU_INLINE vf adam_vector(const ps_adam_args *a, const adam_factors *f, vf grad, vf *w, vf *m, vf *v)
{
    vf g = grad * a->grad_scale;
    if (a->decoupled_decay)
        *w = *w - f->decay * *w;
    else
        g = g + a->weight_decay * *w;
    *m = a->beta1 * *m + a->one_minus_beta1 * g;
    *v = a->beta2 * *v + a->one_minus_beta2 * (g * g);
    const vf root = vf_sqrt(*v);
    *w = *w - (f->step * *m) / (root * f->shrink + a->eps);
    return root;
}

/* The same from element i on, with masters. */
PS_CPU_INLINE vf adam_master(ps_dtype param_t, ps_dtype grad_t, bool is_split, const ps_adam_args *a,
                             const adam_factors *f, int64_t i, int64_t n, vf *m, vf *v)
{
    vf w = is_split ? split_get(a, i, n) : vf_get(PS_DTYPE_F32, a->master, i, n);
    const vf root = adam_vector(a, f, vf_get(grad_t, a->grad, i, n), &w, m, v);
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
        (void)adam_master(param_t, grad_t, false, a, &f, i, n, &m, &v);
        vf_put(PS_DTYPE_F32, a->m, i, n, m);
        vf_put(PS_DTYPE_F32, a->v, i, n, v);
    }
}

/* ---- stochastic: the operations of base/stochastic.h ---- */

PS_CPU_INLINE void stochastic_put(void *array, int64_t i, int64_t n, vf x, vu word)
{
    const vu is_nan = (vu)(x != x), rounded = ((vu)x + word) & 0xffff0000u;
    vf_put(PS_DTYPE_BF16, array, i, n, (vf)((rounded & ~is_nan) | ((vu)x & is_nan)));
}

PS_CPU_INLINE void adam_stochastic(ps_dtype grad_t, const ps_adam_args *a, int64_t lo, int64_t hi)
{
    const adam_factors f = adam_factors_of(a);
    for (int64_t first = lo; first < hi; first += PS_RANDOM_WORDS) {
        uint32_t words[PS_RANDOM_WORDS];
        ps_random_words(words, a->key, (uint64_t)(a->first + first) / 4);
        for (int k = 0; k < PS_RANDOM_WORDS && first + k < hi; k += VF_LANES) {
            const int64_t i = first + k, n = hi - i;
            vu word;
            memcpy(&word, words + k, sizeof word);
            vf w = vf_get(PS_DTYPE_BF16, a->param, i, n);
            vf m = vf_get(PS_DTYPE_BF16, a->m, i, n), v = vf_get(PS_DTYPE_BF16, a->v, i, n);
            (void)adam_vector(a, &f, vf_get(grad_t, a->grad, i, n), &w, &m, &v);
            stochastic_put(a->param, i, n, w, PS_STOCHASTIC_PARAM(word));
            stochastic_put(a->m, i, n, m, PS_STOCHASTIC_MOMENTUM(word));
            stochastic_put(a->v, i, n, v, PS_STOCHASTIC_VARIANCE(word));
        }
    }
}

/* ---- compact ---- */

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
                root[j][k] = adam_master(param_t, grad_t, is_split, a, &f, at, hi - at, &next_m, &v);
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
    if (param_t == PS_DTYPE_BF16 && a->is_stochastic)
        adam_stochastic(grad_t, a, lo, hi);
    else if (param_t == PS_DTYPE_BF16 && a->low != NULL)
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
