/* cpu_pack.h - packs 16-bit operands in the order of tiles (cpu_amx.h); for the files in isa/.
 *
 * A step is 32 rows (or columns) by 32 k: two tiles, of 16 rows or columns each. Elements outside of the matrix are
 * zero. The functions on quarters and units do a part of a step, so that the caller can interleave packing with tile
 * instructions. */
#ifndef PS_KERNEL_CPU_PACK_H
#define PS_KERNEL_CPU_PACK_H

#include <immintrin.h>

#include "kernel/cpu/cpu_amx.h"
#include "kernel/cpu/cpu_vec.h"

#define PACK_STEP_BYTES (2 * PS_TILE_BYTES)

/* Transpose 4 x 4 words, rows at `stride` bytes. */
PS_CPU_INLINE void pack_turn_quad(const char *src, int64_t stride, __m128i out[4])
{
    const __m128i a = _mm_loadu_si128((const void *)src), b = _mm_loadu_si128((const void *)(src + stride));
    const __m128i c = _mm_loadu_si128((const void *)(src + 2 * stride));
    const __m128i d = _mm_loadu_si128((const void *)(src + 3 * stride));
    const __m128i ab = _mm_unpacklo_epi32(a, b), cd = _mm_unpacklo_epi32(c, d);
    const __m128i ab_high = _mm_unpackhi_epi32(a, b), cd_high = _mm_unpackhi_epi32(c, d);
    out[0] = _mm_unpacklo_epi64(ab, cd), out[1] = _mm_unpackhi_epi64(ab, cd);
    out[2] = _mm_unpacklo_epi64(ab_high, cd_high), out[3] = _mm_unpackhi_epi64(ab_high, cd_high);
}

/* Store columns 4 q .. 4 q + 3 of 16 x 16 words of 32 bits as rows of dst. dst and its stride are aligned to 64. */
PS_CPU_INLINE void pack_transpose_quarter(const char *src, int64_t src_stride, char *dst, int64_t dst_stride, int q)
{
    src += 16 * q, dst += 4 * q * dst_stride;
#ifdef PS_VEC_AVX512
    /* blocks of 128 bits gathered by masked loads, then 4 x 4 words within them */
    __m512i v[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
        const char *const p = src + r * src_stride;
        __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const void *)p));
        x = _mm512_mask_broadcast_i32x4(x, 0x00f0, _mm_loadu_si128((const void *)(p + 4 * src_stride)));
        x = _mm512_mask_broadcast_i32x4(x, 0x0f00, _mm_loadu_si128((const void *)(p + 8 * src_stride)));
        v[r] = _mm512_mask_broadcast_i32x4(x, 0xf000, _mm_loadu_si128((const void *)(p + 12 * src_stride)));
    }
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    _mm512_store_si512(dst, _mm512_unpacklo_epi64(a, c));
    _mm512_store_si512(dst + dst_stride, _mm512_unpackhi_epi64(a, c));
    _mm512_store_si512(dst + 2 * dst_stride, _mm512_unpacklo_epi64(b, d));
    _mm512_store_si512(dst + 3 * dst_stride, _mm512_unpackhi_epi64(b, d));
#else
    for (int64_t r = 0; r < 16; r += 4, src += 4 * src_stride, dst += 16) {
        __m128i quad[4];
        pack_turn_quad(src, src_stride, quad);
        for (int i = 0; i < 4; i++) _mm_store_si128((void *)(dst + i * dst_stride), quad[i]);
    }
#endif
}

PS_CPU_INLINE void pack_transpose(const char *src, int64_t src_stride, char *dst, int64_t dst_stride)
{
    for (int q = 0; q < 4; q++) pack_transpose_quarter(src, src_stride, dst, dst_stride, q);
}

/* Pack src[k][column], n_k by n_columns, into tiles of [k / 2][column][k % 2]. */
PS_CPU_INLINE void pack_interleave_quarter(const uint16_t *src, int64_t ld, int64_t n_k, int64_t n_columns, char *dst,
                                           int q)
{
#ifdef PS_VEC_AVX512
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), zero = _mm512_setzero_si512();
    const __mmask32 mask = n_columns >= 32 ? ~0U : (1U << n_columns) - 1;
#pragma GCC unroll 4
    for (int pair = 4 * q; pair < 4 * q + 4; pair++) {
        const uint16_t *const s = src + 2 * pair * ld;
        __m512i x = 2 * pair < n_k ? _mm512_maskz_loadu_epi16(mask, s) : zero;
        __m512i y = 2 * pair + 1 < n_k ? _mm512_maskz_loadu_epi16(mask, s + ld) : zero;
        x = _mm512_permutexvar_epi64(order, x), y = _mm512_permutexvar_epi64(order, y);
        _mm512_store_si512(dst + PS_TILE_ROW_BYTES * pair, _mm512_unpacklo_epi16(x, y));
        _mm512_store_si512(dst + PS_TILE_BYTES + PS_TILE_ROW_BYTES * pair, _mm512_unpackhi_epi16(x, y));
    }
#else
    for (int64_t k = 8 * q; k < 8 * q + 8; k++)
        for (int64_t c = 0; c < 32; c++) {
            const uint16_t v = k < n_k && c < n_columns ? src[k * ld + c] : 0;
            memcpy(dst + c / 16 * PS_TILE_BYTES + k / 2 * PS_TILE_ROW_BYTES + c % 16 * 4 + k % 2 * 2, &v, sizeof v);
        }
#endif
}

/* Pack src[row][k], n_rows by n_k, into tiles of [row][k]. */
PS_CPU_INLINE void pack_copy_quarter(const uint16_t *src, int64_t ld, int64_t n_k, int64_t n_rows, char *dst, int q)
{
    for (int64_t r = 8 * q; r < 8 * q + 8; r++) {
        char *const to = dst + PS_TILE_ROW_BYTES * r;
#ifdef PS_VEC_AVX512
        const __mmask32 mask = n_k >= 32 ? ~0U : (1U << n_k) - 1;
        _mm512_store_si512(to, r < n_rows ? _mm512_maskz_loadu_epi16(mask, src + r * ld) : _mm512_setzero_si512());
#else
        memset(to, 0, PS_TILE_ROW_BYTES);
        if (r < n_rows) memcpy(to, src + r * ld, (size_t)ps_min_i64(n_k, 32) * sizeof *src);
#endif
    }
}

/* A step of 32 columns of operand B: src[column][k]. */
PS_CPU_INLINE void pack_columns_along(const uint16_t *src, int64_t ld, int64_t n_k, int64_t n_columns, char *dst)
{
    _Alignas(64) char copy[PACK_STEP_BYTES];
    for (int q = 0; q < 4; q++) pack_copy_quarter(src, ld, n_k, n_columns, copy, q);
    pack_transpose(copy, PS_TILE_ROW_BYTES, dst, PS_TILE_ROW_BYTES);
    pack_transpose(copy + PS_TILE_BYTES, PS_TILE_ROW_BYTES, dst + PS_TILE_BYTES, PS_TILE_ROW_BYTES);
}

/* Panels of 32 columns of operand B, panel_bytes apart, packed a unit at a time: along k, panel by panel, where k is
 * contiguous in memory; else across panels, eight k at a time, as memory serves several streams at once. */
typedef struct pack_columns {
    const uint16_t *src;
    int64_t ld, n_k, n_columns, n_steps;
    bool by_k;
    int64_t n_left;       /* units */
    int64_t step, column; /* of the next unit, and its quarter of the step */
    int quarter;
    char *dst;
    int64_t panel_bytes;
} pack_columns;

PS_CPU_INLINE pack_columns pack_columns_begin(const uint16_t *src, int64_t ld, bool by_k, int64_t n_k,
                                              int64_t n_columns, int64_t n_steps, char *dst, int64_t panel_bytes)
{
    return (pack_columns){.src = src,
                          .ld = ld,
                          .n_k = n_k,
                          .n_columns = n_columns,
                          .n_steps = n_steps,
                          .by_k = by_k,
                          .n_left = n_steps * ((n_columns + 31) / 32) * 4,
                          .dst = dst,
                          .panel_bytes = panel_bytes};
}

/* Four columns of each of its tiles. */
PS_CPU_INLINE void pack_columns_unit_along(pack_columns *w, char *dst)
{
    const uint16_t *const src = w->src + w->column * w->ld + 32 * w->step;
    const int64_t n_k = w->n_k - 32 * w->step, n_columns = w->n_columns - w->column;
    const int q = w->quarter;
    if (n_k >= 32 && n_columns >= 32)
        for (int tile = 0; tile < 2; tile++)
            pack_transpose_quarter((const char *)(src + 16 * tile * w->ld), 2 * w->ld, dst + tile * PS_TILE_BYTES,
                                   PS_TILE_ROW_BYTES, q);
    else if (q == 0)
        pack_columns_along(src, w->ld, n_k, n_columns, dst);
    w->quarter = (q + 1) & 3;
    if (w->quarter == 0 && ++w->step == w->n_steps) w->step = 0, w->column += 32, w->dst += w->panel_bytes;
}

/* Pack eight k of a panel, and prefetch the following ones. */
PS_CPU_INLINE void pack_columns_unit_across(pack_columns *w, char *dst)
{
    const uint16_t *const src = w->src + 32 * w->step * w->ld + w->column;
    for (int64_t r = 8 * w->quarter + 8; r < 8 * w->quarter + 16; r++) __builtin_prefetch(src + r * w->ld, 0, 2);
    pack_interleave_quarter(src, w->ld, w->n_k - 32 * w->step, w->n_columns - w->column, dst, w->quarter);
    w->column += 32, w->dst += w->panel_bytes;
    if (w->column < w->n_columns) return;
    w->dst -= w->panel_bytes * (w->column / 32), w->column = 0;
    w->quarter = (w->quarter + 1) & 3;
    if (w->quarter == 0) w->step++;
}

PS_CPU_INLINE void pack_columns_unit(pack_columns *w)
{
    char *const dst = w->dst + w->step * PACK_STEP_BYTES;
    w->n_left--;
    if (w->by_k)
        pack_columns_unit_along(w, dst);
    else
        pack_columns_unit_across(w, dst);
}

PS_CPU_INLINE void pack_columns_finish(pack_columns *w)
{
    while (w->n_left > 0) pack_columns_unit(w);
}

/* Two neighbouring panels of 32 rows of operand A, packed a unit at a time: two at once, as the caches fetch 128 bytes,
 * and strided reads of 64 get half of the bandwidth. */
typedef struct pack_rows {
    const uint16_t *src;
    int64_t ld, n_k, n_rows, panel_bytes;
    bool by_k;
    int64_t n_left; /* units */
    int quarter;    /* of the step, both panels counted */
    char *dst, *turn;
} pack_rows;

/* turn: room for a step. */
PS_CPU_INLINE pack_rows pack_rows_begin(const uint16_t *src, int64_t ld, bool by_k, int64_t n_k, int64_t n_rows,
                                        int64_t n_steps, char *dst, int64_t panel_bytes, char *turn)
{
    return (pack_rows){.src = src,
                       .ld = ld,
                       .n_k = n_k,
                       .n_rows = n_rows,
                       .panel_bytes = panel_bytes,
                       .by_k = by_k,
                       .n_left = n_steps * (by_k ? 4 : 12) * (n_rows > 32 ? 2 : 1),
                       .dst = dst,
                       .turn = turn};
}

PS_CPU_INLINE void pack_rows_unit(pack_rows *w)
{
    const int all = w->by_k ? 4 : 12, panel = w->quarter >= all, q = w->quarter - panel * all;
    char *const dst = w->dst + panel * w->panel_bytes;
    w->n_left--, w->quarter++;
    if (w->by_k)
        pack_copy_quarter(w->src + 32 * panel * w->ld, w->ld, w->n_k, w->n_rows - 32 * panel, dst, q);
    else if (q < 4)
        pack_interleave_quarter(w->src + 32 * panel, w->ld, w->n_k, w->n_rows - 32 * panel, w->turn, q);
    else {
        const int tile = (q - 4) / 4 * PS_TILE_BYTES;
        pack_transpose_quarter(w->turn + tile, PS_TILE_ROW_BYTES, dst + tile, PS_TILE_ROW_BYTES, q % 4);
    }
    if (q < all - 1 || (!panel && w->n_rows > 32)) return;
    w->quarter = 0, w->n_k -= 32, w->src += w->by_k ? 32 : 32 * w->ld, w->dst += PACK_STEP_BYTES;
}

PS_CPU_INLINE void pack_rows_finish(pack_rows *w)
{
    while (w->n_left > 0) pack_rows_unit(w);
}

#endif
