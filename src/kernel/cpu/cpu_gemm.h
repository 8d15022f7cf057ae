/* cpu_gemm.h - blocking of matrix multiplication, and its division among threads.
 *
 * The result c is computed a block of columns at a time. For each block, operand b is packed once for all threads: its
 * columns are copied into panels of block.cols each, in the order in which the kernel reads them. Threads then take
 * items: m_block rows of c, with all columns of the block, or some of them where there are few rows. Meanwhile b of the
 * next block is packed, so that threads synchronize once per block; the work between two barriers is a stage. A long k
 * is divided into slices, to bound the scratch; each slice is a stage.
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
 * the thread packs its next group while it multiplies all rows with the present one. Panels of f32: a group has some of
 * the rows only; these are packed first, then its columns, panel by panel.
 *
 * Sums continue exactly from block to block of k, in ascending order, so the bits of c depend neither on block sizes
 * nor on the number of threads. */
#ifndef PS_KERNEL_CPU_GEMM_H
#define PS_KERNEL_CPU_GEMM_H

#include "kernel/cpu/cpu_matmul.h"
#include "kernel/cpu/cpu_pool.h"

typedef enum ps_gemm_kernel {
    PS_GEMM_F32,    /* panels of f32, sums over ascending k: f32 and f16 */
    PS_GEMM_PAIRS,  /* panels of f32, the order of cpu_amx.h: bf16 without tiles */
    PS_GEMM_DPBF16, /* panels of bf16, the order of vdpbf16ps: AMD; few rows are computed as PAIRS, in that order */
    PS_GEMM_TILES,  /* panels of bf16, AMX */
} ps_gemm_kernel;

/* Panels of bf16, blocks of 32 x 32. */
static inline bool ps_gemm_is_tiled(ps_gemm_kernel kernel)
{
    return kernel == PS_GEMM_TILES || kernel == PS_GEMM_DPBF16;
}

/* Floats of a panel of f32 with n_k of `rows` rows of a, and room for a vector that is written past the end. */
static inline int64_t ps_gemm_rows_panel(int64_t rows, int64_t n_k)
{
    return ps_round_up(rows * n_k, 16) + 16;
}

/* Rows and columns of a block of sums. Panels of f32: those of the instruction set. */
typedef struct ps_gemm_block {
    int64_t rows, cols;
} ps_gemm_block;

typedef struct ps_gemm_plan {
    ps_gemm_kernel kernel;
    int64_t n_threads;
    ps_gemm_block block;
    bool swapped;            /* compute c^T = b^T a^T; the members below refer to that */
    bool a_by_k, b_by_k;     /* neighbours in memory are neighbours in k */
    bool in_place;           /* whole tiles of a are read without packing */
    bool streams;            /* c is written with non-temporal stores */
    int64_t few_rows_panels; /* few rows: panels of b that are packed at once */
    /* Groups of m_slice rows and n_block columns, each packed by the thread that uses it. 0: there are stages, and all
     * threads pack b together. */
    int64_t n_groups;
    int64_t m, n, k, lda, ldb;
    int64_t k_padded;                  /* k rounded up to whole steps of the kernel */
    int64_t k_block, n_block, m_block; /* k_block: k of a panel of a */
    int64_t k_slice, m_slice;          /* range of kept sums; tiles: all of m where k is one slice */
    int64_t a_bytes;                   /* packed a: a panel; panels of f32: all rows of a group over k_block */
    int64_t b_bytes;                   /* packed b of a block of columns; panels of f32: a panel */
    int64_t sums_bytes, call_bytes;    /* sums of a thread; of the call */
    int64_t thread_bytes;              /* all scratch of a thread */
} ps_gemm_plan;

/* Pointers in p are not read. `block`: of the panels of f32. */
ps_gemm_plan ps_gemm_plan_make(const ps_matmul *p, ps_gemm_kernel kernel, ps_gemm_block block, int64_t n_threads);

/* Scratch: at most about 16 MiB, and thread_bytes for each thread. */
size_t ps_gemm_plan_bytes(const ps_gemm_plan *plan);

/* Columns [j0, j0 + n_cols) by rows [i0, i0 + n_rows) over the slice [k0, k0 + n_k) of k; n_k in whole steps. */
typedef struct ps_gemm_stage {
    int64_t j0, n_cols, i0, n_rows, k0, n_k;
    bool first, last;                   /* slice */
    char *b;                            /* packed: a panel of n_k after the other */
    int64_t n_rows_items, n_cols_items; /* items: ranges of rows times ranges of panels */
} ps_gemm_stage;

/* An item of a thread: rows [i0, i_end) of c by panels [panel0, panel_end) of a stage. */
typedef struct ps_gemm_item {
    int64_t i0, i_end, panel0, panel_end;
} ps_gemm_item;

typedef struct ps_gemm ps_gemm;

/* A multiplication kernel: panels of f32, or tiles. */
typedef struct ps_gemm_ops {
    /* Packing of a stage's b is done in pack_count items; `pack` does one. */
    int64_t (*pack_count)(const ps_gemm *x, const ps_gemm_stage *stage);
    void (*pack)(const ps_gemm *x, const ps_gemm_stage *stage, int64_t item);
    void (*multiply)(const ps_gemm *x, const ps_gemm_stage *stage, const ps_gemm_item *item, char *scratch);
    /* Take groups (ps_gemm_take), pack and multiply them, until none is left. */
    void (*groups)(const ps_gemm *x, char *scratch);
} ps_gemm_ops;

struct ps_gemm {
    const ps_matmul *p;
    const ps_gemm_plan *plan;
    const ps_gemm_ops *ops;
    char *sums, *threads; /* in the workspace */
    ps_gemm_stage now, next;
    int64_t n_multiply;       /* items of `now`; packing of `next` comes after them */
    _Atomic int64_t *n_taken; /* groups */
};

/* Take the next group of columns as a stage whose b is at `b`; false: none is left. A group that a thread takes ahead
 * stays with that thread, even if it is delayed. */
bool ps_gemm_take(const ps_gemm *x, char *b, ps_gemm_stage *out);

/* k, m and n are at least 1. */
void ps_gemm_run(ps_cpu_pool *pool, const ps_matmul *p, const ps_gemm_plan *plan, const ps_gemm_ops *ops,
                 void *workspace);

/* Address of the partial sums of row i's block of rows and of panel j between blocks of k: in the call's scratch where
 * k has several slices, else from `own` on in the thread's scratch. */
static inline float *ps_gemm_sums(const ps_gemm *x, const ps_gemm_stage *stage, const ps_gemm_item *item, char *own,
                                  int64_t i, int64_t j)
{
    const ps_gemm_block block = x->plan->block;
    const bool is_call = x->plan->call_bytes > 0;
    const int64_t panels = is_call ? ps_ceil_div(stage->n_cols, block.cols) : item->panel_end - item->panel0;
    const int64_t row = (i - (is_call ? stage->i0 : item->i0)) / block.rows, col = is_call ? j : j - item->panel0;
    return (float *)(void *)(is_call ? x->sums : own) + (row * panels + col) * block.rows * block.cols;
}

/* Element (i, k) of the plan's a; (k, j) of its b. */
static inline const void *ps_gemm_a(const ps_gemm *x, int64_t i, int64_t k)
{
    const ps_gemm_plan *const plan = x->plan;
    const void *const a = plan->swapped ? x->p->b : x->p->a;
    return ps_cpu_at_const(x->p->ab_dtype, a, plan->a_by_k ? i * plan->lda + k : k * plan->lda + i);
}

static inline const void *ps_gemm_b(const ps_gemm *x, int64_t k, int64_t j)
{
    const ps_gemm_plan *const plan = x->plan;
    const void *const b = plan->swapped ? x->p->a : x->p->b;
    return ps_cpu_at_const(x->p->ab_dtype, b, plan->b_by_k ? j * plan->ldb + k : k * plan->ldb + j);
}

/* The kernels of each instruction set, and the block of its panels of f32. */
#ifdef PS_ISA
extern const ps_gemm_ops PS_CPU_NAME(gemm_tiles), PS_CPU_NAME(gemm_panels);
extern const ps_gemm_block PS_CPU_NAME(gemm_panel_block);
#endif

#endif
