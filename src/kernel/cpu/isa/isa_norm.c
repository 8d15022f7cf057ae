/* Layer and root-mean-square normalisation. A row is short enough to stay in the first-level cache between its
 * passes. */
#include "kernel/cpu/cpu_vec.h"

/* Gradients of weights are summed over pieces of the rows, then over the pieces in order. Pieces depend on the number
 * of rows only, so that sums do not depend on threads. They have about NORM_PIECE_ROWS rows, so that summing the pieces
 * is cheap and there are enough for many threads, or more rows where there would be more than NORM_MOST_PIECES. */
#define NORM_PIECE_ROWS 32
#define NORM_MOST_PIECES 64

static int64_t norm_pieces(int64_t rows)
{
    return ps_min_i64(ps_max_i64(ps_ceil_div(rows, NORM_PIECE_ROWS), 1), NORM_MOST_PIECES);
}

typedef struct norm_reduction {
    void *out;
    ps_dtype dtype;
    const float *partial; /* [n_pieces][stride] */
    int64_t stride, n_pieces, cols;
    bool accumulate;
} norm_reduction;

PS_CPU_INLINE void norm_reduce_range(ps_dtype t, const norm_reduction *n, int64_t lo, int64_t hi)
{
    for (int64_t c = lo; c < hi; c += VF_LANES) {
        vf sum = {0};
        for (int64_t p = 0; p < n->n_pieces; p++) sum += vf_get(PS_DTYPE_F32, n->partial + p * n->stride, c, hi - c);
        if (n->accumulate) sum += vf_get(t, n->out, c, hi - c);
        vf_put(t, n->out, c, hi - c, sum);
    }
}

static void norm_reduce_columns(const void *args, int64_t lo, int64_t hi)
{
    const norm_reduction *const n = args;
#define CALL(t) norm_reduce_range(t, n, lo, hi)
    PS_CPU_BY_DTYPE(n->dtype, CALL);
#undef CALL
}

static void norm_reduce(ps_backend *self, const norm_reduction *n)
{
    ps_cpu_pool_run_range(ps_cpu_of(self)->pool, n->cols, 64, PS_CPU_PARALLEL_MIN / n->n_pieces, norm_reduce_columns,
                          n);
}

PS_CPU_INLINE void layernorm_fwd_row(ps_dtype t, const ps_layernorm_fwd_args *a, int64_t r)
{
    const void *const x = ps_cpu_at_const(t, a->x, r * a->cols);
    void *const y = ps_cpu_at(t, a->y, r * a->cols);
    const float inverse_n = 1.0f / (float)a->cols;
    vf sum[VF_SUMS] = {{0}}, sum_squares[VF_SUMS] = {{0}};
    for (int64_t c0 = 0; c0 < a->cols; c0 += VF_SUM)
        for (int s = 0; s < VF_SUMS; s++) {
            const int64_t c = c0 + s * VF_LANES;
            sum[s] += vf_get(t, x, c, a->cols - c);
        }
    const float mean = vf_fold(sum) * inverse_n;
    for (int64_t c0 = 0; c0 < a->cols; c0 += VF_SUM)
        for (int s = 0; s < VF_SUMS; s++) {
            const int64_t c = c0 + s * VF_LANES, n = a->cols - c;
            vf d = vf_get(t, x, c, n) - mean;
            if (n < VF_LANES) d = vf_where(vi_lanes() < (int32_t)n, d, vf_set1(0.0f));
            sum_squares[s] = vf_fma(d, d, sum_squares[s]);
        }
    const float rstd = 1.0f / sqrtf(vf_fold(sum_squares) * inverse_n + a->eps);
    a->mean[r] = mean, a->rstd[r] = rstd;
    for (int64_t c = 0; c < a->cols; c += VF_LANES) {
        const int64_t n = a->cols - c;
        const vf normed = (vf_get(t, x, c, n) - mean) * rstd;
        vf_put(t, y, c, n, vf_fma(normed, vf_get(t, a->w, c, n), vf_get(t, a->b, c, n)));
    }
}

static void layernorm_fwd_rows(const void *args, int64_t lo, int64_t hi)
{
    const ps_layernorm_fwd_args *const a = args;
#define CALL(t)                                                                                                        \
    for (int64_t r = lo; r < hi; r++) layernorm_fwd_row(t, a, r)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status layernorm_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_layernorm_fwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_rows(self, a->rows, a->cols, layernorm_fwd_rows, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(layernorm_fwd) = {.run = layernorm_fwd};

/* dx of one row, and the row's share of dw and db. */
PS_CPU_INLINE void layernorm_bwd_row(ps_dtype t, const ps_layernorm_bwd_args *a, int64_t r, float *dw, float *db)
{
    const void *const x = ps_cpu_at_const(t, a->x, r * a->cols), *const dy = ps_cpu_at_const(t, a->dy, r * a->cols);
    void *const dx = ps_cpu_at(t, a->dx, r * a->cols);
    const float mean = a->mean[r], rstd = a->rstd[r], inverse_n = 1.0f / (float)a->cols;
    vf sum_g[VF_SUMS] = {{0}}, sum_gn[VF_SUMS] = {{0}};
    for (int64_t c0 = 0; c0 < a->cols; c0 += VF_SUM)
        for (int s = 0; s < VF_SUMS; s++) {
            const int64_t c = c0 + s * VF_LANES, n = a->cols - c;
            const vf normed = (vf_get(t, x, c, n) - mean) * rstd, d = vf_get(t, dy, c, n);
            const vf g = d * vf_get(t, a->w, c, n);
            sum_g[s] += g;
            sum_gn[s] = vf_fma(g, normed, sum_gn[s]);
            vf_put(PS_DTYPE_F32, dw, c, n, vf_fma(d, normed, vf_get(PS_DTYPE_F32, dw, c, n)));
            vf_put(PS_DTYPE_F32, db, c, n, d + vf_get(PS_DTYPE_F32, db, c, n));
        }
    const float avg_g = vf_fold(sum_g) * inverse_n, avg_gn = vf_fold(sum_gn) * inverse_n;
    for (int64_t c = 0; c < a->cols; c += VF_LANES) {
        const int64_t n = a->cols - c;
        const vf normed = (vf_get(t, x, c, n) - mean) * rstd;
        const vf g = vf_get(t, dy, c, n) * vf_get(t, a->w, c, n);
        vf out = (g - vf_fma(normed, vf_set1(avg_gn), vf_set1(avg_g))) * rstd;
        if (a->accumulate_dx) out += vf_get(t, dx, c, n);
        vf_put(t, dx, c, n, out);
    }
}

static int64_t layernorm_piece_floats(int64_t cols)
{
    return 2 * ps_round_up(cols, 16); /* dw, db */
}

static ps_status layernorm_bwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_layernorm_bwd_args *const a = args;
    (void)self;
    *out = (size_t)(norm_pieces(a->rows) * layernorm_piece_floats(a->cols)) * sizeof(float);
    return PS_OK;
}

static void layernorm_bwd_piece(const void *args, int64_t piece, int64_t thread)
{
    const ps_layernorm_bwd_args *const a = args;
    (void)thread;
    const int64_t n_pieces = norm_pieces(a->rows), n_floats = layernorm_piece_floats(a->cols);
    float *const dw = (float *)a->workspace + piece * n_floats, *const db = dw + n_floats / 2;
    memset(dw, 0, (size_t)n_floats * sizeof *dw);
#define CALL(t)                                                                                                        \
    for (int64_t r = a->rows * piece / n_pieces; r < a->rows * (piece + 1) / n_pieces; r++)                            \
    layernorm_bwd_row(t, a, r, dw, db)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status layernorm_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_layernorm_bwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    norm_reduction n = {.dtype = a->grad_dtype,
                        .stride = layernorm_piece_floats(a->cols),
                        .n_pieces = norm_pieces(a->rows),
                        .cols = a->cols,
                        .accumulate = a->accumulate_grad};
    ps_cpu_pool_run_if(ps_cpu_of(self)->pool, a->rows * a->cols >= PS_CPU_PARALLEL_MIN, n.n_pieces, layernorm_bwd_piece,
                       a);
    n.out = a->dw, n.partial = a->workspace;
    norm_reduce(self, &n);
    n.out = a->db, n.partial += n.stride / 2;
    norm_reduce(self, &n);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(layernorm_bwd) = {.run = layernorm_bwd, .workspace_bytes = layernorm_bwd_bytes};

PS_CPU_INLINE float rmsnorm_sum_squares(ps_dtype t, const void *x, int64_t cols)
{
    vf sum[VF_SUMS] = {{0}};
    for (int64_t c0 = 0; c0 < cols; c0 += VF_SUM)
        for (int s = 0; s < VF_SUMS; s++) {
            const int64_t c = c0 + s * VF_LANES;
            const vf v = vf_get(t, x, c, cols - c);
            sum[s] = vf_fma(v, v, sum[s]);
        }
    return vf_fold(sum);
}

PS_CPU_INLINE void rmsnorm_fwd_row(ps_dtype t, const ps_rmsnorm_fwd_args *a, int64_t r)
{
    const void *const x = ps_cpu_at_const(t, a->x, r * a->cols);
    void *const y = ps_cpu_at(t, a->y, r * a->cols);
    const float rstd = 1.0f / sqrtf(rmsnorm_sum_squares(t, x, a->cols) / (float)a->cols + a->eps);
    a->rstd[r] = rstd;
    for (int64_t c = 0; c < a->cols; c += VF_LANES) {
        const int64_t n = a->cols - c;
        vf_put(t, y, c, n, vf_get(t, x, c, n) * rstd * vf_get(t, a->w, c, n));
    }
}

static void rmsnorm_fwd_rows(const void *args, int64_t lo, int64_t hi)
{
    const ps_rmsnorm_fwd_args *const a = args;
#define CALL(t)                                                                                                        \
    for (int64_t r = lo; r < hi; r++) rmsnorm_fwd_row(t, a, r)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status rmsnorm_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_rmsnorm_fwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    ps_cpu_for_rows(self, a->rows, a->cols, rmsnorm_fwd_rows, a);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(rmsnorm_fwd) = {.run = rmsnorm_fwd};

/* Columns [c, c + n) of a row into its sum of g n and the sums of dw. */
PS_CPU_INLINE vf rmsnorm_bwd_add(ps_dtype t, const void *x, const void *dy, const void *w, float rstd, float *dw,
                                 int64_t c, int64_t n, vf sum_gn)
{
    const vf normed = vf_get(t, x, c, n) * rstd, d = vf_get(t, dy, c, n);
    vf_put(PS_DTYPE_F32, dw, c, n, vf_fma(d, normed, vf_get(PS_DTYPE_F32, dw, c, n)));
    return vf_fma(d * vf_get(t, w, c, n), normed, sum_gn);
}

/* dx of one row, and the row's share of dw. */
PS_CPU_INLINE void rmsnorm_bwd_row(ps_dtype t, const ps_rmsnorm_bwd_args *a, int64_t r, float *dw)
{
    const void *const x = ps_cpu_at_const(t, a->x, r * a->cols), *const dy = ps_cpu_at_const(t, a->dy, r * a->cols);
    void *const dx = ps_cpu_at(t, a->dx, r * a->cols);
    const float rstd = a->rstd[r];
    vf sum[VF_SUMS] = {{0}};
    for (int64_t c0 = 0; c0 < a->cols; c0 += VF_SUM)
        for (int s = 0; s < VF_SUMS; s++) {
            const int64_t c = c0 + s * VF_LANES;
            sum[s] = rmsnorm_bwd_add(t, x, dy, a->w, rstd, dw, c, a->cols - c, sum[s]);
        }
    const vf avg_gn = vf_set1(vf_fold(sum) / (float)a->cols);
    for (int64_t c = 0; c < a->cols; c += VF_LANES) {
        const int64_t n = a->cols - c;
        const vf g = vf_get(t, dy, c, n) * vf_get(t, a->w, c, n), normed = vf_get(t, x, c, n) * rstd;
        vf out = vf_fma(-normed, avg_gn, g) * rstd;
        if (a->accumulate_dx) out += vf_get(t, dx, c, n);
        vf_put(t, dx, c, n, out);
    }
}

static ps_status rmsnorm_bwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_rmsnorm_bwd_args *const a = args;
    (void)self;
    *out = (size_t)(norm_pieces(a->rows) * ps_round_up(a->cols, 16)) * sizeof(float);
    return PS_OK;
}

static void rmsnorm_bwd_piece(const void *args, int64_t piece, int64_t thread)
{
    const ps_rmsnorm_bwd_args *const a = args;
    (void)thread;
    const int64_t n_pieces = norm_pieces(a->rows), n_floats = ps_round_up(a->cols, 16);
    float *const dw = (float *)a->workspace + piece * n_floats;
    memset(dw, 0, (size_t)n_floats * sizeof *dw);
#define CALL(t)                                                                                                        \
    for (int64_t r = a->rows * piece / n_pieces; r < a->rows * (piece + 1) / n_pieces; r++) rmsnorm_bwd_row(t, a, r, dw)
    PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
}

static ps_status rmsnorm_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_rmsnorm_bwd_args *const a = args;
    (void)queue, (void)workspace_bytes;
    const norm_reduction n = {.out = a->dw,
                              .dtype = a->grad_dtype,
                              .partial = a->workspace,
                              .stride = ps_round_up(a->cols, 16),
                              .n_pieces = norm_pieces(a->rows),
                              .cols = a->cols,
                              .accumulate = a->accumulate_grad};
    ps_cpu_pool_run_if(ps_cpu_of(self)->pool, a->rows * a->cols >= PS_CPU_PARALLEL_MIN, n.n_pieces, rmsnorm_bwd_piece,
                       a);
    norm_reduce(self, &n);
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(rmsnorm_bwd) = {.run = rmsnorm_bwd, .workspace_bytes = rmsnorm_bwd_bytes};
