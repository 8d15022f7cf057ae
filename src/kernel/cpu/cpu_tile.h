/* cpu_tile.h - small matrix multiplication on tiles in scratch, for attention; for the files in isa/.
 *
 * The elements of tiles ("cells") are bf16 where the CPU multiplies pairs of them (paired), else f32:
 *   left operand   a[m][k], rows at lda cells: the natural layout
 *   right operand  b[k / 2][n][2] when paired ("interleaved": two rows of b zipped), b[k][n] when not
 *   result         c[m][n] in f32
 * m, n and k are multiples of 32, of 16 for TILE_F32: tiles are padded with zeros.
 *
 * TILE_FMA, TILE_AMX and the emulation of its instructions give the same bits: the order of cpu_amx.h. */
#ifndef PS_KERNEL_CPU_TILE_H
#define PS_KERNEL_CPU_TILE_H

#include "kernel/cpu/cpu_amx.h"
#include "kernel/cpu/cpu_vec.h"

/* Maximum number of queries, and of keys, of a tile. */
#define TILE 64
#define TILE_M 4

#ifdef PS_VEC_AVX512
#define TILE_WIDTH 4
#else
#define TILE_WIDTH 2
#endif

typedef enum tile_kind {
    TILE_F32, /* cells of f32; sums over ascending k */
    TILE_FMA, /* bf16 widened to cells of f32; sums in the order of the tile instructions */
    TILE_DP,  /* pairs; the CPU's dot product of pairs, with a different order */
    TILE_AMX, /* pairs; the tile instructions */
} tile_kind;

/* Multiplication of tiles of type t. */
PS_CPU_INLINE tile_kind tile_kind_of(const ps_cpu *cpu, ps_dtype t)
{
    (void)cpu;
    if (t != PS_DTYPE_BF16) return TILE_F32;
#if defined(PS_TILES_EMULATED)
    return TILE_AMX;
#elif defined(PS_ISA_avx512_bf16)
    return cpu->isa == PS_CPU_AMX ? TILE_AMX : cpu->uses_dpbf16 ? TILE_DP : TILE_FMA;
#elif defined(PS_VEC_AVX512) || defined(PS_VEC_AVX2)
    return TILE_FMA;
#else
    return TILE_F32;
#endif
}

PS_CPU_INLINE bool tile_is_paired(tile_kind kind)
{
    return kind == TILE_DP || kind == TILE_AMX;
}

PS_CPU_INLINE int64_t tile_cell_bytes(tile_kind kind)
{
    return tile_is_paired(kind) ? 2 : 4;
}

/* ---- thread state during multiplication -------------------------------------------------------------------------- */

#define TILE_FLUSH_SUBNORMAL 0x8040u /* MXCSR: of results, and of operands */

/* Call before multiplication: flush subnormal numbers to zero, as the tile instructions do, except for f32 and f16.
 * Returns the argument of tile_end. */
static inline unsigned tile_begin(tile_kind kind)
{
    unsigned saved = 0;
#if defined(PS_VEC_AVX512) || defined(PS_VEC_AVX2)
    saved = _mm_getcsr();
    if (kind != TILE_F32) _mm_setcsr(saved | TILE_FLUSH_SUBNORMAL);
#endif
#ifdef PS_ISA_avx512_bf16
    if (kind == TILE_AMX) ps_tiles_begin();
#endif
    (void)kind;
    return saved;
}

static inline void tile_end(tile_kind kind, unsigned saved)
{
#ifdef PS_ISA_avx512_bf16
    if (kind == TILE_AMX) ps_tiles_end();
#endif
#if defined(PS_VEC_AVX512) || defined(PS_VEC_AVX2)
    _mm_setcsr(saved);
#endif
    (void)kind, (void)saved;
}

/* ---- multiplication ---------------------------------------------------------------------------------------------- */

/* `words` floats from a[r][0], steps of `stride` floats over k: sum[r][j] += a[r][k] b[k][j], TILE_M rows by `width`
 * vectors. */
PS_CPU_INLINE void tile_sums(int width, vf sum[TILE_M][TILE_WIDTH], const float *a, int64_t lda, const float *b,
                             int64_t n, int64_t k_end, int64_t k_step)
{
    for (int64_t k = 0; k < k_end; k += k_step) {
        vf right[TILE_WIDTH];
        for (int j = 0; j < width; j++) right[j] = vf_load(b + k * n + j * VF_LANES);
        for (int r = 0; r < TILE_M; r++) {
            const vf left = vf_set1(a[r * lda + k]);
            for (int j = 0; j < width; j++) sum[r][j] = vf_fma(left, right[j], sum[r][j]);
        }
    }
}

/* Sums over ascending k. */
PS_CPU_INLINE void tile_block_f32(int width, float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                                  int64_t n, int64_t k, bool accumulate)
{
    vf sum[TILE_M][TILE_WIDTH];
    for (int r = 0; r < TILE_M; r++)
        for (int j = 0; j < width; j++) sum[r][j] = accumulate ? vf_load(c + r * ldc + j * VF_LANES) : vf_set1(0.0f);
    tile_sums(width, sum, a, lda, b, n, k, 1);
    for (int r = 0; r < TILE_M; r++)
        for (int j = 0; j < width; j++) vf_store(c + r * ldc + j * VF_LANES, sum[r][j]);
}

/* For each 32 k, even and odd ones are summed separately, and the sum of both is added to c. */
PS_CPU_INLINE void tile_block_fma(int width, float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                                  int64_t n, int64_t k, bool accumulate)
{
    for (int64_t at = 0; at < k; at += 32) {
        vf even[TILE_M][TILE_WIDTH], odd[TILE_M][TILE_WIDTH];
        for (int r = 0; r < TILE_M; r++)
            for (int j = 0; j < width; j++) even[r][j] = odd[r][j] = vf_set1(0.0f);
        tile_sums(width, even, a + at, lda, b + at * n, n, 32, 2);
        tile_sums(width, odd, a + at + 1, lda, b + (at + 1) * n, n, 31, 2);
        for (int r = 0; r < TILE_M; r++)
            for (int j = 0; j < width; j++) {
                float *const to = c + r * ldc + j * VF_LANES;
                vf_store(to, (accumulate || at > 0 ? vf_load(to) : vf_set1(0.0f)) + (even[r][j] + odd[r][j]));
            }
    }
}

/* lda in cells, also below. */
PS_CPU_INLINE void tile_block_dp(int width, float *c, int64_t ldc, const void *a, int64_t lda, const void *b, int64_t n,
                                 int64_t k, bool accumulate)
{
#ifdef PS_ISA_avx512_bf16
    vf sum[TILE_M][TILE_WIDTH];
    for (int r = 0; r < TILE_M; r++)
        for (int j = 0; j < width; j++) sum[r][j] = accumulate ? vf_load(c + r * ldc + j * VF_LANES) : vf_set1(0.0f);
    for (int64_t pair = 0; pair < k / 2; pair++) {
        __m512bh right[TILE_WIDTH];
        for (int j = 0; j < width; j++) memcpy(&right[j], (const float *)b + pair * n + j * VF_LANES, sizeof right[j]);
        for (int r = 0; r < TILE_M; r++) {
            int32_t both; /* integer, not float, to keep the bits */
            memcpy(&both, (const uint16_t *)a + r * lda + 2 * pair, sizeof both);
            for (int j = 0; j < width; j++)
                sum[r][j] = _mm512_dpbf16_ps(sum[r][j], (__m512bh)_mm512_set1_epi32(both), right[j]);
        }
    }
    for (int r = 0; r < TILE_M; r++)
        for (int j = 0; j < width; j++) vf_store(c + r * ldc + j * VF_LANES, sum[r][j]);
#else
    (void)width, (void)c, (void)ldc, (void)a, (void)lda, (void)b, (void)n, (void)k, (void)accumulate;
#endif
}

/* 32 by 32 of c. */
PS_CPU_INLINE void tile_block_amx(float *c, int64_t ldc, const uint16_t *a, int64_t lda, const uint32_t *b, int64_t n,
                                  int64_t k, bool accumulate)
{
#if defined(PS_ISA_avx512_bf16) || defined(PS_TILES_EMULATED)
    float *const below = c + 16 * ldc;
    if (accumulate) {
        PS_TILE_LOAD(0, c, ldc * 4);
        PS_TILE_LOAD(1, c + 16, ldc * 4);
        PS_TILE_LOAD(2, below, ldc * 4);
        PS_TILE_LOAD(3, below + 16, ldc * 4);
    } else {
        PS_TILE_ZERO(0);
        PS_TILE_ZERO(1);
        PS_TILE_ZERO(2);
        PS_TILE_ZERO(3);
    }
    for (int64_t at = 0; at < k; at += 32) {
        const uint32_t *const right = b + at / 2 * n;
        PS_TILE_LOAD(4, a + at, lda * 2);
        PS_TILE_LOAD(6, right, n * 4);
        PS_TILE_DP(0, 4, 6);
        PS_TILE_LOAD(7, right + 16, n * 4);
        PS_TILE_DP(1, 4, 7);
        PS_TILE_LOAD(5, a + 16 * lda + at, lda * 2);
        PS_TILE_DP(2, 5, 6);
        PS_TILE_DP(3, 5, 7);
    }
    PS_TILE_STORE(0, c, ldc * 4);
    PS_TILE_STORE(1, c + 16, ldc * 4);
    PS_TILE_STORE(2, below, ldc * 4);
    PS_TILE_STORE(3, below + 16, ldc * 4);
#else
    (void)c, (void)ldc, (void)a, (void)lda, (void)b, (void)n, (void)k, (void)accumulate;
#endif
}

PS_CPU_INLINE void tile_block(tile_kind kind, int width, float *c, int64_t ldc, const void *a, int64_t lda,
                              const void *b, int64_t n, int64_t k, bool accumulate)
{
    if (kind == TILE_DP)
        tile_block_dp(width, c, ldc, a, lda, b, n, k, accumulate);
    else if (kind == TILE_FMA)
        tile_block_fma(width, c, ldc, a, lda, b, n, k, accumulate);
    else
        tile_block_f32(width, c, ldc, a, lda, b, n, k, accumulate);
}

PS_CPU_INLINE void tile_gemm_of(tile_kind kind, float *c, int64_t ldc, const void *a, int64_t lda, const void *b,
                                int64_t m, int64_t n, int64_t k, bool accumulate)
{
    const int64_t cell = tile_cell_bytes(kind);
    for (int64_t j = 0; j < n;) {
        const float *const right = (const float *)b + j; /* four bytes hold a column: one number, or a pair */
        const bool wide = n - j >= TILE_WIDTH * VF_LANES;
        for (int64_t i = 0; i < m; i += TILE_M) {
            const char *const left = (const char *)a + i * lda * cell;
            float *const to = c + i * ldc + j;
            if (wide)
                tile_block(kind, TILE_WIDTH, to, ldc, left, lda, right, n, k, accumulate);
            else
                tile_block(kind, 1, to, ldc, left, lda, right, n, k, accumulate);
        }
        j += wide ? TILE_WIDTH * VF_LANES : VF_LANES;
    }
}

/* c[m][n] (+)= a b. ldc in floats, lda in cells. */
static inline void tile_gemm(tile_kind kind, float *c, int64_t ldc, const void *a, int64_t lda, const void *b,
                             int64_t m, int64_t n, int64_t k, bool accumulate)
{
    switch (kind) {
    case TILE_F32: tile_gemm_of(TILE_F32, c, ldc, a, lda, b, m, n, k, accumulate); break;
    case TILE_FMA: tile_gemm_of(TILE_FMA, c, ldc, a, lda, b, m, n, k, accumulate); break;
    case TILE_DP: tile_gemm_of(TILE_DP, c, ldc, a, lda, b, m, n, k, accumulate); break;
    case TILE_AMX:
        for (int64_t j = 0; j < n; j += 32)
            for (int64_t i = 0; i < m; i += 32)
                tile_block_amx(c + i * ldc + j, ldc, (const uint16_t *)a + i * lda, lda, (const uint32_t *)b + j, n, k,
                               accumulate);
        break;
    }
}

#endif
