/* cpu_tile.h - small matrix products on tiles in scratch, for attention; for the files in isa/.
 *
 * The elements of tiles ("cells") are f32, or bf16 where the instruction set multiplies pairs of them (paired):
 *   left operand   a[m][k], rows at lda cells: what is natural in memory
 *   right operand  b[k / 2][n][2] when paired ("interleaved": two rows of b zipped), b[k][n] when not
 *   result         c[m][n] in f32
 * m is a multiple of TILE_M, n of 16, k of 2: tiles are padded with zeros. */
#ifndef PS_KERNEL_CPU_TILE_H
#define PS_KERNEL_CPU_TILE_H

#include "kernel/cpu/cpu_vec.h"

/* Queries, and keys, of the largest tile. */
#define TILE 64
#define TILE_M 4

/* Whether dtype can be multiplied as pairs. */
PS_CPU_INLINE bool tile_is_paired(ps_dtype t)
{
#ifdef PS_ISA_avx512_bf16
    return t == PS_DTYPE_BF16;
#else
    (void)t;
    return false;
#endif
}

PS_CPU_INLINE int64_t tile_cell_bytes(bool paired)
{
    return paired ? 2 : 4;
}

/* acc + a b; with pairs the sum of both products. */
PS_CPU_INLINE vf tile_dot(bool paired, vf acc, vf a, vf b)
{
#ifdef PS_ISA_avx512_bf16
    if (paired) return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
#else
    (void)paired;
#endif
    return vf_fma(a, b, acc);
}

/* TILE_M rows by `width` vectors of c, sums in registers. `steps`: k, or k / 2 when paired; lda in words of 4 bytes. */
PS_CPU_INLINE void tile_block(bool paired, int width, float *c, int64_t ldc, const float *a, int64_t lda,
                              const float *b, int64_t n, int64_t steps, bool accumulate)
{
    vf sum[TILE_M][4];
    for (int r = 0; r < TILE_M; r++)
        for (int j = 0; j < width; j++) sum[r][j] = accumulate ? vf_load(c + r * ldc + j * VF_LANES) : vf_set1(0.0f);
    for (int64_t k = 0; k < steps; k++) {
        vf right[4];
        for (int j = 0; j < width; j++) right[j] = vf_load(b + k * n + j * VF_LANES);
        for (int r = 0; r < TILE_M; r++) {
            /* one float, or a pair, whose bits must pass unchanged: not through a float */
            int32_t word;
            memcpy(&word, a + r * lda + k, sizeof word);
            const vf left = (vf)((vi){0} + word);
            for (int j = 0; j < width; j++) sum[r][j] = tile_dot(paired, sum[r][j], left, right[j]);
        }
    }
    for (int r = 0; r < TILE_M; r++)
        for (int j = 0; j < width; j++) vf_store(c + r * ldc + j * VF_LANES, sum[r][j]);
}

#ifdef PS_VEC_AVX512
#define TILE_WIDTH 4
#else
#define TILE_WIDTH 2
#endif

/* c[m][n] (+)= a b. ldc in floats, lda in cells. */
PS_CPU_INLINE void tile_product_of(bool paired, float *c, int64_t ldc, const void *a, int64_t lda, const void *b,
                                   int64_t m, int64_t n, int64_t k, bool accumulate)
{
    const int64_t steps = paired ? k / 2 : k, lda_words = paired ? lda / 2 : lda;
    for (int64_t j = 0; j < n;) {
        const float *const right = (const float *)b + j;
        const bool wide = n - j >= TILE_WIDTH * VF_LANES;
        for (int64_t i = 0; i < m; i += TILE_M) {
            const float *const left = (const float *)a + i * lda_words;
            if (wide)
                tile_block(paired, TILE_WIDTH, c + i * ldc + j, ldc, left, lda_words, right, n, steps, accumulate);
            else
                tile_block(paired, 1, c + i * ldc + j, ldc, left, lda_words, right, n, steps, accumulate);
        }
        j += wide ? TILE_WIDTH * VF_LANES : VF_LANES;
    }
}

static inline void tile_product(bool paired, float *c, int64_t ldc, const void *a, int64_t lda, const void *b,
                                int64_t m, int64_t n, int64_t k, bool accumulate)
{
    if (paired)
        tile_product_of(true, c, ldc, a, lda, b, m, n, k, accumulate);
    else
        tile_product_of(false, c, ldc, a, lda, b, m, n, k, accumulate);
}

/* ---- bringing operands into shape -----------------------------------------------------------------------------------*/

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

/* dst[n_padded][width] cells = n rows of src with D elements at stride ld; zero beyond n and D, and, unless mask is NULL,
 * in rows whose mask is 0. */
static inline void tile_gather(bool paired, void *dst, int64_t width, int64_t n_padded, ps_dtype t, const void *src,
                               int64_t ld, int64_t n, int64_t D, const int32_t *mask)
{
    const int64_t row_bytes = width * tile_cell_bytes(paired);
    for (int64_t r = 0; r < n_padded; r++) {
        const bool is_zero = r >= n || (mask != NULL && mask[r] == 0);
        char *const row = (char *)dst + r * row_bytes;
        if (is_zero || D < width) memset(row, 0, (size_t)row_bytes);
        if (is_zero) continue;
        const void *const from = ps_cpu_at_const(t, src, r * ld);
        if (paired || t == PS_DTYPE_F32)
            memcpy(row, from, (size_t)(D * tile_cell_bytes(paired)));
        else
            for (int64_t d = 0; d < D; d += VF_LANES) vf_put(PS_DTYPE_F32, row, d, D - d, vf_get(t, from, d, D - d));
    }
}

/* Rows of cells src[k][n] to a right operand. Without pairs they are one already: a copy. */
static inline void tile_interleave(bool paired, void *dst, const void *src, int64_t k, int64_t n)
{
    if (!paired) {
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

/* One vector of the rows `row` (even) and row + 1 of a tile, from column j on, as cells: to `interleaved`, a right operand,
 * and to `natural`, rows at `tile` cells; either may be NULL. Without pairs both look the same and may be one array. */
PS_CPU_INLINE void tile_store_rows(bool paired, void *interleaved, void *natural, int64_t tile, int64_t row, int64_t j,
                                   vf even, vf odd)
{
#ifdef PS_ISA_avx512_bf16
    if (paired) {
        const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, even); /* even in the low half */
        const __m256i low = _mm512_castsi512_si256(both), high = _mm512_extracti64x4_epi64(both, 1);
        if (natural) {
            uint16_t *const p = (uint16_t *)natural + row * tile + j;
            _mm256_storeu_si256((__m256i *)(void *)p, low);
            _mm256_storeu_si256((__m256i *)(void *)(p + tile), high);
        }
        if (interleaved) {
            const __m512i zipped =
                _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
            _mm512_storeu_si512((uint32_t *)interleaved + row / 2 * tile + j, zipped);
        }
        return;
    }
#else
    (void)paired;
#endif
    if (natural) {
        vf_store((float *)natural + row * tile + j, even);
        vf_store((float *)natural + (row + 1) * tile + j, odd);
    }
    if (interleaved && interleaved != natural) {
        vf_store((float *)interleaved + row * tile + j, even);
        vf_store((float *)interleaved + (row + 1) * tile + j, odd);
    }
}

/* Rows src[n][width] of floats, D of them, to dst, of type t, rows at ld. */
static inline void tile_scatter(ps_dtype t, void *dst, int64_t ld, const float *src, int64_t width, int64_t n,
                                int64_t D)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t d = 0; d < D; d += VF_LANES)
            vf_put(t, dst, r * ld + d, D - d, vf_get(PS_DTYPE_F32, src, r * width + d, D - d));
}

#endif
