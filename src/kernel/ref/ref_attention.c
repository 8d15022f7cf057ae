#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

/* Forward and backward read the same inputs: one head of one sequence of the batch. */
typedef struct head_view {
    const void *q, *k, *v;
    const int32_t *mask;
    ps_dtype dtype;
    int64_t T, H, KV, D, q_stride, kv_stride, window, b, h;
    double scale, keep_scale; /* keep_scale: 1 / (1 - p) */
    uint32_t threshold;
    ps_rng_key key;
    bool causal;
} head_view;

/* Index in q, or dq, of element d at time t. */
static int64_t q_index(const head_view *v, int64_t t, int64_t d)
{
    return (v->b * v->T + t) * v->q_stride + v->h * v->D + d;
}

/* Index in k and v, or dk and dv. */
static int64_t kv_index(const head_view *v, int64_t t, int64_t d)
{
    return (v->b * v->T + t) * v->kv_stride + v->h / (v->H / v->KV) * v->D + d;
}

/* Index in y, or dy, of element d at time t. */
static int64_t y_index(const head_view *v, int64_t t, int64_t d)
{
    return ((v->b * v->T + t) * v->H + v->h) * v->D + d;
}

static bool is_seen(const head_view *v, int64_t i, int64_t j)
{
    if (v->causal && j > i) return false;
    if (v->window > 0 && (i - j >= v->window || j - i >= v->window)) return false;
    return v->mask == NULL || v->mask[v->b * v->T + j] != 0;
}

static double score(const head_view *v, int64_t i, int64_t j)
{
    double sum = 0.0;
    for (int64_t d = 0; d < v->D; d++)
        sum += ps_ref_load(v->dtype, v->q, q_index(v, i, d)) * ps_ref_load(v->dtype, v->k, kv_index(v, j, d));
    return sum * v->scale;
}

/* Dropout factor of probability (i, j): 0 or 1 / (1 - p). */
static double dropout_factor(const head_view *v, int64_t i, int64_t j)
{
    if (v->threshold == 0) return v->keep_scale;
    const uint64_t index = (uint64_t)(((v->b * v->H + v->h) * v->T + i) * v->T + j);
    return ps_rng_u32(v->key, index) >= v->threshold ? v->keep_scale : 0.0;
}

static ps_status attention_fwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_attention_fwd_args *const a = args;
    (void)self;
    *out = (size_t)a->T * sizeof(double);
    return PS_OK;
}

static void attention_fwd_row(const head_view *v, int64_t i, void *y, float *lse, double *p)
{
    double max = -INFINITY, sum = 0.0;
    for (int64_t j = 0; j < v->T; j++) {
        p[j] = is_seen(v, i, j) ? score(v, i, j) : -INFINITY;
        max = fmax(max, p[j]);
    }
    const bool sees_any = max > -INFINITY;
    for (int64_t j = 0; j < v->T; j++) {
        p[j] = sees_any ? exp(p[j] - max) : 0.0;
        sum += p[j];
    }
    for (int64_t j = 0; sees_any && j < v->T; j++) p[j] *= dropout_factor(v, i, j) / sum;
    for (int64_t d = 0; d < v->D; d++) {
        double out = 0.0;
        for (int64_t j = 0; j < v->T; j++)
            if (p[j] != 0.0) out += p[j] * ps_ref_load(v->dtype, v->v, kv_index(v, j, d));
        ps_ref_store(v->dtype, y, y_index(v, i, d), out, false);
    }
    lse[(v->b * v->H + v->h) * v->T + i] = sees_any ? (float)(max + log(sum)) : 0.0f;
}

/* The same of both argument structs, whose common members have the same names. */
#define VIEW_OF(a)                                                                                                     \
    {                                                                                                                  \
        .q = (a)->q, .k = (a)->k, .v = (a)->v, .mask = (a)->mask, .dtype = (a)->dtype, .T = (a)->T, .H = (a)->H,       \
        .KV = (a)->KV, .D = (a)->D, .q_stride = (a)->q_stride, .kv_stride = (a)->kv_stride, .window = (a)->window,     \
        .scale = (double)(a)->scale, .keep_scale = 1.0 / (1.0 - (double)(a)->dropout_p),                               \
        .threshold = ps_dropout_threshold((a)->dropout_p), .key = (a)->dropout_key, .causal = (a)->causal              \
    }

static ps_status attention_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_attention_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    head_view v = VIEW_OF(a);
    for (v.b = 0; v.b < a->B; v.b++)
        for (v.h = 0; v.h < a->H; v.h++)
            for (int64_t i = 0; i < a->T; i++) attention_fwd_row(&v, i, a->y, a->lse, a->workspace);
    return PS_OK;
}

/* Number of unmasked pairs of query and key in one head of one sequence; the batch's mask is unknown here. */
static double attention_pairs(int64_t T, int64_t window, bool causal)
{
    const double t = (double)T, w = window > 0 && window < T ? (double)window : t;
    const double causal_pairs = w * t - 0.5 * w * w; /* a triangle, then a band */
    return causal ? causal_pairs : 2 * causal_pairs;
}

static ps_cost attention(int64_t B, double pairs, int64_t T, int64_t C, double n_gemms, ps_dtype t)
{
    return (ps_cost){.flops = 2 * n_gemms * (double)B * pairs * (double)C,
                     .bytes = (double)(B * T * C) * 2 * n_gemms * (double)ps_dtype_bytes(t)};
}

static ps_cost attention_fwd_cost(const void *args)
{
    const ps_attention_fwd_args *const a = args;
    return attention(a->B, attention_pairs(a->T, a->window, a->causal), a->T, a->H * a->D, 2, a->dtype);
}

static void attention_fwd_uses(const void *args, ps_uses *out)
{
    const ps_attention_fwd_args *const a = args;
    const int64_t q = ps_ref_rows_bytes(a->dtype, a->B * a->T, a->q_stride, a->H * a->D);
    const int64_t kv = ps_ref_rows_bytes(a->dtype, a->B * a->T, a->kv_stride, a->KV * a->D);
    PS_REF_WRITES(y, ps_ref_bytes(a->dtype, a->B * a->T * a->H * a->D));
    PS_REF_WRITES(lse, ps_ref_bytes(PS_DTYPE_F32, a->B * a->H * a->T));
    PS_REF_READS(q, q);
    PS_REF_READS(k, kv);
    PS_REF_READS(v, kv);
    PS_REF_READS(mask, ps_ref_bytes(PS_DTYPE_F32, a->B * a->T));
    PS_REF_WRITES(workspace, out->workspace_bytes);
}

const ps_operator ps_operator_attention_fwd = {
    .reference = {.run = attention_fwd, .workspace_bytes = attention_fwd_bytes},
    .cost = attention_fwd_cost,
    .uses = attention_fwd_uses};

/* Gradients of one query head and of its key and value head, [T, D] each. */
static ps_status attention_bwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_attention_bwd_args *const a = args;
    (void)self;
    *out = 3 * (size_t)(a->T * a->D) * sizeof(double);
    return PS_OK;
}

/* With f the dropout factor and P = exp(score - lse):
 *   dv_j += f P dy_i;  dS = P (f (dy_i . v_j) - dy_i . y_i);  dq_i += scale dS k_j;  dk_j += scale dS q_i */
static void attention_bwd_row(const head_view *v, int64_t i, const ps_attention_bwd_args *a, double *dq, double *dk,
                              double *dv)
{
    const int64_t D = v->D;
    const double lse = (double)a->lse[(v->b * v->H + v->h) * v->T + i];
    double dy_y = 0.0;
    for (int64_t d = 0; d < D; d++)
        dy_y += ps_ref_load(v->dtype, a->dy, y_index(v, i, d)) * ps_ref_load(v->dtype, a->y, y_index(v, i, d));
    for (int64_t j = 0; j < v->T; j++) {
        if (!is_seen(v, i, j)) continue;
        const double p = exp(score(v, i, j) - lse), f = dropout_factor(v, i, j);
        double dy_v = 0.0;
        for (int64_t d = 0; d < D; d++) {
            const double dy = ps_ref_load(v->dtype, a->dy, y_index(v, i, d));
            dy_v += dy * ps_ref_load(v->dtype, v->v, kv_index(v, j, d));
            dv[j * D + d] += f * p * dy;
        }
        const double ds = v->scale * p * (f * dy_v - dy_y);
        for (int64_t d = 0; d < D; d++) {
            dq[i * D + d] += ds * ps_ref_load(v->dtype, v->k, kv_index(v, j, d));
            dk[j * D + d] += ds * ps_ref_load(v->dtype, v->q, q_index(v, i, d));
        }
    }
}

/* The query heads of one key and value head are processed sequentially, so that dk and dv are sums over all of them. */
static ps_status attention_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_attention_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    head_view v = VIEW_OF(a);
    const int64_t n = a->T * a->D;
    double *dq = a->workspace, *dk = dq + n, *dv = dk + n;
    for (v.b = 0; v.b < a->B; v.b++)
        for (v.h = 0; v.h < a->H; v.h++) {
            const bool is_first = v.h % (a->H / a->KV) == 0, is_last = (v.h + 1) % (a->H / a->KV) == 0;
            memset(dq, 0, (size_t)n * sizeof *dq);
            if (is_first) memset(dk, 0, 2 * (size_t)n * sizeof *dk);
            for (int64_t i = 0; i < a->T; i++) attention_bwd_row(&v, i, a, dq, dk, dv);
            for (int64_t i = 0; i < a->T; i++)
                for (int64_t d = 0; d < a->D; d++) {
                    ps_ref_store(a->dtype, a->dq, q_index(&v, i, d), dq[i * a->D + d], false);
                    if (!is_last) continue;
                    ps_ref_store(a->dtype, a->dk, kv_index(&v, i, d), dk[i * a->D + d], false);
                    ps_ref_store(a->dtype, a->dv, kv_index(&v, i, d), dv[i * a->D + d], false);
                }
        }
    return PS_OK;
}

static ps_cost attention_bwd_cost(const void *args)
{
    const ps_attention_bwd_args *const a = args;
    return attention(a->B, attention_pairs(a->T, a->window, a->causal), a->T, a->H * a->D, 5, a->dtype);
}

static void attention_bwd_uses(const void *args, ps_uses *out)
{
    const ps_attention_bwd_args *const a = args;
    const int64_t q = ps_ref_rows_bytes(a->dtype, a->B * a->T, a->q_stride, a->H * a->D);
    const int64_t kv = ps_ref_rows_bytes(a->dtype, a->B * a->T, a->kv_stride, a->KV * a->D);
    const int64_t y = ps_ref_bytes(a->dtype, a->B * a->T * a->H * a->D);
    PS_REF_WRITES(dq, q);
    PS_REF_WRITES(dk, kv);
    PS_REF_WRITES(dv, kv);
    PS_REF_READS(dy, y);
    PS_REF_READS(y, y);
    PS_REF_READS(q, q);
    PS_REF_READS(k, kv);
    PS_REF_READS(v, kv);
    PS_REF_READS(lse, ps_ref_bytes(PS_DTYPE_F32, a->B * a->H * a->T));
    PS_REF_READS(mask, ps_ref_bytes(PS_DTYPE_F32, a->B * a->T));
    PS_REF_WRITES(workspace, out->workspace_bytes);
}

const ps_operator ps_operator_attention_bwd = {
    .reference = {.run = attention_bwd, .workspace_bytes = attention_bwd_bytes},
    .cost = attention_bwd_cost,
    .uses = attention_bwd_uses};
