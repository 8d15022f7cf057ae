#include "kernel/cpu/cpu_gemm.h"

#include <stdatomic.h>

/* Upper bounds, for tiles. */
#define BLOCK_COLUMNS 768         /* of a block */
#define BLOCK_BYTES PS_MIB        /* of a block's b over one block of k, which stay in the second-level cache */
#define PACKED_BYTES (5 * PS_MIB) /* of packed b, of which there are two */
#define SUMS_BYTES (4 * PS_MIB)   /* of the call's sums, where k is divided into slices */

/* Packed b of a group of columns, of which a thread has two: GROUP_BYTES; but where k is long, GROUP_BYTES_MOST for up
 * to GROUP_PANELS panels. */
#define GROUP_BYTES (512 * 1024)
#define GROUP_BYTES_MOST (800 * 1024)
#define GROUP_PANELS 4
#define GROUPS_A_THREAD 3 /* at least: with fewer there are no groups */

/* Rows of an item where sums are kept between blocks of k. */
#define ROWS_OF_SUMS 256

/* Size of c from which on it is written by non-temporal stores, as it would not stay in the L2 cache until it is
 * read. */
#define STREAMED_BYTES (256 * 1024)

/* Items per thread; several, so that a delayed thread does not delay all. */
#define ITEMS_A_THREAD 4

/* Below this number of multiplications the caller computes alone: waking a thread would take longer. */
#define SERIAL_GEMMS (1 << 17)

/* Matrix multiplication with few rows, as in text generation, is limited by reading b. It has a separate plan, as tiles
 * would compute 32 rows. */
#define FEW_ROWS 16
#define FEW_ROWS_OF_TILES 8 /* the same, where the alternative is tiles */
#define FEW_ROWS_K 65536
#define FEW_ROWS_PANELS 8 /* packed at once */

/* Bytes of a 32 x 32 block of floats. */
#define TILE_BLOCK_BYTES 4096

/* Panels of f32. Rows and columns of a group are rounded up to whole panels. */
#define PANEL_K 256        /* k of a block */
#define CUT_ROWS 384       /* of a group */
#define CUT_COLUMNS 768    /* of a group */
#define CUT_ROW_COST 16    /* packing a row of a takes as long as multiplying it with this many columns */
#define CUT_COLUMN_COST 24 /* packing a column of b takes as long as multiplying it with this many rows */
#define CUTS 8             /* numbers of cuts that are tried, of rows and of columns */

/* Rows at multiples of this distance map to the same sets of the L1 cache. */
#define PAGE_BYTES 4096

/* Which operand is read as rows (tile A) and which as packed columns (tile B): an estimate in cycles per tile of 1 KiB,
 * measured on Emerald Rapids with operands in the third-level cache. A is read in place, or packed while the tiles run,
 * once for each block of columns; B is packed before, or while they run; a transposed result is transposed back when
 * stored. */
static bool plan_should_swap(const ps_matmul *p)
{
    const double a = p->a_transposed ? 300 : 10, b = p->b_transposed ? 230 : 200;
    const double a_swapped = p->b_transposed ? 10 : 300, b_swapped = p->a_transposed ? 200 : 230;
    const double mk = (double)p->m * (double)p->k / 512, nk = (double)p->n * (double)p->k / 512;
    const double mn = (double)p->m * (double)p->n / 256;
    const double n_blocks = (double)ps_ceil_div(p->n, BLOCK_COLUMNS),
                 m_blocks = (double)ps_ceil_div(p->m, BLOCK_COLUMNS);
    const double plain = mk * a * n_blocks + nk * b + mn * 60;
    const double swapped = nk * a_swapped * m_blocks + mk * b_swapped + mn * (p->m <= 512 ? 120 : 160);
    return swapped < plain;
}

static bool plan_is_of_few_rows(const ps_gemm_plan *x, const ps_matmul *p)
{
    return p->m <= (ps_gemm_is_tiled(x->kernel) ? FEW_ROWS_OF_TILES : FEW_ROWS) && !p->a_transposed &&
           p->k <= FEW_ROWS_K;
}

static void plan_choose_roles(ps_gemm_plan *x, const ps_matmul *p, bool swapped)
{
    const int64_t step = x->kernel == PS_GEMM_F32 ? 1 : 32;
    x->swapped = swapped;
    x->k = p->k, x->k_padded = ps_round_up(x->k, step);
    x->m = swapped ? p->n : p->m, x->n = swapped ? p->m : p->n;
    x->lda = swapped ? p->ldb : p->lda, x->ldb = swapped ? p->lda : p->ldb;
    x->a_by_k = swapped ? p->b_transposed : !p->a_transposed;
    x->b_by_k = swapped ? !p->a_transposed : p->b_transposed;
}

/* n divided evenly into pieces of at most `most`, in whole steps. */
static int64_t plan_even(int64_t n, int64_t most, int64_t step)
{
    return ps_round_up(ps_ceil_div(n, ps_ceil_div(n, most)), step);
}

static bool plan_is_serial(const ps_gemm_plan *plan)
{
    return plan->m * plan->n < SERIAL_GEMMS && plan->m * plan->n * plan->k < SERIAL_GEMMS;
}

static bool plan_streams(const ps_matmul *p)
{
    return !p->accumulate && p->m * p->n * (int64_t)ps_dtype_bytes(p->c_dtype) >= STREAMED_BYTES;
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* Rows of a are read in place, unless their stride is a multiple of a page, which would map them to the same few sets
 * of the L1 cache. That cache (48 KiB) holds a panel of 32 x 512; one of 32 x 1024 is used where it avoids storing sums
 * between two blocks of k. */
static void plan_choose_blocks(ps_gemm_plan *x)
{
    x->in_place = x->a_by_k && x->lda % 32 == 0 && x->lda * 2 % PAGE_BYTES != 0;
    const bool is_one = x->in_place && x->k_padded <= 1024;
    x->k_block = plan_even(x->k_padded, is_one ? 1024 : 512, 32);
    const int64_t fits = BLOCK_BYTES / (2 * x->k_block) / x->block.cols * x->block.cols;
    x->n_block = plan_even(x->n, ps_min_i64(BLOCK_COLUMNS, ps_max_i64(fits, x->block.cols)), x->block.cols);
    const int64_t k_most = ps_max_i64(PACKED_BYTES / (2 * x->n_block) / x->k_block, 1) * x->k_block;
    x->k_slice = plan_even(ps_ceil_div(x->k_padded, x->k_block), k_most / x->k_block, 1) * x->k_block;
    x->m_block = x->k_padded > 1024 ? ROWS_OF_SUMS : 128;
    const int64_t least = ITEMS_A_THREAD * x->n_threads;
    while (x->m_block > x->block.rows && ps_ceil_div(x->m, x->m_block) < least) x->m_block -= x->block.rows;
    x->m_slice = x->m;
    if (x->k_slice < x->k_padded) x->m_slice = ps_max_i64(SUMS_BYTES / (4 * x->n_block) / x->m_block, 1) * x->m_block;
}

/* Groups: each thread packs its next columns while it multiplies with the present ones, since data that another core
 * has just written is read at a tenth of the bandwidth of the thread's own cache. There are no groups where they would
 * be narrow: rows of a would be read, and possibly packed, too often. */
static void plan_choose_groups(ps_gemm_plan *x)
{
    const int64_t panels = ps_ceil_div(x->n, x->block.cols), panel_bytes = x->k_padded * x->block.cols * 2;
    const int64_t fit = ps_max_i64(GROUP_BYTES / panel_bytes, ps_min_i64(GROUP_PANELS, GROUP_BYTES_MOST / panel_bytes));
    const int64_t most = ps_min_i64(fit, panels / (GROUPS_A_THREAD * x->n_threads));
    if (x->swapped || !x->a_by_k || most < (x->in_place ? 2 : 8)) return;
    x->n_block = plan_even(x->n, most * x->block.cols, x->block.cols);
    x->n_groups = ps_ceil_div(x->n, x->n_block);
    x->k_slice = ps_round_up(x->k_padded, x->k_block);
    x->m_block = x->k_block < x->k_padded ? ROWS_OF_SUMS : ps_round_up(x->m, x->block.rows);
    x->m_slice = x->m;
}

/* A thread's scratch: two panels of a that are read and two that are packed meanwhile, two finished blocks, room to
 * transpose one and for a step of packing; then sums and packed groups. */
static void plan_for_tiles(ps_gemm_plan *x, const ps_matmul *p)
{
    x->block = (ps_gemm_block){32, 32};
    plan_choose_roles(x, p, plan_should_swap(p));
    plan_choose_blocks(x);
    plan_choose_groups(x);
    x->streams = plan_streams(p);
    const int64_t rows = ps_min_i64(x->m_block, ps_round_up(x->m, x->block.rows));
    const bool is_sliced = x->k_slice < x->k_padded;
    x->b_bytes = x->n_block * ps_min_i64(x->k_slice, x->k_padded) * 2;
    x->sums_bytes = !is_sliced && x->k_block < x->k_padded ? rows * x->n_block * 4 : 0;
    x->call_bytes = is_sliced ? ps_round_up(ps_min_i64(x->m_slice, x->m), x->block.rows) * x->n_block * 4 : 0;
    x->a_bytes = x->k_block * 64 + 128; /* panels of whole pages would map to the same sets of the cache */
    x->thread_bytes = 4 * x->a_bytes + 4 * TILE_BLOCK_BYTES + x->sums_bytes + (x->n_groups > 0 ? 2 * x->b_bytes : 0);
}

/* ---- panels of f32 ----------------------------------------------------------------------------------------------- */

/* Groups of m_slice rows and n_block columns: of several even divisions, the one with the shortest time of all
 * threads. */
static void plan_cut_panels(ps_gemm_plan *x)
{
    int64_t least = INT64_MAX;
    const int64_t n_threads = plan_is_serial(x) ? 1 : x->n_threads;
    const int64_t rows = x->block.rows, cols = x->block.cols;
    const int64_t m_cuts = ps_ceil_div(x->m, CUT_ROWS), n_cuts = ps_ceil_div(x->n, CUT_COLUMNS);
    for (int64_t i = m_cuts; i < m_cuts + CUTS; i++)
        for (int64_t j = n_cuts; j < n_cuts + CUTS; j++) {
            const int64_t m = ps_round_up(ps_ceil_div(x->m, i), rows), n = ps_round_up(ps_ceil_div(x->n, j), cols);
            const int64_t n_groups = ps_ceil_div(x->m, m) * ps_ceil_div(x->n, n);
            const int64_t time = ps_ceil_div(n_groups, n_threads) * (m * n + CUT_ROW_COST * m + CUT_COLUMN_COST * n);
            if (time >= least) continue;
            least = time;
            x->m_slice = m, x->n_block = n, x->n_groups = n_groups;
        }
}

/* Over a block of k, a panel of b stays in the first-level cache and the rows of a group in the second; where there are
 * several blocks, sums are kept from one to the next. */
static void plan_for_panels(ps_gemm_plan *x, const ps_matmul *p)
{
    plan_choose_roles(x, p, false);
    plan_cut_panels(x);
    x->k_block = plan_even(x->k_padded, PANEL_K, 32);
    x->k_slice = x->k_padded;
    x->m_block = x->m_slice;
    x->streams = plan_streams(p);
    x->a_bytes = x->m_slice / x->block.rows * ps_gemm_rows_panel(x->block.rows, x->k_block) * 4;
    x->b_bytes = x->block.cols * x->k_block * 4;
    x->sums_bytes = (x->k_block < x->k_padded ? x->m_slice * x->n_block : x->block.rows * x->block.cols) * 4;
    x->thread_bytes = x->b_bytes + x->sums_bytes + x->a_bytes;
}

/* There is one stage, with reversed roles: the rows of a are packed for all threads, block by block of k. A thread's
 * scratch has panels of b over a block, and sums of their columns. Several panels are packed at once where that reads
 * longer pieces of memory, else one by one, as the L1 cache holds one. */
static void plan_for_few_rows(ps_gemm_plan *x, const ps_matmul *p)
{
    plan_choose_roles(x, p, false);
    const int64_t in_item = ps_ceil_div(ps_ceil_div(x->n, x->block.cols), ITEMS_A_THREAD * x->n_threads);
    x->few_rows_panels = x->b_by_k ? 1 : ps_min_i64(FEW_ROWS_PANELS, in_item);
    x->k_block = plan_even(x->k_padded, PANEL_K, 32);
    x->m_block = x->m_slice = x->m, x->n_block = x->n, x->k_slice = x->k_padded;
    x->b_bytes = ps_ceil_div(x->k_padded, x->k_block) * ps_ceil_div(x->m, x->block.rows) *
                 ps_gemm_rows_panel(x->block.rows, x->k_block) * 4;
    x->thread_bytes = (x->k_block + x->m) * x->few_rows_panels * x->block.cols * 4;
}

ps_gemm_plan ps_gemm_plan_make(const ps_matmul *p, ps_gemm_kernel kernel, ps_gemm_block block, int64_t n_threads)
{
    ps_gemm_plan x = {.kernel = kernel, .n_threads = n_threads, .block = block};
    if (plan_is_of_few_rows(&x, p)) {
        if (ps_gemm_is_tiled(kernel)) x.kernel = PS_GEMM_PAIRS;
        plan_for_few_rows(&x, p);
    } else if (ps_gemm_is_tiled(kernel))
        plan_for_tiles(&x, p);
    else
        plan_for_panels(&x, p);
    x.b_bytes = ps_round_up(x.b_bytes, 64);
    x.thread_bytes = ps_round_up(x.thread_bytes, 64);
    return x;
}

/* ---- stages: slices of k, then of rows, then blocks of columns --------------------------------------------------- */

static int64_t stage_count(const ps_gemm_plan *plan)
{
    return ps_ceil_div(plan->n, plan->n_block) * ps_ceil_div(plan->m, plan->m_slice) *
           ps_ceil_div(plan->k_padded, plan->k_slice);
}

/* Buffers of packed b: the next one is packed while one is in use. */
static int64_t packed_count(const ps_gemm_plan *plan)
{
    return plan->n_groups > 0 ? 0 : ps_min_i64(stage_count(plan), 2);
}

size_t ps_gemm_plan_bytes(const ps_gemm_plan *x)
{
    const int64_t n_threads = plan_is_serial(x) ? 1 : x->n_threads;
    return (size_t)(packed_count(x) * x->b_bytes + ps_round_up(x->call_bytes, 64) + n_threads * x->thread_bytes);
}

static ps_gemm_stage stage_at(const ps_gemm_plan *plan, int64_t t, char *packed)
{
    const int64_t k_slices = ps_ceil_div(plan->k_padded, plan->k_slice), m_slices = ps_ceil_div(plan->m, plan->m_slice);
    const int64_t k = t % k_slices, i = t / k_slices % m_slices, j = t / k_slices / m_slices;
    ps_gemm_stage s = {.j0 = j * plan->n_block,
                       .i0 = i * plan->m_slice,
                       .k0 = k * plan->k_slice,
                       .first = k == 0,
                       .last = k == k_slices - 1,
                       .b = packed + (t & 1) * plan->b_bytes};
    s.n_cols = ps_min_i64(plan->n_block, plan->n - s.j0);
    s.n_rows = ps_min_i64(plan->m_slice, plan->m - s.i0);
    s.n_k = ps_min_i64(plan->k_slice, plan->k_padded - s.k0);
    s.n_rows_items = ps_ceil_div(s.n_rows, plan->m_block);
    s.n_cols_items = ps_min_i64(ps_ceil_div(ITEMS_A_THREAD * plan->n_threads, s.n_rows_items),
                                ps_ceil_div(s.n_cols, plan->block.cols));
    return s;
}

static void gemm_multiply(const ps_gemm *x, int64_t number, int64_t thread)
{
    const ps_gemm_plan *const plan = x->plan;
    const ps_gemm_stage *const s = &x->now;
    const int64_t i = number / s->n_cols_items, j = number % s->n_cols_items;
    const int64_t panels = ps_ceil_div(s->n_cols, plan->block.cols);
    const ps_gemm_item item = {.i0 = s->i0 + i * plan->m_block,
                               .i_end = s->i0 + ps_min_i64(s->n_rows, (i + 1) * plan->m_block),
                               .panel0 = panels * j / s->n_cols_items,
                               .panel_end = panels * (j + 1) / s->n_cols_items};
    x->ops->multiply(x, s, &item, x->threads + thread * plan->thread_bytes);
}

static void gemm_work(const void *args, int64_t item, int64_t thread)
{
    const ps_gemm *const x = args;
    if (item < x->n_multiply)
        gemm_multiply(x, item, thread);
    else
        x->ops->pack(x, &x->next, item - x->n_multiply);
}

bool ps_gemm_take(const ps_gemm *x, char *b, ps_gemm_stage *out)
{
    const int64_t group = atomic_fetch_add_explicit(x->n_taken, 1, memory_order_relaxed);
    if (group >= x->plan->n_groups) return false;
    *out = stage_at(x->plan, group, b);
    out->b = b;
    return true;
}

static void gemm_groups(const void *args, int64_t item, int64_t thread)
{
    const ps_gemm *const x = args;
    (void)item;
    x->ops->groups(x, x->threads + thread * x->plan->thread_bytes);
}

void ps_gemm_run(ps_cpu_pool *pool, const ps_matmul *p, const ps_gemm_plan *plan, const ps_gemm_ops *ops,
                 void *workspace)
{
    char *const packed = workspace;
    ps_gemm x = {.p = p, .plan = plan, .ops = ops, .sums = packed + packed_count(plan) * plan->b_bytes};
    x.threads = x.sums + ps_round_up(plan->call_bytes, 64);
    const bool is_serial = plan_is_serial(plan);
    if (plan->n_groups > 0) {
        _Atomic int64_t n_taken = 0;
        x.n_taken = &n_taken;
        ps_cpu_pool_run_if(pool, !is_serial, ps_min_i64(plan->n_threads, plan->n_groups), gemm_groups, &x);
        return;
    }
    const int64_t n_stages = stage_count(plan);
    for (int64_t t = -1; t < n_stages; t++) {
        x.now = x.next;
        x.n_multiply = t < 0 ? 0 : x.now.n_rows_items * x.now.n_cols_items;
        int64_t n_items = x.n_multiply;
        if (t + 1 < n_stages) {
            x.next = stage_at(plan, t + 1, packed);
            n_items += ops->pack_count(&x, &x.next);
        }
        if (!is_serial)
            ps_cpu_pool_run(pool, n_items, gemm_work, &x);
        else
            for (int64_t item = 0; item < n_items; item++) gemm_work(&x, item, 0);
    }
}
