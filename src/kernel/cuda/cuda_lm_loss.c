/* Head and loss in slices of the vocabulary: matrix multiplications for the logits of a slice and their gradients,
 * kernels of cuda_lm_loss.cu between them.
 *
 *     forward    for each slice:  logits = x w^T + b;  loss_slice: largest logit and sum of exp so far;
 *                                 loss_weighted, where labels are smoothed
 *                loss_finish
 *     backward   for each slice:  logits again, if not kept;  loss_gradient: dlogits, rounded
 *                                 dx' (+)= dlogits w;  dw (+)= dlogits^T x;  db (+)= column sums
 *                dx = dx' rounded
 *
 * Rows of logits have a stride of a multiple of 16 elements, so that matrix multiplications and vectors are aligned for
 * any vocabulary. Kept logits are stored slice by slice, each with the layout of a single slice; else there is room for
 * one. So matrix multiplications have the same strides, algorithms and bits, whether logits are kept or not. */
#include "kernel/cuda/cuda_operator.h"

/* With the rows of a micro-batch, enough for a whole GPU. */
#define SLICE 4096
#define STRIDE_ALIGN 16
#define ROWS_A_BLOCK (PS_CUDA_THREADS_loss_slice / PS_CUDA_WARP)

static int64_t stride_of(int64_t cols)
{
    return ps_round_up(cols, STRIDE_ALIGN);
}

/* Shared by both passes: the matrix multiplication for the logits of a slice. */
typedef struct slices {
    const char *x, *w, *b;
    char *own;   /* room for the logits of one slice; NULL when they are kept */
    float *kept; /* logits of all slices */
    void *gemm;  /* workspace */
    int64_t rows, C, V;
    ps_dtype dtype;
} slices;

static int64_t slice_cols(const slices *l, int64_t first)
{
    return ps_min_i64(l->V - first, SLICE);
}

static int64_t logits_stride(const slices *l, int64_t first)
{
    return stride_of(slice_cols(l, first));
}

static float *logits_of(const slices *l, int64_t first)
{
    return l->own != NULL ? (float *)l->own : l->kept + l->rows * first;
}

/* Row `token` of an array with C columns, or of one with 1. */
static const char *rows_from(const slices *l, const char *array, int64_t token, int64_t cols)
{
    return array != NULL ? array + token * cols * (int64_t)ps_dtype_bytes(l->dtype) : NULL;
}

static ps_cuda_matrix weights_of(const slices *l, int64_t first)
{
    return (ps_cuda_matrix){.data = rows_from(l, l->w, first, l->C), .stride = l->C, .dtype = l->dtype};
}

static ps_status compute_logits(const ps_cuda_issuer *to, const slices *l, int64_t first)
{
    ps_cuda_gemm p = {.y = logits_of(l, first),
                      .y_stride = logits_stride(l, first),
                      .y_dtype = PS_DTYPE_F32,
                      .a = {.data = l->x, .stride = l->C, .dtype = l->dtype},
                      .b = weights_of(l, first),
                      .bias = rows_from(l, l->b, first, 1),
                      .m = l->rows,
                      .n = slice_cols(l, first),
                      .k = l->C,
                      .workspace = l->gemm};
    p.b.is_transposed = true;
    return ps_cuda_multiply(to, &p);
}

static int64_t own_bytes(int64_t rows, int64_t V, bool keeps_logits)
{
    return keeps_logits ? 0 : ps_cuda_floats(rows * stride_of(ps_min_i64(V, SLICE)));
}

static int64_t lm_loss_fwd_bytes(const void *args, int64_t gemm_bytes)
{
    const ps_lm_loss_fwd_args *const a = args;
    const int64_t n_row_arrays = a->terms.smoothing > 0 ? 4 : 3;
    return gemm_bytes + own_bytes(a->rows, a->V, a->keeps_logits) + n_row_arrays * ps_cuda_floats(a->rows);
}

static ps_status lm_loss_fwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_lm_loss_fwd_args *const a = args;
    char *workspace = a->workspace;
    slices l = {.x = a->x, .w = a->w, .b = a->b, .kept = a->logits, .rows = a->rows, .C = a->C, .V = a->V};
    l.dtype = a->dtype, l.gemm = ps_cuda_take(&workspace, to->gemm_bytes);
    if (!a->keeps_logits) l.own = ps_cuda_take(&workspace, own_bytes(a->rows, a->V, false));
    float *weighted = NULL;
    const ps_cuda_loss_rows seen = {.max = ps_cuda_take(&workspace, ps_cuda_floats(a->rows)),
                                    .sum = ps_cuda_take(&workspace, ps_cuda_floats(a->rows)),
                                    .best = ps_cuda_take(&workspace, ps_cuda_floats(a->rows))};
    if (a->terms.smoothing > 0) weighted = ps_cuda_take(&workspace, ps_cuda_floats(a->rows));
    for (int64_t first = 0; first < a->V; first += SLICE) {
        const ps_cuda_loss_slice_args slice = {.seen = seen,
                                               .at_target = a->row_loss,
                                               .logits = logits_of(&l, first),
                                               .targets = a->targets,
                                               .rows = a->rows,
                                               .cols = slice_cols(&l, first),
                                               .stride = logits_stride(&l, first),
                                               .first = first};
        PS_TRY(compute_logits(to, &l, first));
        PS_TRY(PS_CUDA_LAUNCH(to, PS_CUDA_loss_slice, ps_ceil_div(a->rows, ROWS_A_BLOCK), &slice));
        if (weighted == NULL) continue;
        const ps_cuda_loss_weighted_args sums = {.weighted = weighted,
                                                 .logits = slice.logits,
                                                 .class_weights = a->terms.class_weights,
                                                 .rows = slice.rows,
                                                 .cols = slice.cols,
                                                 .stride = slice.stride,
                                                 .first = first};
        PS_TRY(PS_CUDA_LAUNCH(to, PS_CUDA_loss_weighted, ps_ceil_div(a->rows, ROWS_A_BLOCK), &sums));
    }
    const ps_cuda_loss_finish_args finish = {.row_loss = a->row_loss,
                                             .lse = a->lse,
                                             .predicted = a->predicted,
                                             .seen = seen,
                                             .weighted = weighted,
                                             .targets = a->targets,
                                             .rows = a->rows,
                                             .V = a->V,
                                             .terms = a->terms};
    return PS_CUDA_LAUNCH(to, PS_CUDA_loss_finish, ps_cuda_blocks_of(a->rows, 1, PS_CUDA_THREADS_loss_finish), &finish);
}

const ps_cuda_operator ps_cuda_lm_loss_fwd = {.run = lm_loss_fwd, .workspace_bytes = lm_loss_fwd_bytes};

/* ---- backward ---- */

static int64_t dlogits_bytes(int64_t rows, int64_t V, ps_dtype t)
{
    return ps_round_up(rows * stride_of(ps_min_i64(V, SLICE)) * (int64_t)ps_dtype_bytes(t), PS_CUDA_ALIGN);
}

static int64_t lm_loss_bwd_bytes(const void *args, int64_t gemm_bytes)
{
    const ps_lm_loss_bwd_args *const a = args;
    return gemm_bytes + own_bytes(a->rows, a->V, a->keeps_logits) + dlogits_bytes(a->rows, a->V, a->dtype) +
           (a->skips_dx ? 0 : ps_cuda_floats(a->rows * a->C)) + ps_cuda_columns_bytes(a->rows, ps_min_i64(a->V, SLICE));
}

typedef struct gradient {
    const ps_lm_loss_bwd_args *a;
    slices l;
    void *dlogits;
    float *dx; /* the sum over slices */
    float *partial;
} gradient;

static ps_status slice_gradient(const ps_cuda_issuer *to, const gradient *g, int64_t first, ps_cuda_matrix *dlogits)
{
    const ps_lm_loss_bwd_args *const a = g->a;
    const int64_t cols = slice_cols(&g->l, first);
    *dlogits = (ps_cuda_matrix){.data = g->dlogits, .stride = stride_of(ps_min_i64(a->V, SLICE)), .dtype = a->dtype};
    const ps_cuda_loss_gradient_args d = {.dlogits = g->dlogits,
                                          .logits = logits_of(&g->l, first),
                                          .lse = a->lse,
                                          .targets = a->targets,
                                          .rows = a->rows,
                                          .cols = cols,
                                          .stride = logits_stride(&g->l, first),
                                          .dlogits_stride = dlogits->stride,
                                          .first = first,
                                          .V = a->V,
                                          .scale = a->scale,
                                          .terms = a->terms};
    if (!a->keeps_logits) PS_TRY(compute_logits(to, &g->l, first));
    const int64_t a_block = PS_CUDA_THREADS_loss_gradient * PS_CUDA_VECTOR_BYTES / (int64_t)ps_dtype_bytes(a->dtype);
    const int64_t blocks = a->rows * ps_ceil_div(cols, a_block);
    return PS_CUDA_LAUNCH(to, PS_CUDA_OF_TYPE(loss_gradient, a->dtype), blocks, &d);
}

/* Address of token `first` in an array of parameter gradients with `cols` columns. */
static void *gradient_rows(const ps_lm_loss_bwd_args *a, void *array, int64_t first, int64_t cols)
{
    return (char *)array + first * cols * (int64_t)ps_dtype_bytes(a->grad_dtype);
}

static ps_status slice_dx(const ps_cuda_issuer *to, const gradient *g, int64_t first, ps_cuda_matrix dlogits)
{
    const ps_lm_loss_bwd_args *const a = g->a;
    const ps_cuda_gemm dx = {.y = g->dx,
                             .y_stride = a->C,
                             .y_dtype = PS_DTYPE_F32,
                             .a = dlogits,
                             .b = weights_of(&g->l, first),
                             .m = a->rows,
                             .n = a->C,
                             .k = slice_cols(&g->l, first),
                             .accumulate = first > 0,
                             .workspace = g->l.gemm};
    return ps_cuda_multiply(to, &dx);
}

static ps_status slice_dw(const ps_cuda_issuer *to, const gradient *g, int64_t first, ps_cuda_matrix dlogits)
{
    const ps_lm_loss_bwd_args *const a = g->a;
    ps_cuda_gemm dw = {.y = gradient_rows(a, a->dw, first, a->C),
                       .y_stride = a->C,
                       .y_dtype = a->grad_dtype,
                       .a = dlogits,
                       .b = {.data = a->x, .stride = a->C, .dtype = a->dtype},
                       .m = slice_cols(&g->l, first),
                       .n = a->C,
                       .k = a->rows,
                       .accumulate = a->accumulate_grad,
                       .workspace = g->l.gemm};
    dw.a.is_transposed = true;
    return ps_cuda_multiply(to, &dw);
}

/* The slice's part of dx; then dw and db, which may overwrite parameters that have been read. */
static ps_status slice_gemms(const ps_cuda_issuer *to, const gradient *g, int64_t first, ps_cuda_matrix dlogits)
{
    const ps_lm_loss_bwd_args *const a = g->a;
    const int64_t cols = slice_cols(&g->l, first);
    if (!a->skips_dx) PS_TRY(slice_dx(to, g, first, dlogits));
    if (!a->skips_dw) PS_TRY(slice_dw(to, g, first, dlogits));
    if (a->db == NULL) return PS_OK;
    const ps_cuda_columns_args c = {.x = dlogits.data, .rows = a->rows, .cols = cols, .stride = dlogits.stride};
    PS_TRY(ps_cuda_column_partials(to, a->dtype, c, g->partial));
    return ps_cuda_column_sums(to, g->partial, a->rows, cols, gradient_rows(a, a->db, first, 1), a->grad_dtype,
                               a->accumulate_grad);
}

static ps_status lm_loss_bwd(const ps_cuda_issuer *to, const void *args)
{
    const ps_lm_loss_bwd_args *const a = args;
    char *workspace = a->workspace;
    gradient g = {.a = a, .l = {.x = a->x, .w = a->w, .b = a->b, .rows = a->rows, .C = a->C, .V = a->V}};
    g.l.kept = (float *)(uintptr_t)a->logits; /* only read */
    g.l.dtype = a->dtype, g.l.gemm = ps_cuda_take(&workspace, to->gemm_bytes);
    if (!a->keeps_logits) g.l.own = ps_cuda_take(&workspace, own_bytes(a->rows, a->V, false));
    g.dlogits = ps_cuda_take(&workspace, dlogits_bytes(a->rows, a->V, a->dtype));
    if (!a->skips_dx) g.dx = ps_cuda_take(&workspace, ps_cuda_floats(a->rows * a->C));
    g.partial = (float *)(void *)workspace;
    for (int64_t first = 0; first < a->V; first += SLICE) {
        ps_cuda_matrix dlogits;
        PS_TRY(slice_gradient(to, &g, first, &dlogits));
        PS_TRY(slice_gemms(to, &g, first, dlogits));
    }
    if (a->skips_dx) return PS_OK;
    const ps_cast_args dx = {
        .dst = a->dx, .src = g.dx, .n = a->rows * a->C, .dst_dtype = a->dtype, .src_dtype = PS_DTYPE_F32};
    return ps_cuda_cast.run(to, &dx);
}

const ps_cuda_operator ps_cuda_lm_loss_bwd = {.run = lm_loss_bwd, .workspace_bytes = lm_loss_bwd_bytes};
