/* bf16 matrix multiplication by tiles of AMX, and by vdpbf16ps on the same panels: blocks of 32 x 32 sums.
 *
 * Per step of 32 k: two tiles of a (rows 0-15 and 16-31), two of b, four tile multiplications. Packed b bypasses the L1
 * cache, which holds the panel of a. Other work - finishing the previous block, packing the next panels of a and the
 * next group of b - is interleaved with the steps: in one piece it would fill the reorder window of the CPU and leave
 * the tile unit idle (17 % of the time). */
#include "kernel/cpu/cpu_vec.h"

#if defined(PS_ISA_avx512_bf16) || defined(PS_TILES_EMULATED)

#include "kernel/cpu/cpu_gemm.h"
#include "kernel/cpu/cpu_gemm_epilogue.h"
#include "kernel/cpu/cpu_pack.h"

#define BLOCK 32
#define BLOCK_BYTES (BLOCK * BLOCK * 4)
#define ROW_BYTES (BLOCK * 4)

/* Steps of packing of b in an item. */
#define PACK_STEPS 24

/* ---- results ------------------------------------------------------------------------------------------------------*/

/* A finished block that is being stored to c. Units: 16 quarters of tiles to transpose where the sums are those of c^T,
 * then one row each. */
typedef struct tiles_result {
    const ps_matmul *p;
    const float *sums;
    float *turned;
    int64_t row, col, n_rows, n_cols; /* in c */
    bool is_whole, streams;           /* all columns of a block, of bf16 or f32; non-temporal stores */
    int64_t unit;                     /* turns: -16 .. -1 */
} tiles_result;

static tiles_result result_begin(const ps_gemm *x, const float *sums, float *turned, int64_t i, int64_t j)
{
    const bool swapped = x->plan->swapped;
    const int64_t row = swapped ? j : i, col = swapped ? i : j;
    return (tiles_result){.p = x->p,
                          .sums = sums,
                          .turned = turned,
                          .row = row,
                          .col = col,
                          .n_rows = ps_min_i64(BLOCK, x->p->m - row),
                          .n_cols = ps_min_i64(BLOCK, x->p->n - col),
                          .is_whole = col + BLOCK <= x->p->n && x->p->c_dtype != PS_DTYPE_F16,
                          .streams = x->plan->streams,
                          .unit = swapped ? -16 : 0};
}

#ifdef PS_ISA_avx512_bf16
/* A cache line. */
PS_CPU_INLINE void line_put(void *line, bool streams, __m512i v)
{
    if (streams && (uintptr_t)line % 64 == 0)
        _mm512_stream_si512(line, v);
    else
        _mm512_storeu_si512(line, v);
}

/* Store a whole row of bf16 or f32. False where gemm_epilogue must be used. */
PS_CPU_INLINE bool row_put(const ps_matmul *p, bool streams, int64_t row, int64_t col, const float *sums)
{
    void *const c = ps_cpu_at(p->c_dtype, p->c, row * p->ldc + col);
    __m512 x = _mm512_load_ps(sums), y = _mm512_load_ps(sums + 16);
    if (p->bias) {
        const uint16_t *const bias = (const uint16_t *)p->bias + col;
        x += vf_load_bf16(bias), y += vf_load_bf16(bias + 16);
    }
    if (p->c_dtype == PS_DTYPE_F32) {
        float *const to = c;
        if (p->accumulate) x += _mm512_loadu_ps(to), y += _mm512_loadu_ps(to + 16);
        line_put(to, streams, _mm512_castps_si512(x)), line_put(to + 16, streams, _mm512_castps_si512(y));
        return true;
    }
    if (p->accumulate) x += vf_load_bf16(c), y += vf_load_bf16((uint16_t *)c + 16);
    if (_mm512_fpclass_ps_mask(x, VF_SUBNORMAL) | _mm512_fpclass_ps_mask(y, VF_SUBNORMAL)) return false;
    line_put(c, streams, (__m512i)_mm512_cvtne2ps_pbh(y, x));
    return true;
}
#endif

PS_CPU_INLINE void result_unit(tiles_result *r)
{
    const int64_t unit = r->unit++;
    if (unit >= 0) {
        const float *const sums = r->sums + unit * BLOCK;
#ifdef PS_ISA_avx512_bf16
        if (r->is_whole && row_put(r->p, r->streams, r->row + unit, r->col, sums)) return;
#endif
        gemm_epilogue(r->p, r->row + unit, r->col, r->n_cols, sums, false);
        return;
    }
    const int64_t tile = (unit + 16) / 4, down = tile / 2 * 16, right = tile % 2 * 16;
    pack_transpose_quarter((const char *)(r->sums + down * BLOCK + right), ROW_BYTES,
                           (char *)(r->turned + right * BLOCK + down), ROW_BYTES, (int)(unit & 3));
    if (unit == -1) r->sums = r->turned;
}

static void result_finish(tiles_result *r)
{
    while (r->unit < r->n_rows) result_unit(r);
}

/* ---- a block ------------------------------------------------------------------------------------------------------*/

/* Two panels of a for n_steps: tiles of rows 0-15 and 16-31 are at distance `half`, steps at `step`, rows of a tile at
 * `row`, in bytes. */
typedef struct tiles_rows {
    const char *at;
    int64_t row, half, step, panel;
} tiles_rows;

/* Prefetch of the next 32 rows, where they are read in place: the lines of all rows at one k, then the next k, as
 * memory serves several streams at once. */
typedef struct tiles_ask {
    const char *at;
    int64_t stride, row, n_left;
} tiles_ask;

PS_CPU_INLINE void ask_unit(tiles_ask *x)
{
    __builtin_prefetch(x->at + x->row * x->stride, 0, 2);
    x->n_left--;
    if (++x->row == BLOCK) x->row = 0, x->at += 64;
}

/* Work interleaved with the steps: storing a block, packing the next panels of a and the next group of b, prefetching
 * rows. */
typedef struct tiles_meanwhile {
    tiles_result result;
    pack_rows rows;
    pack_columns columns;
    tiles_ask ask;
    int64_t rows_a_step, columns_a_step, asks_a_step;
} tiles_meanwhile;

PS_CPU_INLINE void meanwhile_step(tiles_meanwhile *m, int64_t results_a_step)
{
    for (int64_t i = 0; i < results_a_step && m->result.unit < m->result.n_rows; i++) result_unit(&m->result);
    for (int64_t i = 0; i < m->rows_a_step && m->rows.n_left > 0; i++) pack_rows_unit(&m->rows);
    for (int64_t i = 0; i < m->columns_a_step && m->columns.n_left > 0; i++) pack_columns_unit(&m->columns);
    for (int64_t i = 0; i < m->asks_a_step && m->ask.n_left > 0; i++) ask_unit(&m->ask);
}

PS_CPU_INLINE void block_by_tiles(const tiles_rows *rows, const char *b, int64_t n_steps, float *c, bool first,
                                  tiles_meanwhile *meanwhile)
{
    const char *a = rows->at;
    const int64_t row = rows->row, half = rows->half, step = rows->step;
    const int64_t results_a_step = ps_ceil_div(meanwhile->result.n_rows - meanwhile->result.unit, n_steps);
    if (first) {
        PS_TILE_ZERO(0);
        PS_TILE_ZERO(1);
        PS_TILE_ZERO(2);
        PS_TILE_ZERO(3);
    } else {
        PS_TILE_LOAD(0, c, ROW_BYTES);
        PS_TILE_LOAD(1, c + 16, ROW_BYTES);
        PS_TILE_LOAD(2, c + 16 * BLOCK, ROW_BYTES);
        PS_TILE_LOAD(3, c + 16 * BLOCK + 16, ROW_BYTES);
    }
    for (int64_t s = 0; s < n_steps; s++, a += step, b += PACK_STEP_BYTES) {
        PS_TILE_STREAM(6, b, PS_TILE_ROW_BYTES);
        PS_TILE_LOAD(4, a, row);
        PS_TILE_DP(0, 4, 6);
        PS_TILE_STREAM(7, b + PS_TILE_BYTES, PS_TILE_ROW_BYTES);
        PS_TILE_DP(1, 4, 7);
        PS_TILE_LOAD(5, a + half, row);
        PS_TILE_DP(2, 5, 6);
        PS_TILE_DP(3, 5, 7);
        meanwhile_step(meanwhile, results_a_step);
    }
    result_finish(&meanwhile->result);
    PS_TILE_STORE(0, c, ROW_BYTES);
    PS_TILE_STORE(1, c + 16, ROW_BYTES);
    PS_TILE_STORE(2, c + 16 * BLOCK, ROW_BYTES);
    PS_TILE_STORE(3, c + 16 * BLOCK + 16, ROW_BYTES);
}

#ifdef PS_ISA_avx512_bf16
/* 8 rows x 32 columns at a time: 16 registers of sums. */
static void block_by_dpbf16(const tiles_rows *rows, const char *b, int64_t n_steps, float *c, bool first)
{
    for (int64_t g = 0; g < 4; g++, c += 8 * BLOCK) {
        const char *a = rows->at + g / 2 * rows->half + g % 2 * 8 * rows->row, *panel = b;
        __m512 x[8], y[8];
        for (int i = 0; i < 8; i++) {
            x[i] = first ? _mm512_setzero_ps() : _mm512_load_ps(c + i * BLOCK);
            y[i] = first ? _mm512_setzero_ps() : _mm512_load_ps(c + i * BLOCK + 16);
        }
        for (int64_t s = 0; s < n_steps; s++, a += rows->step, panel += PACK_STEP_BYTES)
            for (int64_t pair = 0; pair < 16; pair++) {
                const char *const at = panel + PS_TILE_ROW_BYTES * pair;
                const __m512bh b0 = (__m512bh)_mm512_load_si512(at);
                const __m512bh b1 = (__m512bh)_mm512_load_si512(at + PS_TILE_BYTES);
#pragma GCC unroll 8
                for (int i = 0; i < 8; i++) {
                    int word;
                    memcpy(&word, a + i * rows->row + 4 * pair, sizeof word);
                    const __m512bh r = (__m512bh)_mm512_set1_epi32(word);
                    x[i] = _mm512_dpbf16_ps(x[i], r, b0), y[i] = _mm512_dpbf16_ps(y[i], r, b1);
                }
            }
        for (int i = 0; i < 8; i++) _mm512_store_ps(c + i * BLOCK, x[i]), _mm512_store_ps(c + i * BLOCK + 16, y[i]);
    }
}
#endif

/* ---- an item ----------------------------------------------------------------------------------------------------- */

/* A thread's state in an item: the panels of a that are read and those that are packed, the result that is being
 * stored. */
typedef struct tiles_worker {
    const ps_gemm *x;
    const ps_gemm_stage *stage;
    const ps_gemm_item *item;
    char *panels[2], *turn;
    float *blocks[2], *turned;
    char *sums;
    int flip, panels_now;
    tiles_meanwhile meanwhile;
} tiles_worker;

static bool rows_lie_ready(const tiles_worker *w, int64_t i, int64_t k, int64_t n_k)
{
    const ps_gemm_plan *const plan = w->x->plan;
    return plan->in_place && i + 2 * BLOCK <= plan->m && k + n_k <= plan->k;
}

static pack_rows rows_pack(const tiles_worker *w, int64_t i, int64_t k, int64_t n_k)
{
    const ps_gemm_plan *const plan = w->x->plan;
    return pack_rows_begin(ps_gemm_a(w->x, i, k), plan->lda, plan->a_by_k, plan->k - k,
                           ps_min_i64(2 * BLOCK, w->item->i_end - i), n_k / 32, w->panels[w->panels_now], plan->a_bytes,
                           w->turn);
}

/* n_k of the slice's blocks of k from k on. */
static int64_t block_k(const tiles_worker *w, int64_t k)
{
    return ps_min_i64(w->x->plan->k_block, w->stage->k0 + w->stage->n_k - k);
}

/* The panels for rows i and i + 32, packed meanwhile or read in place; begins the packing of the next ones. */
static tiles_rows rows_take(tiles_worker *w, int64_t i, int64_t k)
{
    const ps_gemm_plan *const plan = w->x->plan;
    const int64_t n_k = block_k(w, k), k_end = w->stage->k0 + w->stage->n_k;
    tiles_rows rows = {.row = 2 * plan->lda, .half = 32 * plan->lda, .step = 64, .panel = 64 * plan->lda};
    if (rows_lie_ready(w, i, k, n_k))
        rows.at = ps_gemm_a(w->x, i, k);
    else {
        if (i == w->item->i0 && k == w->stage->k0) w->meanwhile.rows = rows_pack(w, i, k, n_k);
        pack_rows_finish(&w->meanwhile.rows);
        rows = (tiles_rows){w->panels[w->panels_now], PS_TILE_ROW_BYTES, PS_TILE_BYTES, PACK_STEP_BYTES, plan->a_bytes};
        w->panels_now ^= 1;
    }
    const bool is_more = i + 2 * BLOCK < w->item->i_end;
    const int64_t i_next = is_more ? i + 2 * BLOCK : w->item->i0, k_next = is_more ? k : k + plan->k_block;
    if (k_next < k_end && !rows_lie_ready(w, i_next, k_next, block_k(w, k_next)))
        w->meanwhile.rows = rows_pack(w, i_next, k_next, block_k(w, k_next));
    return rows;
}

/* The 32 rows after those at i, while those at i are multiplied with all panels of the item. */
static tiles_ask rows_ask(const tiles_worker *w, int64_t i, int64_t k)
{
    const ps_gemm_plan *const plan = w->x->plan;
    if (!rows_lie_ready(w, i, k, block_k(w, k)) || i + 2 * BLOCK > w->stage->i0 + w->stage->n_rows)
        return (tiles_ask){.n_left = 0};
    return (tiles_ask){ps_gemm_a(w->x, i + BLOCK, k), 2 * plan->lda, 0, block_k(w, k)};
}

static void multiply_row(tiles_worker *w, const tiles_rows *rows, int64_t i, int64_t k)
{
    const ps_gemm *const x = w->x;
    const ps_gemm_stage *const stage = w->stage;
    const int64_t n_k = block_k(w, k);
    const bool first = stage->first && k == stage->k0, last = stage->last && k + n_k == stage->k0 + stage->n_k;
    w->meanwhile.ask = rows_ask(w, i, k);
    w->meanwhile.asks_a_step = ps_ceil_div(BLOCK, w->item->panel_end - w->item->panel0);
    for (int64_t j = w->item->panel0; j < w->item->panel_end; j++) {
        float *const c = x->plan->sums_bytes + x->plan->call_bytes > 0 ? ps_gemm_sums(x, stage, w->item, w->sums, i, j)
                                                                       : w->blocks[w->flip ^= 1];
        const char *const b = stage->b + (j * stage->n_k + k - stage->k0) * 64;
#ifdef PS_ISA_avx512_bf16
        if (x->plan->kernel == PS_GEMM_DPBF16) {
            result_finish(&w->meanwhile.result);
            block_by_dpbf16(rows, b, n_k / 32, c, first);
        } else
#endif
            block_by_tiles(rows, b, n_k / 32, c, first, &w->meanwhile);
        if (last) w->meanwhile.result = result_begin(x, c, w->turned, i, stage->j0 + j * BLOCK);
    }
}

static tiles_worker worker_begin(const ps_gemm *x, char *scratch)
{
    const ps_gemm_plan *const plan = x->plan;
    tiles_worker w = {.x = x, .panels = {scratch, scratch + 2 * plan->a_bytes}};
    char *const rest = scratch + 4 * plan->a_bytes;
    w.blocks[0] = (float *)(void *)rest, w.blocks[1] = (float *)(void *)(rest + BLOCK_BYTES);
    w.turned = (float *)(void *)(rest + 2 * BLOCK_BYTES), w.turn = rest + 3 * BLOCK_BYTES;
    w.sums = rest + 4 * BLOCK_BYTES;
    if (plan->kernel == PS_GEMM_TILES) ps_tiles_begin();
    return w;
}

static void worker_end(tiles_worker *w)
{
    result_finish(&w->meanwhile.result);
    if (w->x->plan->streams) _mm_sfence(); /* makes non-temporal stores visible to other threads */
    if (w->x->plan->kernel == PS_GEMM_TILES) ps_tiles_end();
}

static void worker_multiply(tiles_worker *w, const ps_gemm_stage *stage, const ps_gemm_item *item)
{
    const int64_t panels = item->panel_end - item->panel0;
    w->stage = stage, w->item = item;
    for (int64_t k = stage->k0; k < stage->k0 + stage->n_k; k += w->x->plan->k_block)
        for (int64_t i = item->i0; i < item->i_end; i += 2 * BLOCK) {
            tiles_rows rows = rows_take(w, i, k);
            const int64_t n_steps = (i + BLOCK < item->i_end ? 2 : 1) * panels * (block_k(w, k) / 32);
            w->meanwhile.rows_a_step = ps_ceil_div(w->meanwhile.rows.n_left, n_steps);
            multiply_row(w, &rows, i, k);
            rows.at += rows.panel;
            if (i + BLOCK < item->i_end) multiply_row(w, &rows, i + BLOCK, k);
        }
}

static void tiles_multiply(const ps_gemm *x, const ps_gemm_stage *stage, const ps_gemm_item *item, char *scratch)
{
    tiles_worker w = worker_begin(x, scratch);
    worker_multiply(&w, stage, item);
    worker_end(&w);
}

/* ---- groups of columns ------------------------------------------------------------------------------------------- */

static pack_columns group_pack(const ps_gemm *x, const ps_gemm_stage *stage)
{
    return pack_columns_begin(ps_gemm_b(x, 0, stage->j0), x->plan->ldb, x->plan->b_by_k, x->plan->k, stage->n_cols,
                              stage->n_k / 32, stage->b, stage->n_k * 64);
}

static void tiles_groups(const ps_gemm *x, char *scratch)
{
    const ps_gemm_plan *const plan = x->plan;
    char *const packed = scratch + plan->thread_bytes - 2 * plan->b_bytes;
    ps_gemm_stage now, next = {.b = NULL};
    if (!ps_gemm_take(x, packed, &now)) return;
    tiles_worker w = worker_begin(x, scratch);
    w.meanwhile.columns = group_pack(x, &now);
    pack_columns_finish(&w.meanwhile.columns);
    for (bool is_more = true; is_more; now = next) {
        is_more = ps_gemm_take(x, now.b == packed ? packed + plan->b_bytes : packed, &next);
        const int64_t panels = ps_ceil_div(now.n_cols, BLOCK);
        if (is_more) w.meanwhile.columns = group_pack(x, &next);
        w.meanwhile.columns_a_step =
            ps_ceil_div(w.meanwhile.columns.n_left, ps_ceil_div(plan->m, BLOCK) * panels * (now.n_k / 32));
        for (int64_t i = 0; i < plan->m; i += plan->m_block)
            worker_multiply(&w, &now, &(ps_gemm_item){i, ps_min_i64(i + plan->m_block, plan->m), 0, panels});
        pack_columns_finish(&w.meanwhile.columns);
    }
    worker_end(&w);
}

/* ---- packing of b: items of PACK_STEPS along k or along the columns, whichever is contiguous in memory ----------- */

static int64_t tiles_pack_count(const ps_gemm *x, const ps_gemm_stage *stage)
{
    const int64_t panels = ps_ceil_div(stage->n_cols, BLOCK), steps = stage->n_k / 32;
    return x->plan->b_by_k ? panels * ps_ceil_div(steps, PACK_STEPS) : steps * ps_ceil_div(panels, PACK_STEPS);
}

static void tiles_pack(const ps_gemm *x, const ps_gemm_stage *stage, int64_t item)
{
    const ps_gemm_plan *const plan = x->plan;
    const int64_t panels = ps_ceil_div(stage->n_cols, BLOCK), steps = stage->n_k / 32;
    const int64_t pieces = ps_ceil_div(plan->b_by_k ? steps : panels, PACK_STEPS);
    const int64_t along = item % pieces * PACK_STEPS, across = item / pieces;
    const int64_t k = 32 * (plan->b_by_k ? along : across), j = BLOCK * (plan->b_by_k ? across : along);
    const int64_t n_steps = plan->b_by_k ? ps_min_i64(PACK_STEPS, steps - along) : 1;
    const int64_t n_columns = ps_min_i64((plan->b_by_k ? 1 : PACK_STEPS) * BLOCK, stage->n_cols - j);
    pack_columns w =
        pack_columns_begin(ps_gemm_b(x, stage->k0 + k, stage->j0 + j), plan->ldb, plan->b_by_k, plan->k - stage->k0 - k,
                           n_columns, n_steps, stage->b + (j * stage->n_k + k * BLOCK) * 2, stage->n_k * 64);
    pack_columns_finish(&w);
}

const ps_gemm_ops PS_CPU_NAME(gemm_tiles) = {tiles_pack_count, tiles_pack, tiles_multiply, tiles_groups};

#endif
