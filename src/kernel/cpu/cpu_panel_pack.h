/* cpu_panel_pack.h - packs operands of any type into panels of f32 (isa_gemm_panels.c); for the files in isa/.
 *
 * A panel has PANEL_ROWS rows of a, or PANEL_COLUMNS columns of b, one k after the other. For bf16, each 32 k are
 * stored as the 16 even ones, then the 16 odd ones. Zeros follow from n_k to n_padded; other rows and columns outside
 * of the matrix are undefined. */
#ifndef PS_KERNEL_CPU_PANEL_PACK_H
#define PS_KERNEL_CPU_PANEL_PACK_H

#include "kernel/cpu/cpu_pack.h"

/* Sums use all registers except those for the vectors of b and one of a. PANEL_READS_AGAIN: whether each FMA of a row
 * loads a itself. A load within FMA needs no additional instruction, which helps when two threads share a core (114
 * instead of 105 GFLOP/s, Emerald Rapids); doing so in all rows would be limited by loads. */
#if defined(PS_VEC_AVX512)
#define PANEL_ROWS 14
#define PANEL_VECTORS 2
#define PANEL_READS_AGAIN(row) ((row) % 2)
#elif defined(PS_VEC_AVX2)
#define PANEL_ROWS 6
#define PANEL_VECTORS 2
#else
#define PANEL_ROWS 4
#define PANEL_VECTORS 4
#endif
#ifndef PANEL_READS_AGAIN
#define PANEL_READS_AGAIN(row) 0 /* AVX2 has no broadcast operand */
#endif
#define PANEL_COLUMNS (PANEL_VECTORS * VF_LANES)

/* Words of 32 bits in which k is packed: an f32, or two bf16. */
#define PANEL_WORDS 16

/* The k of a block at position `index` of a panel. */
PS_CPU_INLINE int64_t panel_k_at(ps_dtype t, int64_t index)
{
    const int64_t i = index % (2 * PANEL_WORDS);
    return t != PS_DTYPE_BF16 ? index : index - i + i % PANEL_WORDS * 2 + i / PANEL_WORDS;
}

PS_CPU_INLINE void zero_floats(float *dst, int64_t n)
{
    memset(dst, 0, (size_t)n * sizeof *dst);
}

/* 16 words of 32 bits, each two bf16: the even ones to `even`, the odd ones to `odd`. */
PS_CPU_INLINE void words_split(const void *words, float *even, float *odd)
{
    for (int i = 0; i < PANEL_WORDS; i += VF_LANES) {
        vu w;
        memcpy(&w, (const char *)words + 4 * i, sizeof w);
        vf_store(even + i, (vf)(w << 16));
        vf_store(odd + i, (vf)(w & 0xffff0000U));
    }
}

/* Pack n rows or columns that are contiguous in memory into panels of `width`, [k][width], `panel` floats apart: all
 * panels of one k, then the next k, as memory is fastest this way. A vector may write past the width, before the
 * elements there are written. */
PS_CPU_INLINE void panels_pack_across(ps_dtype t, const void *src, int64_t ld, int64_t n_k, int64_t n_padded, int64_t n,
                                      int64_t width, int64_t panel, float *dst)
{
    for (int64_t index = 0; index < n_padded; index++, dst += width) {
        const int64_t k = panel_k_at(t, index);
        float *to = dst;
        for (int64_t i = 0; i < n; i += width, to += panel)
            for (int64_t w = 0; w < width; w += VF_LANES)
                vf_store(to + w, k < n_k && i + w < n ? vf_get(t, src, k * ld + i + w, n - i - w) : (vf){0});
    }
}

/* `width` rows or columns, at most 16, by 16 words of k from src on, of which n and n_k exist. Returns their address;
 * they are *stride bytes apart. */
PS_CPU_INLINE const char *words_find(ps_dtype t, const void *src, int64_t ld, int64_t n_k, int64_t n, int64_t width,
                                     float *copy, int64_t *stride)
{
    const int64_t in_words = t == PS_DTYPE_BF16 ? 2 * PANEL_WORDS : PANEL_WORDS;
    if (t != PS_DTYPE_F16 && n_k >= in_words && n >= width) {
        *stride = ld * (int64_t)ps_dtype_bytes(t);
        return src;
    }
    n_k = ps_min_i64(n_k, in_words);
    zero_floats(copy, PANEL_WORDS * PANEL_WORDS);
    for (int64_t i = 0; i < ps_min_i64(n, width); i++) {
        float *const to = copy + i * PANEL_WORDS;
        if (t != PS_DTYPE_F16)
            memcpy(to, ps_cpu_at_const(t, src, i * ld), (size_t)n_k * ps_dtype_bytes(t));
        else
            for (int64_t k = 0; k < n_k; k += VF_LANES)
                vf_put(PS_DTYPE_F32, to, k, n_k - k, vf_get(t, src, i * ld + k, n_k - k));
    }
    *stride = PANEL_WORDS * (int64_t)sizeof *copy;
    return (const char *)copy;
}

/* Pack a panel of b whose k is contiguous. */
PS_CPU_INLINE void panel_pack_turned(ps_dtype t, const void *src, int64_t ld, int64_t n_k, int64_t n_padded,
                                     int64_t n_columns, float *dst)
{
    _Alignas(64) float copy[PANEL_WORDS * PANEL_WORDS], turned[PANEL_WORDS * PANEL_WORDS];
    const int64_t in_words = t == PS_DTYPE_BF16 ? 2 * PANEL_WORDS : PANEL_WORDS;
    for (int64_t k = 0; k < n_padded; k += in_words, dst += in_words * PANEL_COLUMNS)
        for (int64_t j = 0; j < PANEL_COLUMNS; j += PANEL_WORDS) {
            int64_t stride;
            const char *const words = words_find(t, ps_cpu_at_const(t, src, j * ld + k), ld, n_k - k, n_columns - j,
                                                 PANEL_WORDS, copy, &stride);
            pack_transpose(words, stride, (char *)turned, PANEL_WORDS * 4);
            for (int64_t w = 0; w < ps_min_i64(PANEL_WORDS, n_padded - k); w++) {
                float *const to = dst + w * PANEL_COLUMNS + j;
                if (t == PS_DTYPE_BF16)
                    words_split(turned + w * PANEL_WORDS, to, to + PANEL_WORDS * PANEL_COLUMNS);
                else
                    memcpy(to, turned + w * PANEL_WORDS, PANEL_WORDS * 4);
            }
        }
}

/* Pack a panel of rows of a whose k is contiguous. */
PS_CPU_INLINE void rows_pack_turned(ps_dtype t, const void *src, int64_t ld, int64_t n_k, int64_t n_padded,
                                    int64_t n_rows, float *dst)
{
    _Alignas(64) float copy[PANEL_WORDS * PANEL_WORDS];
    const int64_t in_words = t == PS_DTYPE_BF16 ? 2 * PANEL_WORDS : PANEL_WORDS;
    for (int64_t k = 0; k < n_padded; k += in_words, dst += in_words * PANEL_ROWS) {
        int64_t stride;
        const char *const words =
            words_find(t, ps_cpu_at_const(t, src, k), ld, n_k - k, n_rows, PANEL_ROWS, copy, &stride);
        const int64_t n_words = ps_min_i64(PANEL_WORDS, n_padded - k);
        for (int64_t group = 0; group < PANEL_ROWS; group += 4) {
            const int64_t r = ps_min_i64(group, PANEL_ROWS - 4);
            for (int64_t w = 0; w < n_words; w += 4) {
                __m128i quad[4];
                pack_turn_quad(words + r * stride + 4 * w, stride, quad);
#pragma GCC unroll 4
                for (int i = 0; i < ps_min_i64(4, n_words - w); i++) {
                    float *const to = dst + (w + i) * PANEL_ROWS + r;
                    if (t != PS_DTYPE_BF16) {
                        _mm_storeu_si128((void *)to, quad[i]);
                        continue;
                    }
                    _mm_storeu_si128((void *)to, _mm_slli_epi32(quad[i], 16));
                    _mm_storeu_si128((void *)(to + PANEL_WORDS * PANEL_ROWS),
                                     _mm_and_si128(quad[i], _mm_set1_epi32((int)0xffff0000U)));
                }
            }
        }
    }
}

#endif
