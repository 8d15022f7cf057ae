/* cpu_tile_pack.h - converts rows in memory to the operands of cpu_tile.h; for the files in isa/. */
#ifndef PS_KERNEL_CPU_TILE_PACK_H
#define PS_KERNEL_CPU_TILE_PACK_H

#include "kernel/cpu/cpu_tile.h"

/* dst[j][i] = src[i][j], words of 4 bytes; both VF_LANES square. */
PS_CPU_INLINE void tile_transpose_block(uint32_t *dst, int64_t ldd, const uint32_t *src, int64_t lds)
{
#ifdef PS_VEC_AVX512
    /* exchange 1, 2, 4, 8 columns between rows that far apart */
    __m512i x[16], y[16];
    for (int i = 0; i < 16; i++) x[i] = _mm512_loadu_si512(src + i * lds);
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int h = 0; h < 2; h++) {
            x[i + 2 * h] = _mm512_unpacklo_epi64(y[i + h], y[i + h + 2]);
            x[i + 2 * h + 1] = _mm512_unpackhi_epi64(y[i + h], y[i + h + 2]);
        }
    for (int i = 0; i < 4; i++) {
        y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
        y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
        y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
        y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        _mm512_storeu_si512(dst + i * ldd, _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88));
        _mm512_storeu_si512(dst + (i + 8) * ldd, _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd));
    }
#else
    for (int j = 0; j < VF_LANES; j++)
        for (int i = 0; i < VF_LANES; i++) dst[j * ldd + i] = src[i * lds + j];
#endif
}

/* dst[cols][rows] = src[rows][cols] in words of 4 bytes; sizes need not be multiples of the block. */
static inline void tile_transpose(void *dst, int64_t ldd, const void *src, int64_t lds, int64_t rows, int64_t cols)
{
    uint32_t *const d = dst;
    const uint32_t *const s = src;
    for (int64_t i = 0; i < rows; i += VF_LANES)
        for (int64_t j = 0; j < cols; j += VF_LANES) {
            if (rows - i >= VF_LANES && cols - j >= VF_LANES) {
                tile_transpose_block(d + j * ldd + i, ldd, s + i * lds + j, lds);
                continue;
            }
            for (int64_t y = j; y < ps_min_i64(cols, j + VF_LANES); y++)
                for (int64_t x = i; x < ps_min_i64(rows, i + VF_LANES); x++) d[y * ldd + x] = s[x * lds + y];
        }
}

/* dst[n_padded][width] cells = n rows of src with D elements at stride ld; zero beyond n and D, and, unless mask is
 * NULL, in rows whose mask is 0. */
static inline void tile_gather(tile_kind kind, void *dst, int64_t width, int64_t n_padded, ps_dtype t, const void *src,
                               int64_t ld, int64_t n, int64_t D, const int32_t *mask)
{
    const int64_t row_bytes = width * tile_cell_bytes(kind);
    for (int64_t r = 0; r < n_padded; r++) {
        const bool is_zero = r >= n || (mask != NULL && mask[r] == 0);
        char *const row = (char *)dst + r * row_bytes;
        if (is_zero || D < width) memset(row, 0, (size_t)row_bytes);
        if (is_zero) continue;
        const void *const from = ps_cpu_at_const(t, src, r * ld);
        if (tile_is_paired(kind) || t == PS_DTYPE_F32)
            memcpy(row, from, (size_t)(D * tile_cell_bytes(kind)));
        else
            for (int64_t d = 0; d < D; d += VF_LANES) vf_put(PS_DTYPE_F32, row, d, D - d, vf_get(t, from, d, D - d));
    }
}

/* Convert rows of cells src[k][n] to a right operand. Without pairs this is a copy. */
static inline void tile_interleave(tile_kind kind, void *dst, const void *src, int64_t k, int64_t n)
{
    if (!tile_is_paired(kind)) {
        memcpy(dst, src, (size_t)(k * n) * sizeof(float));
        return;
    }
    const uint16_t *const s = src;
    uint32_t *const d = dst;
    for (int64_t i = 0; i < k / 2; i++) {
        const uint16_t *const even = s + 2 * i * n, *const odd = even + n;
        for (int64_t j = 0; j < n; j++) d[i * n + j] = (uint32_t)even[j] | (uint32_t)odd[j] << 16;
    }
}

/* v rounded to bf16, in 32 bits, as by the CPU's conversion. Subnormal numbers are flushed already. */
PS_CPU_INLINE vf tile_round(vf v)
{
    const vu u = (vu)v, is_nan = (vu)(v != v);
    const vu rounded = u + 0x7fff + ((u >> 16) & 1);
    return (vf)(((rounded & ~is_nan) | ((u | 0x400000) & is_nan)) & 0xffff0000);
}

#if defined(PS_ISA_avx512_bf16)
/* One vector of two rows of a tile as pairs: `row` cells are 2 bytes. */
PS_CPU_INLINE void tile_store_pairs(void *interleaved, void *natural, int64_t tile, int64_t row, int64_t j, vf even,
                                    vf odd)
{
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, even); /* even in the low half */
    if (natural) {
        uint16_t *const p = (uint16_t *)natural + row * tile + j;
        _mm256_storeu_si256((__m256i *)(void *)p, _mm512_castsi512_si256(both));
        _mm256_storeu_si256((__m256i *)(void *)(p + tile), _mm512_extracti64x4_epi64(both, 1));
    }
    if (interleaved) {
        /* halves i and 16 + i become word i */
        const __m512i zip = (__m512i)(vi_lanes() * 0x10001 + (16 << 16));
        _mm512_storeu_si512((uint32_t *)interleaved + row / 2 * tile + j, _mm512_permutexvar_epi16(zip, both));
    }
}
#else
PS_CPU_INLINE void tile_store_pairs(void *interleaved, void *natural, int64_t tile, int64_t row, int64_t j, vf even,
                                    vf odd)
{
    const vu low = (vu)tile_round(even) >> 16, high = (vu)tile_round(odd) >> 16, zipped = low | high << 16;
    for (int l = 0; natural && l < VF_LANES; l++) {
        uint16_t *const p = (uint16_t *)natural + row * tile + j + l;
        p[0] = (uint16_t)low[l], p[tile] = (uint16_t)high[l];
    }
    if (interleaved) memcpy((uint32_t *)interleaved + row / 2 * tile + j, &zipped, sizeof zipped);
}
#endif

/* One vector of the rows `row` (even) and row + 1 of a tile, from column j on, as cells: to `interleaved`, a right
 * operand, and to `natural`, rows at `tile` cells; either may be NULL. Without pairs both have the same layout, and may
 * be one array. */
PS_CPU_INLINE void tile_store_rows(tile_kind kind, void *interleaved, void *natural, int64_t tile, int64_t row,
                                   int64_t j, vf even, vf odd)
{
    if (tile_is_paired(kind)) {
        tile_store_pairs(interleaved, natural, tile, row, j, even, odd);
        return;
    }
    if (kind == TILE_FMA) even = tile_round(even), odd = tile_round(odd);
    if (natural) {
        vf_store((float *)natural + row * tile + j, even);
        vf_store((float *)natural + (row + 1) * tile + j, odd);
    }
    if (interleaved && interleaved != natural) {
        vf_store((float *)interleaved + row * tile + j, even);
        vf_store((float *)interleaved + (row + 1) * tile + j, odd);
    }
}

/* Rows src[n][width] of floats, D of them, times `factor` to dst, of type t, rows at ld. */
static inline void tile_scatter(ps_dtype t, void *dst, int64_t ld, const float *src, int64_t width, int64_t n,
                                int64_t D, float factor)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t d = 0; d < D; d += VF_LANES)
            vf_put(t, dst, r * ld + d, D - d, vf_get(PS_DTYPE_F32, src, r * width + d, D - d) * factor);
}

#endif
