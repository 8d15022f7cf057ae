/* Products by FMA on panels of f32: of f32 and f16 with one sum over ascending k an element, of bf16 in the order of tiles (cpu_amx.h).
 *
 * A panel of b has COLUMNS columns of a block of k, one k after the other, and stays in the first-level cache while the panels of a, of ROWS
 * rows each, go by in the second. For bf16 each 32 k are the 16 even ones and then the 16 odd ones, summed apart. */
#include "kernel/cpu/cpu_pack.h"
#include "kernel/cpu/cpu_product.h"
#include "kernel/cpu/cpu_product_finish.h"

/* Sums fill the registers, but for a vector each of b and one of a. */
#if defined(PS_VEC_AVX512)
#define ROWS 12
#define VECTORS 2
#elif defined(PS_VEC_AVX2)
#define ROWS 6
#define VECTORS 2
#else
#define ROWS 2
#define VECTORS 4
#endif
#define COLUMNS (VECTORS * VF_LANES)

/* Words of 32 bits in which k is packed: an f32, or two bf16. */
#define WORDS 16

const ps_product_block PS_CPU_NAME(product_panel_block) = {ROWS, COLUMNS};

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

/* sum += a b over n_k, for n_rows of them. by_rows: a is [ROWS][k], else [k][ROWS]. */
PS_CPU_INLINE void panel_add(vf sum[ROWS][VECTORS], int n_rows, const float *a, bool by_rows, const float *b,
                             int64_t n_k)
{
    const int64_t row = by_rows ? PS_PRODUCT_PANEL_ROW : 1, step = by_rows ? 1 : ROWS;
    for (int64_t k = 0; k < n_k; k++, a += step, b += COLUMNS) {
        vf y[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) y[v] = vf_load(b + v * VF_LANES);
#pragma GCC unroll 12
        for (int r = 0; r < n_rows; r++) {
            const vf x = panel_broadcast(a + r * row);
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) sum[r][v] = vf_fma(x, y[v], sum[r][v]);
        }
    }
}

PS_CPU_INLINE void block_ascending(int n_rows, const float *a, bool by_rows, const float *b, int64_t n_k, float *c,
                                   bool first)
{
    vf sum[ROWS][VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) sum[r][v] = first ? (vf){0} : vf_load(c + r * COLUMNS + v * VF_LANES);
    panel_add(sum, n_rows, a, by_rows, b, n_k);
#pragma GCC unroll 12
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) vf_store(c + r * COLUMNS + v * VF_LANES, sum[r][v]);
}

PS_CPU_INLINE void block_zero(vf sum[ROWS][VECTORS], int n_rows)
{
#pragma GCC unroll 12
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) sum[r][v] = (vf){0};
}

PS_CPU_INLINE void block_pairs(int n_rows, const float *a, bool by_rows, const float *b, int64_t n_k, float *c,
                               bool first)
{
    const int64_t half = by_rows ? WORDS : WORDS * ROWS;
    for (int64_t k = 0; k < n_k; k += 2 * WORDS, a += 2 * half, b += 2 * WORDS * COLUMNS) {
        float even[ROWS * COLUMNS];
        vf sum[ROWS][VECTORS];
        block_zero(sum, n_rows);
        panel_add(sum, n_rows, a, by_rows, b, WORDS);
#pragma GCC unroll 12
        for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) vf_store(even + r * COLUMNS + v * VF_LANES, sum[r][v]);
        block_zero(sum, n_rows);
        panel_add(sum, n_rows, a + half, by_rows, b + WORDS * COLUMNS, WORDS);
#pragma GCC unroll 12
        for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) {
                float *const to = c + r * COLUMNS + v * VF_LANES;
                const vf before = first && k == 0 ? (vf){0} : vf_load(to);
                vf_store(to, before + (vf_load(even + r * COLUMNS + v * VF_LANES) + sum[r][v]));
            }
    }
}

/* Subnormal numbers are zero for tiles, whatever the program has set. */
#define MXCSR_ZERO_SUBNORMALS 0x8040U

PS_CPU_INLINE void block_multiply_rows(ps_product_kernel kernel, int n_rows, const float *a, bool by_rows,
                                       const float *b, int64_t n_k, float *c, bool first)
{
    if (kernel == PS_PRODUCT_F32)
        block_ascending(n_rows, a, by_rows, b, n_k, c, first);
    else
        block_pairs(n_rows, a, by_rows, b, n_k, c, first);
}

static void block_multiply(ps_product_kernel kernel, const float *a, bool by_rows, const float *b, int64_t n_k,
                           float *c, bool first)
{
    const unsigned before = _mm_getcsr();
    if (kernel != PS_PRODUCT_F32) _mm_setcsr(before | MXCSR_ZERO_SUBNORMALS);
    if (by_rows)
        block_multiply_rows(kernel, ROWS, a, true, b, n_k, c, first);
    else
        block_multiply_rows(kernel, ROWS, a, false, b, n_k, c, first);
    if (kernel != PS_PRODUCT_F32) _mm_setcsr(before);
}

/* ---- packing: n_k of k from src on, what the matrix does not have is zero -------------------------------------------------*/

/* Where k of a block lies in a panel. */
PS_CPU_INLINE int64_t pairs_place(int64_t k)
{
    return k / 32 * 32 + k % 2 * WORDS + k % 32 / 2;
}

PS_CPU_INLINE void zero_floats(float *dst, int64_t n)
{
    memset(dst, 0, (size_t)n * sizeof *dst);
}

/* 16 words of 32 bits, each two bf16: the even ones to `even`, the odd ones to `odd`. */
PS_CPU_INLINE void words_split(const void *words, float *even, float *odd)
{
    for (int i = 0; i < WORDS; i += VF_LANES) {
        vu w;
        memcpy(&w, (const char *)words + 4 * i, sizeof w);
        vf_store(even + i, (vf)(w << 16));
        vf_store(odd + i, (vf)(w & 0xffff0000U));
    }
}

/* A row of a panel of a whose neighbours are neighbours in k: n_k there of n_padded. */
PS_CPU_INLINE void row_pack(ps_dtype t, const void *src, int64_t n_k, int64_t n_padded, float *dst)
{
    if (t == PS_DTYPE_BF16) {
        for (int64_t k = 0; k < n_padded; k += 2 * WORDS) {
            const uint16_t *from = (const uint16_t *)src + k;
            uint16_t rest[2 * WORDS] = {0};
            if (n_k - k < 2 * WORDS) memcpy(rest, from, (size_t)(n_k - k) * sizeof *rest), from = rest;
            words_split(from, dst + k, dst + k + WORDS);
        }
        return;
    }
    for (int64_t k = 0; k < n_k; k += VF_LANES) vf_put(PS_DTYPE_F32, dst, k, n_k - k, vf_get(t, src, k, n_k - k));
}

/* n floats, at most ROWS or COLUMNS of `width`, from a row of src. */
PS_CPU_INLINE void piece_pack(ps_dtype t, const void *src, int64_t n, int64_t width, float *dst)
{
    for (int64_t i = 0; i < width; i += VF_LANES) {
        const int64_t room = ps_min_i64(width - i, VF_LANES);
        const vf x = n > i ? vf_get(t, src, i, ps_min_i64(n - i, room)) : (vf){0};
        vf_put(PS_DTYPE_F32, dst, i, room, x);
    }
}

/* A panel of `width` rows or columns, [k][width], of a matrix whose neighbours are neighbours in it. */
PS_CPU_INLINE void panel_pack_across(ps_dtype t, const void *src, int64_t ld, int64_t n_k, int64_t n_padded, int64_t n,
                                     int64_t width, float *dst)
{
    for (int64_t k = 0; k < n_padded; k++) {
        float *const to = dst + (t == PS_DTYPE_BF16 ? pairs_place(k) : k) * width;
        if (k < n_k)
            piece_pack(t, ps_cpu_at_const(t, src, k * ld), n, width, to);
        else
            zero_floats(to, width);
    }
}

/* 16 columns of b by 16 words of k from src on, as rows of 16 words; n_words of them there. Returns where they lie, *stride bytes apart. */
PS_CPU_INLINE const char *words_find(ps_dtype t, const void *src, int64_t ld, int64_t n_k, int64_t n_columns,
                                     float *copy, int64_t *stride)
{
    const int64_t in_words = t == PS_DTYPE_BF16 ? 2 * WORDS : WORDS;
    if (t != PS_DTYPE_F16 && n_k >= in_words && n_columns >= WORDS) {
        *stride = ld * (int64_t)ps_dtype_bytes(t);
        return src;
    }
    zero_floats(copy, WORDS * WORDS);
    for (int64_t j = 0; j < ps_min_i64(n_columns, WORDS); j++) {
        const void *const from = ps_cpu_at_const(t, src, j * ld);
        if (t == PS_DTYPE_F16)
            row_pack(t, from, ps_min_i64(n_k, WORDS), WORDS, copy + j * WORDS);
        else
            memcpy(copy + j * WORDS, from, (size_t)ps_min_i64(n_k, in_words) * ps_dtype_bytes(t));
    }
    *stride = WORDS * (int64_t)sizeof *copy;
    return (const char *)copy;
}

/* A panel of b whose neighbours are neighbours in k. */
PS_CPU_INLINE void panel_pack_turned(ps_dtype t, const void *src, int64_t ld, int64_t n_k, int64_t n_padded,
                                     int64_t n_columns, float *dst)
{
    _Alignas(64) float copy[WORDS * WORDS], turned[WORDS * WORDS];
    const int64_t in_words = t == PS_DTYPE_BF16 ? 2 * WORDS : WORDS;
    for (int64_t k = 0; k < n_padded; k += in_words, dst += in_words * COLUMNS)
        for (int64_t j = 0; j < COLUMNS; j += WORDS) {
            int64_t stride;
            const char *const words =
                words_find(t, ps_cpu_at_const(t, src, j * ld + k), ld, n_k - k, n_columns - j, copy, &stride);
            pack_transpose(words, stride, (char *)turned, WORDS * 4);
            for (int64_t w = 0; w < ps_min_i64(WORDS, n_padded - k); w++) {
                float *const to = dst + w * COLUMNS + j;
                if (t == PS_DTYPE_BF16)
                    words_split(turned + w * WORDS, to, to + WORDS * COLUMNS);
                else
                    memcpy(to, turned + w * WORDS, WORDS * 4);
            }
        }
}

/* n_padded of k from k on, columns from j on, of which there are n_columns. */
PS_CPU_INLINE void panel_pack_b_as(ps_dtype t, const ps_product *x, int64_t k, int64_t n_padded, int64_t j,
                                   int64_t n_columns, float *dst)
{
    const int64_t n_k = ps_min_i64(n_padded, x->plan->k - k);
    const void *const src = ps_product_b(x, k, j);
    if (x->plan->b_by_k)
        panel_pack_turned(t, src, x->plan->ldb, n_k, n_padded, n_columns, dst);
    else
        panel_pack_across(t, src, x->plan->ldb, n_k, n_padded, n_columns, COLUMNS, dst);
}

static void panel_pack_b(const ps_product *x, int64_t k, int64_t n_padded, int64_t j, int64_t n_columns, float *dst)
{
#define CALL(t) panel_pack_b_as(t, x, k, n_padded, j, n_columns, dst)
    PS_CPU_BY_DTYPE(x->p->ab_dtype, CALL);
#undef CALL
}

static int64_t panels_pack_count(const ps_product *x, const ps_product_stage *stage)
{
    const int64_t pieces = ps_ceil_div(stage->n_k, PS_PRODUCT_PANEL_K);
    return x->plan->has_few_rows ? pieces : pieces * ps_ceil_div(stage->n_cols, COLUMNS);
}

static void few_rows_pack(const ps_product *x, const ps_product_stage *stage, int64_t block);

static void panels_pack(const ps_product *x, const ps_product_stage *stage, int64_t item)
{
    if (x->plan->has_few_rows) {
        few_rows_pack(x, stage, item);
        return;
    }
    const int64_t pieces = ps_ceil_div(stage->n_k, PS_PRODUCT_PANEL_K), k = item % pieces * PS_PRODUCT_PANEL_K;
    const int64_t panel = item / pieces, j = panel * COLUMNS;
    panel_pack_b(x, stage->k0 + k, ps_min_i64(PS_PRODUCT_PANEL_K, stage->n_k - k), stage->j0 + j, stage->n_cols - j,
                 (float *)(void *)stage->b + (panel * stage->n_k + k) * COLUMNS);
}

/* Rows [i, i_end) of a into panels. */
PS_CPU_INLINE void rows_pack_as(ps_dtype t, const ps_product *x, const ps_product_item *item, int64_t k,
                                int64_t n_padded, float *dst)
{
    const ps_product_plan *const plan = x->plan;
    const int64_t n_k = ps_min_i64(n_padded, plan->k - k);
    for (int64_t i = item->i0; i < item->i_end; i += ROWS, dst += ROWS * PS_PRODUCT_PANEL_ROW) {
        const void *const src = ps_product_a(x, i, k);
        const int64_t n_rows = ps_min_i64(ROWS, item->i_end - i);
        if (!plan->a_by_k) {
            panel_pack_across(t, src, plan->lda, n_k, n_padded, n_rows, ROWS, dst);
            continue;
        }
        for (int64_t r = 0; r < ROWS; r++)
            if (r < n_rows)
                row_pack(t, ps_cpu_at_const(t, src, r * plan->lda), n_k, n_padded, dst + r * PS_PRODUCT_PANEL_ROW);
            else
                zero_floats(dst + r * PS_PRODUCT_PANEL_ROW, n_padded);
    }
}

static void rows_pack(const ps_product *x, const ps_product_item *item, int64_t k, int64_t n_k, float *dst)
{
#define CALL(t) rows_pack_as(t, x, item, k, n_k, dst)
    PS_CPU_BY_DTYPE(x->p->ab_dtype, CALL);
#undef CALL
}

/* ---- an item --------------------------------------------------------------------------------------------------------*/

static void block_finish(const ps_product *x, int64_t i, int64_t i_end, int64_t col, const float *c)
{
    const int64_t n_cols = ps_min_i64(COLUMNS, x->p->n - col);
    for (int64_t r = 0; r < ps_min_i64(ROWS, i_end - i); r++) product_finish(x->p, i + r, col, n_cols, c + r * COLUMNS);
}

static void panels_multiply(const ps_product *x, const ps_product_stage *stage, const ps_product_item *item,
                            char *scratch)
{
    const ps_product_plan *const plan = x->plan;
    const int64_t k_end = stage->k0 + stage->n_k, n_panels = ps_ceil_div(ps_min_i64(plan->m_block, plan->m), ROWS);
    float *const a = (float *)(void *)scratch, *const block = a + n_panels * ROWS * PS_PRODUCT_PANEL_ROW;
    char *const sums = (char *)(block + ROWS * COLUMNS);
    const bool is_kept = plan->sums_bytes + plan->call_bytes > 0;
    for (int64_t k = stage->k0; k < k_end; k += plan->k_block) {
        const int64_t n_k = ps_min_i64(plan->k_block, k_end - k);
        const bool first = stage->first && k == stage->k0, last = stage->last && k + n_k == k_end;
        rows_pack(x, item, k, n_k, a);
        for (int64_t j = item->panel0; j < item->panel_end; j++) {
            const float *const b = (const float *)(void *)stage->b + (j * stage->n_k + k - stage->k0) * COLUMNS;
            for (int64_t i = item->i0; i < item->i_end; i += ROWS) {
                float *const c = is_kept ? ps_product_sums(x, stage, item, sums, i, j) : block;
                block_multiply(plan->kernel, a + (i - item->i0) * PS_PRODUCT_PANEL_ROW, plan->a_by_k, b, n_k, c, first);
                if (last) block_finish(x, i, item->i_end, stage->j0 + j * COLUMNS, c);
            }
        }
    }
}

/* ---- few rows: a packed for all, b by the way ---------------------------------------------------------------------------*/

/* A block of k of all rows, [row][k]. */
static float *few_rows_block(const ps_product *x, const ps_product_stage *stage, int64_t block)
{
    return (float *)(void *)stage->b + block * x->plan->m * PS_PRODUCT_PANEL_ROW;
}

static void few_rows_pack(const ps_product *x, const ps_product_stage *stage, int64_t block)
{
    const int64_t k = block * PS_PRODUCT_PANEL_K, n_padded = ps_min_i64(PS_PRODUCT_PANEL_K, stage->n_k - k);
    const int64_t n_k = ps_min_i64(n_padded, x->plan->k - k);
    float *const dst = few_rows_block(x, stage, block);
    for (int64_t i = 0; i < x->plan->m; i++) {
#define CALL(t) row_pack(t, ps_product_a(x, i, k), n_k, n_padded, dst + i * PS_PRODUCT_PANEL_ROW)
        PS_CPU_BY_DTYPE(x->p->ab_dtype, CALL);
#undef CALL
    }
}

/* c has a row for each of a. */
static void few_rows_multiply(const ps_product *x, const float *a, const float *b, int64_t n_k, float *c, bool first)
{
    const ps_product_kernel kernel = x->plan->kernel;
    const unsigned before = _mm_getcsr();
    if (kernel != PS_PRODUCT_F32) _mm_setcsr(before | MXCSR_ZERO_SUBNORMALS);
    int64_t i = 0;
#define ROWS_AT_ONCE(n)                                                                                                \
    for (; x->plan->m - i >= (n); i += (n))                                                                            \
        block_multiply_rows(kernel, n, a + i * PS_PRODUCT_PANEL_ROW, true, b, n_k, c + i * COLUMNS, first);
#if defined(PS_VEC_AVX512) || defined(PS_VEC_AVX2)
    ROWS_AT_ONCE(4)
#endif
    ROWS_AT_ONCE(2)
    ROWS_AT_ONCE(1)
#undef ROWS_AT_ONCE
    if (kernel != PS_PRODUCT_F32) _mm_setcsr(before);
}

static void few_rows_item(const ps_product *x, const ps_product_stage *stage, const ps_product_item *item,
                          char *scratch)
{
    const ps_product_plan *const plan = x->plan;
    float *const b = (float *)(void *)scratch, *const c = b + PS_PRODUCT_PANEL_K * COLUMNS;
    for (int64_t panel = item->panel0; panel < item->panel_end; panel++) {
        const int64_t j = panel * COLUMNS, n_columns = ps_min_i64(COLUMNS, plan->n - j);
        for (int64_t k = 0; k < stage->n_k; k += PS_PRODUCT_PANEL_K) {
            const int64_t n_k = ps_min_i64(PS_PRODUCT_PANEL_K, stage->n_k - k);
            panel_pack_b(x, k, n_k, j, n_columns, b);
            few_rows_multiply(x, few_rows_block(x, stage, k / PS_PRODUCT_PANEL_K), b, n_k, c, k == 0);
        }
        for (int64_t i = 0; i < plan->m; i++) product_finish(x->p, i, j, n_columns, c + i * COLUMNS);
    }
}

static void panels_item(const ps_product *x, const ps_product_stage *stage, const ps_product_item *item, char *scratch)
{
    if (x->plan->has_few_rows)
        few_rows_item(x, stage, item, scratch);
    else
        panels_multiply(x, stage, item, scratch);
}

const ps_product_ops PS_CPU_NAME(product_panels) = {panels_pack_count, panels_pack, panels_item, NULL};
