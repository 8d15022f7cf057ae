/* Matrix multiplication by FMA on panels of f32: f32 and f16 with one sum over ascending k per element, bf16 in the
 * order of tiles (cpu_amx.h).
 *
 * Over a block of k, the rows of a group are packed into panels of PANEL_ROWS, which stay in the second-level cache; a
 * panel of PANEL_COLUMNS columns of b is packed into the first, and multiplied with all of them, before the next one.
 * For bf16 each 32 k are the 16 even ones and then the 16 odd ones, summed separately. */
#include "kernel/cpu/cpu_gemm.h"
#include "kernel/cpu/cpu_gemm_epilogue.h"
#include "kernel/cpu/cpu_panel_pack.h"

const ps_gemm_block PS_CPU_NAME(gemm_panel_block) = {PANEL_ROWS, PANEL_COLUMNS};

/* ---- prefetch ---------------------------------------------------------------------------------------------------- */

/* The next panel of b is prefetched while the present one is in use: n_lines at regular intervals of k, as more at once
 * would delay present loads. It has n_pieces contiguous pieces of b, columns or rows. */
typedef struct panel_ask {
    const char *at;
    int64_t stride, n_pieces, piece_lines; /* stride: bytes from piece to piece */
    int64_t n_lines, piece, line;          /* piece, line: the next to prefetch */
} panel_ask;

/* Columns from j on, of which there are n_cols, if any; while n_blocks blocks are computed. */
static panel_ask ask_begin(const ps_gemm *x, int64_t k, int64_t n_k, int64_t j, int64_t n_cols, int64_t n_blocks)
{
    if (n_cols <= 0) return (panel_ask){.n_pieces = 0};
    const int64_t bytes = (int64_t)ps_dtype_bytes(x->p->ab_dtype),
                  step = x->plan->kernel == PS_GEMM_F32 ? PANEL_WORDS : 2 * PANEL_WORDS;
    const int64_t n_steps = n_blocks * ps_ceil_div(n_k, step);
    n_k = ps_min_i64(n_k, x->plan->k - k), n_cols = ps_min_i64(PANEL_COLUMNS, n_cols);
    panel_ask ask = {.at = ps_gemm_b(x, k, j), .stride = x->plan->ldb * bytes};
    ask.n_pieces = x->plan->b_by_k ? n_cols : n_k;
    ask.piece_lines = ps_ceil_div((x->plan->b_by_k ? n_k : n_cols) * bytes, 64);
    ask.n_lines = ps_ceil_div(ask.n_pieces * ask.piece_lines, n_steps);
    return ask;
}

PS_CPU_INLINE void ask_lines(panel_ask *ask)
{
    for (int64_t i = 0; i < ask->n_lines && ask->piece < ask->n_pieces; i++) {
        __builtin_prefetch(ask->at + ask->piece * ask->stride + 64 * ask->line, 0, 2);
        if (++ask->line == ask->piece_lines) ask->line = 0, ask->piece++;
    }
}

/* ---- blocks -------------------------------------------------------------------------------------------------------*/

PS_CPU_INLINE vf panel_broadcast(const float *p)
{
#if defined(PS_VEC_AVX512)
    return _mm512_set1_ps(*p);
#elif defined(PS_VEC_AVX2)
    return _mm256_set1_ps(*p);
#else
    return _mm_set1_ps(*p);
#endif
}

/* sum += a b over n_k, for n_rows of the rows of a panel. */
PS_CPU_INLINE void panel_add(vf sum[PANEL_ROWS][PANEL_VECTORS], int n_rows, const float *a, const float *b, int64_t n_k)
{
    const float *again = a;
    __asm__("" : "+r"(again)); /* hides from the compiler that it is a */
    for (int64_t k = 0; k < n_k; k++, a += PANEL_ROWS, again += PANEL_ROWS, b += PANEL_COLUMNS) {
        vf y[PANEL_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < PANEL_VECTORS; v++) y[v] = vf_load(b + v * VF_LANES);
#pragma GCC unroll 14
        for (int r = 0; r < n_rows; r++) {
            const vf x = panel_broadcast(a + r);
#pragma GCC unroll 4
            for (int v = 0; v < PANEL_VECTORS; v++)
                sum[r][v] = vf_fma(v > 0 && PANEL_READS_AGAIN(r) ? panel_broadcast(again + r) : x, y[v], sum[r][v]);
        }
    }
}

PS_CPU_INLINE void block_load(vf sum[PANEL_ROWS][PANEL_VECTORS], int n_rows, const float *c)
{
#pragma GCC unroll 14
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < PANEL_VECTORS; v++) sum[r][v] = c ? vf_load(c + r * PANEL_COLUMNS + v * VF_LANES) : (vf){0};
}

PS_CPU_INLINE void block_store(vf sum[PANEL_ROWS][PANEL_VECTORS], int n_rows, float *c)
{
#pragma GCC unroll 14
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < PANEL_VECTORS; v++) vf_store(c + r * PANEL_COLUMNS + v * VF_LANES, sum[r][v]);
}

PS_CPU_INLINE void block_ascending(int n_rows, const float *a, const float *b, int64_t n_k, float *c, bool first,
                                   panel_ask *ask)
{
    vf sum[PANEL_ROWS][PANEL_VECTORS];
    block_load(sum, n_rows, first ? NULL : c);
    for (; n_k > PANEL_WORDS; n_k -= PANEL_WORDS, a += PANEL_WORDS * PANEL_ROWS, b += PANEL_WORDS * PANEL_COLUMNS) {
        ask_lines(ask);
        panel_add(sum, n_rows, a, b, PANEL_WORDS);
    }
    ask_lines(ask);
    panel_add(sum, n_rows, a, b, n_k);
    block_store(sum, n_rows, c);
}

PS_CPU_INLINE void block_pairs(int n_rows, const float *a, const float *b, int64_t n_k, float *c, bool first,
                               panel_ask *ask)
{
    for (int64_t k = 0; k < n_k;
         k += 2 * PANEL_WORDS, a += 2 * PANEL_WORDS * PANEL_ROWS, b += 2 * PANEL_WORDS * PANEL_COLUMNS) {
        float even[PANEL_ROWS * PANEL_COLUMNS];
        vf sum[PANEL_ROWS][PANEL_VECTORS];
        ask_lines(ask);
        block_load(sum, n_rows, NULL);
        panel_add(sum, n_rows, a, b, PANEL_WORDS);
        block_store(sum, n_rows, even);
        block_load(sum, n_rows, NULL);
        panel_add(sum, n_rows, a + PANEL_WORDS * PANEL_ROWS, b + PANEL_WORDS * PANEL_COLUMNS, PANEL_WORDS);
#pragma GCC unroll 14
        for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < PANEL_VECTORS; v++) {
                float *const to = c + r * PANEL_COLUMNS + v * VF_LANES;
                const vf before = first && k == 0 ? (vf){0} : vf_load(to);
                vf_store(to, before + (vf_load(even + r * PANEL_COLUMNS + v * VF_LANES) + sum[r][v]));
            }
    }
}

PS_CPU_INLINE void block_multiply_rows(ps_gemm_kernel kernel, int n_rows, const float *a, const float *b, int64_t n_k,
                                       float *c, bool first, panel_ask *ask)
{
    if (kernel == PS_GEMM_F32)
        block_ascending(n_rows, a, b, n_k, c, first, ask);
    else
        block_pairs(n_rows, a, b, n_k, c, first, ask);
}

/* Tiles treat subnormal numbers as zero, independent of MXCSR. */
#define MXCSR_ZERO_SUBNORMALS 0x8040U

/* A block of n_rows of the PANEL_ROWS rows of a; c has PANEL_COLUMNS a row. */
static void block_multiply(ps_gemm_kernel kernel, int64_t n_rows, const float *a, const float *b, int64_t n_k, float *c,
                           bool first, panel_ask *ask)
{
    const unsigned before = _mm_getcsr();
    if (kernel != PS_GEMM_F32) _mm_setcsr(before | MXCSR_ZERO_SUBNORMALS);
#define ROWS_AT_ONCE(n)                                                                                                \
    for (; n_rows >= (n); n_rows -= (n), a += (n), c += (n)*PANEL_COLUMNS)                                             \
    block_multiply_rows(kernel, n, a, b, n_k, c, first, ask)
    ROWS_AT_ONCE(PANEL_ROWS);
#if PANEL_ROWS > 4
    ROWS_AT_ONCE(4);
#endif
    ROWS_AT_ONCE(2);
    ROWS_AT_ONCE(1);
#undef ROWS_AT_ONCE
    if (kernel != PS_GEMM_F32) _mm_setcsr(before);
}

/* ---- packing of operands ----------------------------------------------------------------------------------------- */

/* n_columns of b from j on, n_padded of their k from k on, into panels. */
static void columns_pack(const ps_gemm *x, int64_t k, int64_t n_padded, int64_t j, int64_t n_columns, float *dst)
{
    const ps_gemm_plan *const plan = x->plan;
    const int64_t n_k = ps_min_i64(n_padded, plan->k - k), panel = n_padded * PANEL_COLUMNS, j_end = j + n_columns;
#define CALL(t)                                                                                                        \
    if (!plan->b_by_k)                                                                                                 \
        panels_pack_across(t, ps_gemm_b(x, k, j), plan->ldb, n_k, n_padded, n_columns, PANEL_COLUMNS, panel, dst);     \
    else                                                                                                               \
        for (; j < j_end; j += PANEL_COLUMNS, dst += panel)                                                            \
        panel_pack_turned(t, ps_gemm_b(x, k, j), plan->ldb, n_k, n_padded, j_end - j, dst)
    PS_CPU_BY_DTYPE(x->p->ab_dtype, CALL);
#undef CALL
}

/* Rows [i, i_end) of a, n_padded of their k from k on, into panels of PANEL_ROWS. */
static void rows_pack(const ps_gemm *x, int64_t i, int64_t i_end, int64_t k, int64_t n_padded, float *dst)
{
    const ps_gemm_plan *const plan = x->plan;
    const int64_t n_k = ps_min_i64(n_padded, plan->k - k), panel = ps_gemm_rows_panel(PANEL_ROWS, n_padded);
#define CALL(t)                                                                                                        \
    if (!plan->a_by_k)                                                                                                 \
        panels_pack_across(t, ps_gemm_a(x, i, k), plan->lda, n_k, n_padded, i_end - i, PANEL_ROWS, panel, dst);        \
    else                                                                                                               \
        for (; i < i_end; i += PANEL_ROWS, dst += panel)                                                               \
        rows_pack_turned(t, ps_gemm_a(x, i, k), plan->lda, n_k, n_padded, i_end - i, dst)
    PS_CPU_BY_DTYPE(x->p->ab_dtype, CALL);
#undef CALL
}

/* ---- groups of columns ------------------------------------------------------------------------------------------- */

static void rows_finish(const ps_gemm *x, int64_t i, int64_t n_rows, int64_t col, const float *c)
{
    const int64_t n_cols = ps_min_i64(PANEL_COLUMNS, x->p->n - col);
    for (int64_t r = 0; r < n_rows; r++)
        gemm_epilogue(x->p, i + r, col, n_cols, c + r * PANEL_COLUMNS, x->plan->streams);
}

/* n_k of k from k on: all rows of the stage with its columns. */
static void group_multiply(const ps_gemm *x, const ps_gemm_stage *stage, int64_t k, int64_t n_k, char *scratch)
{
    const ps_gemm_plan *const plan = x->plan;
    const int64_t i_end = stage->i0 + stage->n_rows, panel = ps_gemm_rows_panel(PANEL_ROWS, n_k);
    const bool is_kept = plan->k_block < plan->k_padded;
    float *const b = (float *)(void *)scratch, *const rows = b + plan->b_bytes / 4, *c = rows + plan->a_bytes / 4;
    rows_pack(x, stage->i0, i_end, k, n_k, rows);
    for (int64_t j = 0; j < stage->n_cols; j += PANEL_COLUMNS) {
        const float *a = rows;
        columns_pack(x, k, n_k, stage->j0 + j, ps_min_i64(PANEL_COLUMNS, stage->n_cols - j), b);
        panel_ask ask = ask_begin(x, k, n_k, stage->j0 + j + PANEL_COLUMNS, stage->n_cols - j - PANEL_COLUMNS,
                                  ps_ceil_div(stage->n_rows, PANEL_ROWS));
        for (int64_t i = stage->i0; i < i_end; i += PANEL_ROWS, a += panel) {
            const int64_t n_rows = ps_min_i64(PANEL_ROWS, i_end - i);
            block_multiply(plan->kernel, n_rows, a, b, n_k, c, k == 0, &ask);
            if (k + n_k == stage->n_k) rows_finish(x, i, n_rows, stage->j0 + j, c);
            if (is_kept) c += PANEL_ROWS * PANEL_COLUMNS;
        }
    }
}

static void panels_groups(const ps_gemm *x, char *scratch)
{
    ps_gemm_stage stage;
    while (ps_gemm_take(x, NULL, &stage))
        for (int64_t k = 0; k < stage.n_k; k += x->plan->k_block)
            group_multiply(x, &stage, k, ps_min_i64(x->plan->k_block, stage.n_k - k), scratch);
    if (x->plan->streams) _mm_sfence();
}

/* ---- few rows: a is packed once, b on the fly -------------------------------------------------------------------- */

/* Panels of all rows over a block of k. */
static float *few_rows_block(const ps_gemm *x, const ps_gemm_stage *stage, int64_t block)
{
    return (float *)(void *)stage->b +
           block * ps_ceil_div(x->plan->m, PANEL_ROWS) * ps_gemm_rows_panel(PANEL_ROWS, x->plan->k_block);
}

static int64_t few_rows_pack_count(const ps_gemm *x, const ps_gemm_stage *stage)
{
    return ps_ceil_div(stage->n_k, x->plan->k_block);
}

static void few_rows_pack(const ps_gemm *x, const ps_gemm_stage *stage, int64_t block)
{
    const int64_t k = block * x->plan->k_block, n_k = ps_min_i64(x->plan->k_block, stage->n_k - k);
    rows_pack(x, 0, x->plan->m, k, n_k, few_rows_block(x, stage, block));
}

static void few_rows_multiply(const ps_gemm *x, const ps_gemm_stage *stage, const ps_gemm_item *item, char *scratch)
{
    const ps_gemm_plan *const plan = x->plan;
    panel_ask nothing = {.n_pieces = 0};
    const int64_t at_once = plan->few_rows_panels;
    float *const b = (float *)(void *)scratch, *const c = b + plan->k_block * at_once * PANEL_COLUMNS;
    for (int64_t panel = item->panel0; panel < item->panel_end; panel += at_once) {
        const int64_t j = panel * PANEL_COLUMNS,
                      j_end = ps_min_i64(ps_min_i64(panel + at_once, item->panel_end) * PANEL_COLUMNS, plan->n);
        for (int64_t k = 0; k < stage->n_k; k += plan->k_block) {
            const int64_t n_k = ps_min_i64(plan->k_block, stage->n_k - k);
            columns_pack(x, k, n_k, j, j_end - j, b);
            for (int64_t q = 0; j + q < j_end; q += PANEL_COLUMNS) {
                const float *a = few_rows_block(x, stage, k / plan->k_block);
                for (int64_t i = 0; i < plan->m; i += PANEL_ROWS, a += ps_gemm_rows_panel(PANEL_ROWS, n_k))
                    block_multiply(plan->kernel, ps_min_i64(PANEL_ROWS, plan->m - i), a, b + q * n_k, n_k,
                                   c + q * plan->m + i * PANEL_COLUMNS, k == 0, &nothing);
            }
        }
        for (int64_t q = 0; j + q < j_end; q += PANEL_COLUMNS) rows_finish(x, 0, plan->m, j + q, c + q * plan->m);
    }
}

const ps_gemm_ops PS_CPU_NAME(gemm_panels) = {few_rows_pack_count, few_rows_pack, few_rows_multiply, panels_groups};
