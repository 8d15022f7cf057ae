/* cpu_product.h - how a matrix product is cut into blocks, and who does them.
 *
 * The result c is computed a block of columns at a time. For it, operand b is packed once for all threads: its columns
 * are copied into panels of block.cols each, in the order in which the kernel reads them. Then threads take items:
 * m_block rows of c, with all columns of the block, or with some of them where rows are few. While they multiply, b of
 * the next block is packed, so that threads meet once a block: what is done between two meetings is a stage. Where k is
 * long, it is cut into slices, to bound the scratch, and each slice is a stage.
 *
 *        columns of a block: panels            stage t: multiply with b of t; pack b of t + 1
 *       +----+----+----+----+
 *     b |    |    |    |    | a slice of k
 *       +----+----+----+----+
 *     +--+----+----+----+----+
 *     |a | an item: m_block  |                 sums stay in the thread's scratch; where k is cut
 *     +--+ rows of c         |                 into slices, in the scratch of the call
 *
 * Other plans have groups (n_groups) and no stages: a thread takes a group of columns and packs them for itself. Tiles:
 * it packs the group that it takes next while it multiplies all rows with this one. Panels of f32: a group has some of
 * the rows only; these are packed first, then its columns, a panel after the other.
 *
 * Sums go on exactly from block to block of k, in ascending order, so the bits of c depend neither on the sizes of
 * blocks nor on the number of threads. */
#ifndef PS_KERNEL_CPU_PRODUCT_H
#define PS_KERNEL_CPU_PRODUCT_H

#include "kernel/cpu/cpu_matmul.h"
#include "kernel/cpu/cpu_pool.h"

typedef enum ps_product_kernel {
    PS_PRODUCT_F32,    /* panels of f32, sums over ascending k: f32 and f16 */
    PS_PRODUCT_PAIRS,  /* panels of f32, the order of cpu_amx.h: bf16 without tiles */
    PS_PRODUCT_DPBF16, /* panels of bf16, the order of vdpbf16ps: AMD; few rows are done as PAIRS, in that order */
    PS_PRODUCT_TILES,  /* panels of bf16, AMX */
} ps_product_kernel;

/* Panels of bf16, blocks of 32 x 32. */
static inline bool ps_product_is_tiled(ps_product_kernel kernel)
{
    return kernel == PS_PRODUCT_TILES || kernel == PS_PRODUCT_DPBF16;
}

/* Floats of a panel of f32 with n_k of `rows` rows of a, and room for a vector that is written beyond the last one. */
static inline int64_t ps_product_rows_panel(int64_t rows, int64_t n_k)
{
    return ps_round_up(rows * n_k, 16) + 16;
}

/* Rows and columns of a block of sums. Panels of f32: those of the instruction set. */
typedef struct ps_product_block {
    int64_t rows, cols;
} ps_product_block;

typedef struct ps_product_plan {
    ps_product_kernel kernel;
    int64_t n_threads;
    ps_product_block block;
    bool swapped;            /* c^T = b^T a^T is computed; what follows is of that product */
    bool a_by_k, b_by_k;     /* neighbours in memory are neighbours in k */
    bool in_place;           /* whole tiles of a are read where they lie */
    bool streams;            /* c goes past the caches */
    int64_t few_rows_panels; /* few rows: panels of b that are packed at once */
    /* Groups of m_slice rows and n_block columns, each packed by the thread that multiplies with it. 0: there are
     * stages, and b is packed by all for all. */
    int64_t n_groups;
    int64_t m, n, k, lda, ldb;
    int64_t k_padded;                  /* k, up to whole steps of the kernel */
    int64_t k_block, n_block, m_block; /* k_block: what a panel of a covers */
    int64_t k_slice, m_slice;          /* what sums are kept for; tiles: all of m where k is one slice */
    int64_t a_bytes;                   /* packed a: a panel; panels of f32: all rows of a group over k_block */
    int64_t b_bytes;                   /* packed b of a block of columns; panels of f32: a panel */
    int64_t sums_bytes, call_bytes;    /* sums of a thread; of the call */
    int64_t thread_bytes;              /* all scratch of a thread */
} ps_product_plan;

/* For all of p but the pointers. `block`: of the panels of f32. */
ps_product_plan ps_product_plan_make(const ps_matmul *p, ps_product_kernel kernel, ps_product_block block,
                                     int64_t n_threads);

/* Scratch of the product: at most some 16 MiB, and thread_bytes for each thread. */
size_t ps_product_plan_bytes(const ps_product_plan *plan);

/* Columns [j0, j0 + n_cols) by rows [i0, i0 + n_rows) over the slice [k0, k0 + n_k) of k; n_k in whole steps. */
typedef struct ps_product_stage {
    int64_t j0, n_cols, i0, n_rows, k0, n_k;
    bool first, last;                   /* slice */
    char *b;                            /* packed: a panel of n_k after the other */
    int64_t n_rows_items, n_cols_items; /* items: so many ranges of rows by so many of panels */
} ps_product_stage;

/* What a thread computes in one go: rows [i0, i_end) of c by panels [panel0, panel_end) of a stage. */
typedef struct ps_product_item {
    int64_t i0, i_end, panel0, panel_end;
} ps_product_item;

typedef struct ps_product ps_product;

/* What multiplies: panels of f32, or tiles. */
typedef struct ps_product_ops {
    /* Packing of a stage's b is done in pack_count items; `pack` does one. */
    int64_t (*pack_count)(const ps_product *x, const ps_product_stage *stage);
    void (*pack)(const ps_product *x, const ps_product_stage *stage, int64_t item);
    void (*multiply)(const ps_product *x, const ps_product_stage *stage, const ps_product_item *item, char *scratch);
    /* Take groups (ps_product_take), pack and multiply them, until none is left. */
    void (*groups)(const ps_product *x, char *scratch);
} ps_product_ops;

struct ps_product {
    const ps_matmul *p;
    const ps_product_plan *plan;
    const ps_product_ops *ops;
    char *sums, *threads; /* in the workspace */
    ps_product_stage now, next;
    int64_t n_multiply;       /* items of `now`; packing of `next` comes after them */
    _Atomic int64_t *n_taken; /* groups */
};

/* The next group of columns as a stage whose b lies at `b`; false: none is left. Who takes one ahead keeps it, even if
 * it is held up. */
bool ps_product_take(const ps_product *x, char *b, ps_product_stage *out);

/* k >= 1, m and n too. */
void ps_product_run(ps_cpu_pool *pool, const ps_matmul *p, const ps_product_plan *plan, const ps_product_ops *ops,
                    void *workspace);

/* Where the sums of row i's block of rows and of panel j are kept while there are blocks of k to come: in the call's
 * scratch where k is cut into slices, else from `own` on, which is the thread's. */
static inline float *ps_product_sums(const ps_product *x, const ps_product_stage *stage, const ps_product_item *item,
                                     char *own, int64_t i, int64_t j)
{
    const ps_product_block block = x->plan->block;
    const bool is_call = x->plan->call_bytes > 0;
    const int64_t panels = is_call ? ps_ceil_div(stage->n_cols, block.cols) : item->panel_end - item->panel0;
    const int64_t row = (i - (is_call ? stage->i0 : item->i0)) / block.rows, col = is_call ? j : j - item->panel0;
    return (float *)(void *)(is_call ? x->sums : own) + (row * panels + col) * block.rows * block.cols;
}

/* Element (i, k) of the plan's a; (k, j) of its b. */
static inline const void *ps_product_a(const ps_product *x, int64_t i, int64_t k)
{
    const ps_product_plan *const plan = x->plan;
    const void *const a = plan->swapped ? x->p->b : x->p->a;
    return ps_cpu_at_const(x->p->ab_dtype, a, plan->a_by_k ? i * plan->lda + k : k * plan->lda + i);
}

static inline const void *ps_product_b(const ps_product *x, int64_t k, int64_t j)
{
    const ps_product_plan *const plan = x->plan;
    const void *const b = plan->swapped ? x->p->a : x->p->b;
    return ps_cpu_at_const(x->p->ab_dtype, b, plan->b_by_k ? j * plan->ldb + k : k * plan->ldb + j);
}

/* The kernels of each instruction set, and the block of its panels of f32. */
#ifdef PS_ISA
extern const ps_product_ops PS_CPU_NAME(product_tiles), PS_CPU_NAME(product_panels);
extern const ps_product_block PS_CPU_NAME(product_panel_block);
#endif

#endif
