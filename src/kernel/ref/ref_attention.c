#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

enum { PART_Q, PART_K, PART_V };

/* Forward and backward read the same inputs: one head of one sequence of the batch. */
typedef struct head_view {
    const void *qkv;
    ps_dtype dtype;
    int64_t T, H, D, b, h;
    double scale, keep_scale; /* keep_scale: 1 / (1 - p) */
    uint32_t threshold;
    ps_rng_key key;
    bool causal;
} head_view;

/* Index in qkv, or dqkv, of element d of the query, key or value at time t. */
static int64_t qkv_index(const head_view *v, int64_t t, int part, int64_t d)
{
    return (((v->b * v->T + t) * 3 + part) * v->H + v->h) * v->D + d;
}

/* Index in y, or dy, of element d at time t. */
static int64_t y_index(const head_view *v, int64_t t, int64_t d)
{
    return ((v->b * v->T + t) * v->H + v->h) * v->D + d;
}

/* How many keys query i sees. */
static int64_t n_keys(const head_view *v, int64_t i)
{
    return v->causal ? i + 1 : v->T;
}

static double score(const head_view *v, int64_t i, int64_t j)
{
    double sum = 0.0;
    for (int64_t d = 0; d < v->D; d++)
        sum += ps_ref_load(v->dtype, v->qkv, qkv_index(v, i, PART_Q, d)) *
               ps_ref_load(v->dtype, v->qkv, qkv_index(v, j, PART_K, d));
    return sum * v->scale;
}

/* What dropout multiplies probability (i, j) with: 0 or 1 / (1 - p). */
static double dropout_factor(const head_view *v, int64_t i, int64_t j)
{
    if (v->threshold == 0) return v->keep_scale;
    const uint64_t index = (uint64_t)(((v->b * v->H + v->h) * v->T + i) * v->T + j);
    return ps_rng_u32(v->key, index) >= v->threshold ? v->keep_scale : 0.0;
}

size_t ps_ref_attention_fwd_bytes(const ps_attention_fwd_args *a)
{
    return (size_t)a->T * sizeof(double);
}

static void attention_fwd_row(const head_view *v, int64_t i, void *y, float *lse, double *p)
{
    const int64_t n = n_keys(v, i);
    double max = -INFINITY, sum = 0.0;
    for (int64_t j = 0; j < n; j++) {
        p[j] = score(v, i, j);
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j < n; j++) {
        p[j] = exp(p[j] - max);
        sum += p[j];
    }
    for (int64_t j = 0; j < n; j++) p[j] *= dropout_factor(v, i, j) / sum;
    for (int64_t d = 0; d < v->D; d++) {
        double out = 0.0;
        for (int64_t j = 0; j < n; j++) out += p[j] * ps_ref_load(v->dtype, v->qkv, qkv_index(v, j, PART_V, d));
        ps_ref_store(v->dtype, y, y_index(v, i, d), out, false);
    }
    lse[(v->b * v->H + v->h) * v->T + i] = (float)(max + log(sum));
}

ps_status ps_ref_attention_fwd(ps_stream *s, const ps_attention_fwd_args *a)
{
    (void)s;
    head_view v = {.qkv = a->qkv,
                   .dtype = a->dtype,
                   .T = a->T,
                   .H = a->H,
                   .D = a->D,
                   .scale = (double)a->scale,
                   .keep_scale = 1.0 / (1.0 - (double)a->dropout_p),
                   .threshold = ps_dropout_threshold(a->dropout_p),
                   .key = a->dropout_key,
                   .causal = a->causal};
    for (v.b = 0; v.b < a->B; v.b++)
        for (v.h = 0; v.h < a->H; v.h++)
            for (int64_t i = 0; i < a->T; i++) attention_fwd_row(&v, i, a->y, a->lse, a->workspace);
    return PS_OK;
}

/* Gradients of one head, [T, D] each. */
size_t ps_ref_attention_bwd_bytes(const ps_attention_bwd_args *a)
{
    return 3 * (size_t)(a->T * a->D) * sizeof(double);
}

/* With f the dropout factor and P = exp(score - lse):
 *   dv_j += f P dy_i;  dS = P (f (dy_i . v_j) - dy_i . y_i);  dq_i += scale dS k_j;  dk_j += scale dS q_i */
static void attention_bwd_row(const head_view *v, int64_t i, const ps_attention_bwd_args *a, double *grad[3])
{
    const int64_t D = v->D;
    const double lse = (double)a->lse[(v->b * v->H + v->h) * v->T + i];
    double dy_y = 0.0;
    for (int64_t d = 0; d < D; d++)
        dy_y += ps_ref_load(v->dtype, a->dy, y_index(v, i, d)) * ps_ref_load(v->dtype, a->y, y_index(v, i, d));
    for (int64_t j = 0; j < n_keys(v, i); j++) {
        const double p = exp(score(v, i, j) - lse), f = dropout_factor(v, i, j);
        double dy_v = 0.0;
        for (int64_t d = 0; d < D; d++) {
            const double dy = ps_ref_load(v->dtype, a->dy, y_index(v, i, d));
            dy_v += dy * ps_ref_load(v->dtype, v->qkv, qkv_index(v, j, PART_V, d));
            grad[PART_V][j * D + d] += f * p * dy;
        }
        const double ds = v->scale * p * (f * dy_v - dy_y);
        for (int64_t d = 0; d < D; d++) {
            grad[PART_Q][i * D + d] += ds * ps_ref_load(v->dtype, v->qkv, qkv_index(v, j, PART_K, d));
            grad[PART_K][j * D + d] += ds * ps_ref_load(v->dtype, v->qkv, qkv_index(v, i, PART_Q, d));
        }
    }
}

ps_status ps_ref_attention_bwd(ps_stream *s, const ps_attention_bwd_args *a)
{
    (void)s;
    head_view v = {.qkv = a->qkv,
                   .dtype = a->dtype,
                   .T = a->T,
                   .H = a->H,
                   .D = a->D,
                   .scale = (double)a->scale,
                   .keep_scale = 1.0 / (1.0 - (double)a->dropout_p),
                   .threshold = ps_dropout_threshold(a->dropout_p),
                   .key = a->dropout_key,
                   .causal = a->causal};
    double *all = a->workspace;
    double *grad[3] = {all, all + a->T * a->D, all + 2 * a->T * a->D};
    for (v.b = 0; v.b < a->B; v.b++) {
        for (v.h = 0; v.h < a->H; v.h++) {
            memset(all, 0, ps_ref_attention_bwd_bytes(a));
            for (int64_t i = 0; i < a->T; i++) attention_bwd_row(&v, i, a, grad);
            for (int part = PART_Q; part <= PART_V; part++)
                for (int64_t i = 0; i < a->T; i++)
                    for (int64_t d = 0; d < a->D; d++)
                        ps_ref_store(a->dtype, a->dqkv, qkv_index(&v, i, part, d), grad[part][i * a->D + d], false);
        }
    }
    return PS_OK;
}
