/* Language-model head and cross-entropy in slices of the vocabulary: logits of a slice by matrix multiplication, then
 * row-wise work, then the next slice. */
#include "kernel/cpu/cpu_matmul.h"
#include "kernel/cpu/cpu_vec.h"

/* Bytes of logits and their gradients that are alive at once, and the narrowest slice. */
#define LM_SLICE_BYTES (8 * PS_MIB)
#define LM_SLICE_MIN 64
#define LM_SLICE_MAX 4096
/* ps_lm_logits_count */
#define LM_LD_ALIGN 16

typedef struct lm_shape {
    int64_t rows, C, V, width; /* width of a slice */
    ps_dtype dtype;
} lm_shape;

/* Slices of nearly equal width, multiples of 64. */
static lm_shape lm_shape_of(int64_t rows, int64_t C, int64_t V, ps_dtype dtype)
{
    int64_t most = LM_SLICE_BYTES / (6 * ps_max_i64(rows, 1)) / LM_SLICE_MIN * LM_SLICE_MIN;
    most = ps_min_i64(ps_max_i64(most, LM_SLICE_MIN), LM_SLICE_MAX);
    const int64_t n_slices = ps_ceil_div(V, most);
    return (lm_shape){rows, C, V, ps_round_up(ps_ceil_div(V, n_slices), LM_SLICE_MIN), dtype};
}

/* Elements between rows of the slice at v0, a multiple of 16. */
static int64_t lm_ld(const lm_shape *h, int64_t v0)
{
    return ps_min_i64(h->width, ps_round_up(h->V - v0, LM_LD_ALIGN));
}

/* Offset of the slice at v0 in kept logits, which are stored slice by slice for locality. */
static int64_t lm_kept_at(const lm_shape *h, int64_t v0)
{
    return h->rows * v0;
}

/* logits[rows, ld] = x w[v0 .. v0 + n)^T */
static ps_matmul lm_logits(const lm_shape *h, const void *x, const void *w, int64_t v0, int64_t n, float *logits)
{
    return (ps_matmul){.c = logits,
                       .a = x,
                       .b = ps_cpu_at_const(h->dtype, w, v0 * h->C),
                       .m = h->rows,
                       .n = n,
                       .k = h->C,
                       .lda = h->C,
                       .ldb = h->C,
                       .ldc = lm_ld(h, v0),
                       .b_transposed = true,
                       .ab_dtype = h->dtype,
                       .c_dtype = PS_DTYPE_F32};
}

/* dx[rows, C] += dlogits w[v0 .. v0 + n) */
static ps_matmul lm_dx(const lm_shape *h, const void *dlogits, const void *w, int64_t v0, int64_t n, float *dx)
{
    return (ps_matmul){.c = dx,
                       .a = dlogits,
                       .b = ps_cpu_at_const(h->dtype, w, v0 * h->C),
                       .m = h->rows,
                       .n = h->C,
                       .k = n,
                       .lda = lm_ld(h, v0),
                       .ldb = h->C,
                       .ldc = h->C,
                       .accumulate = v0 > 0,
                       .ab_dtype = h->dtype,
                       .c_dtype = PS_DTYPE_F32};
}

/* dw[v0 .. v0 + n) (+)= dlogits^T x */
static ps_matmul lm_dw(const lm_shape *h, const ps_lm_loss_bwd_args *a, const void *dlogits, int64_t v0, int64_t n)
{
    return (ps_matmul){.c = ps_cpu_at(a->grad_dtype, a->dw, v0 * h->C),
                       .a = dlogits,
                       .b = a->x,
                       .m = n,
                       .n = h->C,
                       .k = h->rows,
                       .lda = lm_ld(h, v0),
                       .ldb = h->C,
                       .ldc = h->C,
                       .a_transposed = true,
                       .accumulate = a->accumulate_grad,
                       .ab_dtype = h->dtype,
                       .c_dtype = a->grad_dtype};
}

/* The next slice with another shape of matrix multiplication: the last, which may be narrower. */
static int64_t lm_next_kind(const lm_shape *h, int64_t v0)
{
    const int64_t last = (h->V - 1) / h->width * h->width;
    return last > v0 ? last : h->V;
}

/* Whether the loss needs the sum of all logits of a row. */
static bool lm_smooths(const ps_lm_loss_fwd_args *a)
{
    return a->terms.smoothing > 0.0f;
}

static ps_status lm_loss_fwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_lm_loss_fwd_args *const a = args;
    const lm_shape h = lm_shape_of(a->rows, a->C, a->V, a->dtype);
    size_t scratch = 0;
    for (int64_t v0 = 0; a->rows > 0 && v0 < a->V; v0 = lm_next_kind(&h, v0)) {
        const ps_matmul p = lm_logits(&h, NULL, NULL, v0, ps_min_i64(h.width, a->V - v0), NULL);
        PS_TRY(PS_CPU_NAME(matmul_most)(ps_cpu_of(self), &p, &scratch));
    }
    const int64_t n_logits = a->keeps_logits ? 0 : h.rows * h.width;
    const int64_t n_row_sums = lm_smooths(a) ? h.rows : 0;
    *out = (size_t)(ps_round_up(h.rows * 8, 64) + ps_round_up(h.rows * 4, 64) + ps_round_up(n_row_sums * 4, 64) +
                    ps_round_up(n_logits * 4, 64)) +
           scratch;
    return PS_OK;
}

/* z[0 .. n) += b[v0 .. v0 + n) */
PS_CPU_INLINE void lm_add_bias(ps_dtype t, const void *b, int64_t v0, int64_t n, float *z)
{
    for (int64_t c = 0; c < n; c += VF_LANES)
        vf_put(PS_DTYPE_F32, z, c, n - c, vf_get(PS_DTYPE_F32, z, c, n - c) + vf_get(t, b, v0 + c, n - c));
}

/* The matrix multiplication has no bias: it is added in the row-wise work. */
static void lm_bias(ps_dtype dtype, const void *b, int64_t v0, int64_t n, float *z)
{
    if (b == NULL) return;
#define CALL(t) lm_add_bias(t, b, v0, n, z)
    PS_CPU_BY_DTYPE(dtype, CALL);
#undef CALL
}

/* Index of the first of n logits that equals max; one does. */
static int32_t lm_find(const float *z, int64_t n, float max)
{
    const vi none = (vi){0} + INT32_MAX;
    vi first = none, lanes = vi_lanes();
    int64_t c = 0;
    for (; c + VF_LANES <= n; c += VF_LANES, lanes += VF_LANES) {
        const vi hit = vf_load(z + c) == max, at = (lanes & hit) | (none & ~hit), earlier = at < first;
        first = (at & earlier) | (first & ~earlier);
    }
    int32_t index = INT32_MAX;
    for (int l = 0; l < VF_LANES; l++) index = first[l] < index ? first[l] : index;
    if (index < INT32_MAX) return index;
    while (z[c] != max) c++;
    return (int32_t)c;
}

/* Add n more logits of a row, from number v0 on, to its running maximum, the position of it, and the sum of
 * exponentials. */
static void lm_fold(const float *z, int64_t v0, int64_t n, float *running_max, float *running_sum, int32_t *best)
{
    vf top = vf_set1(-INFINITY), sum[VF_SUMS] = {{0}};
    int64_t c = 0;
    for (; c + VF_LANES <= n; c += VF_LANES) top = vf_max(top, vf_load(z + c));
    float max = vf_max_lane(top);
    for (; c < n; c++) max = z[c] > max ? z[c] : max;
    if (max > *running_max) *best = (int32_t)v0 + lm_find(z, n, max);
    max = max > *running_max ? max : *running_max;
    for (int64_t c0 = 0; c0 < n; c0 += VF_SUM)
        for (int s = 0; s < VF_SUMS; s++) {
            const int64_t at = c0 + s * VF_LANES;
            vf e = vf_exp(vf_get(PS_DTYPE_F32, z, at, n - at) - max);
            if (n - at < VF_LANES) e = vf_where(vi_lanes() < (int32_t)(n - at), e, vf_set1(0.0f));
            sum[s] += e;
        }
    *running_sum = *running_sum * vf_exp_of(*running_max - max) + vf_fold(sum);
    *running_max = max;
}

/* Sum of n logits of a row, from number v0 on, each times the weight of its class. */
static float lm_weighted_sum(const float *z, const float *class_weights, int64_t v0, int64_t n)
{
    vf sum[VF_SUMS] = {{0}};
    for (int64_t c0 = 0; c0 < n; c0 += VF_SUM)
        for (int s = 0; s < VF_SUMS; s++) {
            const int64_t at = c0 + s * VF_LANES;
            const vf logits = vf_get(PS_DTYPE_F32, z, at, n - at);
            const bool are_weighted = class_weights != NULL;
            const vf u = are_weighted ? vf_get(PS_DTYPE_F32, class_weights, v0 + at, n - at) : vf_set1(1.0f);
            sum[s] += logits * u;
        }
    return vf_fold(sum);
}

typedef struct lm_fold_work {
    const ps_lm_loss_fwd_args *a;
    float *logits; /* [rows, ld] of the slice */
    int64_t v0, n, ld;
    float *max, *sum;
    float *weighted; /* with label smoothing */
    int32_t *best;
} lm_fold_work;

/* Right after the matrix multiplication of a slice, while it is in the caches. */
static void lm_fold_rows(const void *args, int64_t lo, int64_t hi)
{
    const lm_fold_work *const w = args;
    const ps_lm_loss_fwd_args *const a = w->a;
    for (int64_t r = lo; r < hi; r++) {
        float *const z = w->logits + r * w->ld;
        lm_bias(a->dtype, a->b, w->v0, w->n, z);
        lm_fold(z, w->v0, w->n, &w->max[r], &w->sum[r], &w->best[r]);
        if (lm_smooths(a)) w->weighted[r] += lm_weighted_sum(z, a->terms.class_weights, w->v0, w->n);
        if (a->targets[r] >= w->v0 && a->targets[r] < w->v0 + w->n) a->row_loss[r] = z[a->targets[r] - w->v0];
    }
}

static float lm_class_weight(const ps_loss_terms *t, int64_t class)
{
    return t->class_weights == NULL ? 1.0f : t->class_weights[class];
}

/* Loss of a row that is not ignored. nll = lse - logits[target], relative to the maximum; without terms this is the
 * loss. */
static float lm_row_loss(const ps_lm_loss_fwd_args *a, int64_t r, float nll, float weighted)
{
    const ps_loss_terms *const t = &a->terms;
    const float u = lm_class_weight(t, a->targets[r]), lse = a->lse[r];
    float loss = (1.0f - t->smoothing) * u * nll;
    if (lm_smooths(a)) loss += t->smoothing * (t->mean_weight * lse - weighted / (float)a->V);
    if (t->z_loss > 0.0f) loss += t->z_loss * u * lse * lse;
    return loss;
}

static ps_status lm_loss_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_lm_loss_fwd_args *const a = args;
    (void)queue;
    if (a->rows == 0) return PS_OK;
    const lm_shape h = lm_shape_of(a->rows, a->C, a->V, a->dtype);
    char *at = a->workspace;
    float *const max = ps_cpu_take(&at, h.rows * 8), *const sum = max + h.rows;
    int32_t *const best = ps_cpu_take(&at, h.rows * 4);
    float *const weighted = lm_smooths(a) ? ps_cpu_take(&at, h.rows * 4) : NULL;
    float *const not_kept = ps_cpu_take(&at, a->keeps_logits ? 0 : h.rows * h.width * 4);
    const size_t rest = ps_cpu_remainder(a->workspace, workspace_bytes, at);
    for (int64_t r = 0; r < h.rows; r++) max[r] = -INFINITY, sum[r] = 0.0f, best[r] = 0, a->row_loss[r] = 0.0f;
    for (int64_t r = 0; lm_smooths(a) && r < h.rows; r++) weighted[r] = 0.0f;
    for (int64_t v0 = 0; v0 < h.V; v0 += h.width) {
        const int64_t n = ps_min_i64(h.width, h.V - v0);
        float *const logits = a->keeps_logits ? a->logits + lm_kept_at(&h, v0) : not_kept;
        const ps_matmul p = lm_logits(&h, a->x, a->w, v0, n, logits);
        PS_TRY(PS_CPU_NAME(matmul)(ps_cpu_of(self), &p, at, rest));
        const lm_fold_work w = {a, logits, v0, n, p.ldc, max, sum, weighted, best};
        ps_cpu_for_rows(self, h.rows, n, lm_fold_rows, &w);
    }
    for (int64_t r = 0; r < h.rows; r++) {
        a->lse[r] = max[r] + vf_log_of(sum[r]);
        if (a->predicted != NULL) a->predicted[r] = best[r];
        const float nll = (max[r] - a->row_loss[r]) + vf_log_of(sum[r]);
        a->row_loss[r] =
            a->targets[r] == PS_IGNORE_INDEX ? 0.0f : lm_row_loss(a, r, nll, lm_smooths(a) ? weighted[r] : 0.0f);
    }
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(lm_loss_fwd) = {.run = lm_loss_fwd, .workspace_bytes = lm_loss_fwd_bytes};

static ps_status lm_loss_bwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_lm_loss_bwd_args *const a = args;
    const lm_shape h = lm_shape_of(a->rows, a->C, a->V, a->dtype);
    size_t scratch = 0;
    for (int64_t v0 = 0; v0 < a->V; v0 = lm_next_kind(&h, v0)) {
        const int64_t n = ps_min_i64(h.width, a->V - v0);
        const ps_matmul logits = lm_logits(&h, NULL, NULL, v0, n, NULL), dx = lm_dx(&h, NULL, NULL, v0, n, NULL);
        const ps_matmul dw = lm_dw(&h, a, NULL, v0, n);
        if (!a->keeps_logits) PS_TRY(PS_CPU_NAME(matmul_most)(ps_cpu_of(self), &logits, &scratch));
        if (!a->skips_dx) PS_TRY(PS_CPU_NAME(matmul_most)(ps_cpu_of(self), &dx, &scratch));
        if (!a->skips_dw) PS_TRY(PS_CPU_NAME(matmul_most)(ps_cpu_of(self), &dw, &scratch));
    }
    const int64_t n_logits = h.rows * h.width, width = (int64_t)ps_dtype_bytes(h.dtype);
    *out = (size_t)(ps_round_up(a->keeps_logits ? 0 : n_logits * 4, 64) + ps_round_up(n_logits * width, 64) +
                    ps_round_up(a->skips_dx ? 0 : h.rows * h.C * 4, 64)) +
           scratch;
    return PS_OK;
}

/* dlogits of one row and slice. Without terms of_p and of_target are 1, which changes no bit. */
PS_CPU_INLINE void lm_dlogits_row(ps_dtype t, const ps_lm_loss_bwd_args *a, int64_t r, int64_t v0, int64_t n,
                                  const float *z, void *out)
{
    const bool counts = a->targets[r] != PS_IGNORE_INDEX;
    const vf scale = vf_set1(counts ? a->scale : 0.0f);
    const float lse = a->lse[r], e = a->terms.smoothing, *const weights = a->terms.class_weights;
    const float u = counts ? lm_class_weight(&a->terms, a->targets[r]) : 0.0f, of_target = (1.0f - e) * u;
    const float of_p = of_target + e * a->terms.mean_weight + 2.0f * a->terms.z_loss * u * lse,
                of_all = e / (float)a->V;
    for (int64_t c = 0; c < n; c += VF_LANES) {
        vf d = of_p * vf_exp(vf_get(PS_DTYPE_F32, z, c, n - c) - lse);
        const int64_t hit = a->targets[r] - v0 - c;
        if (counts && hit >= 0 && hit < VF_LANES) d = vf_where(vi_lanes() == (int32_t)hit, d - of_target, d);
        if (e > 0.0f) d -= of_all * (weights != NULL ? vf_get(PS_DTYPE_F32, weights, v0 + c, n - c) : vf_set1(1.0f));
        vf_put(t, out, c, n - c, counts ? d * scale : scale);
    }
}

typedef struct lm_dlogits_work {
    const ps_lm_loss_bwd_args *a;
    const float *logits; /* [rows, ld] of the slice */
    float *again;        /* the same, when recomputed: without the bias yet */
    void *dlogits;       /* [rows, ld] */
    int64_t v0, n, ld;
} lm_dlogits_work;

static void lm_dlogits_rows(const void *args, int64_t lo, int64_t hi)
{
    const lm_dlogits_work *const w = args;
    const ps_lm_loss_bwd_args *const a = w->a;
    for (int64_t r = lo; r < hi; r++) {
        if (w->again != NULL) lm_bias(a->dtype, a->b, w->v0, w->n, w->again + r * w->ld);
        void *const out = ps_cpu_at(a->dtype, w->dlogits, r * w->ld);
#define CALL(t) lm_dlogits_row(t, a, r, w->v0, w->n, w->logits + r * w->ld, out)
        PS_CPU_BY_DTYPE(a->dtype, CALL);
#undef CALL
    }
}

static ps_status lm_loss_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_lm_loss_bwd_args *const a = args;
    (void)queue;
    const lm_shape h = lm_shape_of(a->rows, a->C, a->V, a->dtype);
    char *at = a->workspace;
    float *const again = a->keeps_logits ? NULL : ps_cpu_take(&at, h.rows * h.width * 4);
    void *const dlogits = ps_cpu_take(&at, h.rows * h.width * (int64_t)ps_dtype_bytes(h.dtype));
    float *const dx = a->skips_dx ? NULL : ps_cpu_take(&at, h.rows * h.C * 4);
    const size_t rest = ps_cpu_remainder(a->workspace, workspace_bytes, at);
    for (int64_t v0 = 0; v0 < h.V; v0 += h.width) {
        const int64_t n = ps_min_i64(h.width, h.V - v0), ld = lm_ld(&h, v0);
        if (again != NULL) {
            const ps_matmul to_logits = lm_logits(&h, a->x, a->w, v0, n, again);
            PS_TRY(PS_CPU_NAME(matmul)(ps_cpu_of(self), &to_logits, at, rest));
        }
        const float *const logits = again != NULL ? again : a->logits + lm_kept_at(&h, v0);
        const lm_dlogits_work w = {a, logits, again, dlogits, v0, n, ld};
        ps_cpu_for_rows(self, h.rows, n, lm_dlogits_rows, &w);
        /* dx first: dw may overwrite the slice of w that it reads */
        const ps_matmul to_dx = lm_dx(&h, dlogits, a->w, v0, n, dx);
        if (!a->skips_dx) PS_TRY(PS_CPU_NAME(matmul)(ps_cpu_of(self), &to_dx, at, rest));
        if (!a->skips_dw) {
            const ps_matmul to_dw = lm_dw(&h, a, dlogits, v0, n);
            PS_TRY(PS_CPU_NAME(matmul)(ps_cpu_of(self), &to_dw, at, rest));
        }
        if (a->db == NULL) continue;
        void *const db = ps_cpu_at(a->grad_dtype, a->db, v0);
        PS_CPU_NAME(column_sums)
        (ps_cpu_of(self), db, a->grad_dtype, dlogits, h.dtype, h.rows, n, ld, a->accumulate_grad);
    }
    if (a->skips_dx) return PS_OK;
    const ps_cast_args round = {
        .dst = a->dx, .src = dx, .n = h.rows * h.C, .dst_dtype = h.dtype, .src_dtype = PS_DTYPE_F32};
    return PS_CPU_NAME(cast).run(self, queue, &round, 0);
}

const ps_kernel PS_CPU_NAME(lm_loss_bwd) = {.run = lm_loss_bwd, .workspace_bytes = lm_loss_bwd_bytes};
