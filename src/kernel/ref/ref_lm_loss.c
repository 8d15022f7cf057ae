/* Language-model head and cross-entropy. */
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

/* Rounded to float as kept logits are, so that recomputed logits are equal. */
static float logit(ps_dtype dtype, const void *x, const void *w, const void *b, int64_t r, int64_t token, int64_t C)
{
    double sum = b == NULL ? 0.0 : ps_ref_load(dtype, b, token);
    for (int64_t c = 0; c < C; c++) sum += ps_ref_load(dtype, x, r * C + c) * ps_ref_load(dtype, w, token * C + c);
    return (float)sum;
}

static double class_weight(const ps_loss_terms *t, int64_t class)
{
    return t->class_weights == NULL ? 1.0 : (double)t->class_weights[class];
}

/* weighted: the sum of u logits, with label smoothing. */
static double row_loss(const ps_lm_loss_fwd_args *a, int64_t r, double lse, double at_target, double weighted)
{
    const ps_loss_terms *const t = &a->terms;
    const double u = class_weight(t, a->targets[r]), e = (double)t->smoothing;
    const double smooth = e > 0 ? e * ((double)t->mean_weight * lse - weighted / (double)a->V) : 0.0;
    return (1.0 - e) * u * (lse - at_target) + smooth + (double)t->z_loss * u * lse * lse;
}

/* A slice of the vocabulary is one token here. The running maximum keeps exp in range: sum counts in units of
 * exp(max) (Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018). */
static ps_status lm_loss_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_lm_loss_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t r = 0; r < a->rows; r++) {
        double max = -INFINITY, sum = 0.0, at_target = 0.0, weighted = 0.0;
        int64_t best = 0;
        for (int64_t token = 0; token < a->V; token++) {
            const float kept = logit(a->dtype, a->x, a->w, a->b, r, token, a->C);
            if (a->keeps_logits) a->logits[r * a->V + token] = kept;
            const double z = (double)kept;
            const double new_max = fmax(max, z);
            if (z > max) best = token;
            sum = sum * exp(max - new_max) + exp(z - new_max);
            max = new_max;
            if (token == a->targets[r]) at_target = z;
            if (a->terms.smoothing > 0) weighted += class_weight(&a->terms, token) * z;
        }
        const double lse = max + log(sum);
        a->lse[r] = (float)lse;
        if (a->predicted != NULL) a->predicted[r] = (int32_t)best;
        a->row_loss[r] = a->targets[r] == PS_IGNORE_INDEX ? 0.0f : (float)row_loss(a, r, lse, at_target, weighted);
    }
    return PS_OK;
}

/* Kept logits are written once, and read once. */
static double kept_logits_bytes(bool keeps_logits, int64_t rows, int64_t V)
{
    return keeps_logits ? (double)ps_lm_logits_count(rows, V) * sizeof(float) : 0;
}

static ps_cost lm_loss_fwd_cost(const void *args)
{
    const ps_lm_loss_fwd_args *const a = args;
    ps_cost c = ps_cost_of_gemm(a->rows, a->V, a->C, a->dtype);
    c.bytes += kept_logits_bytes(a->keeps_logits, a->rows, a->V);
    return c;
}

static void lm_loss_fwd_uses(const void *args, ps_uses *out)
{
    const ps_lm_loss_fwd_args *const a = args;
    PS_REF_WRITES(row_loss, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    PS_REF_WRITES(lse, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    PS_REF_WRITES(predicted, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    if (a->keeps_logits) PS_REF_WRITES(logits, ps_ref_bytes(PS_DTYPE_F32, ps_lm_logits_count(a->rows, a->V)));
    PS_REF_READS(x, ps_ref_bytes(a->dtype, a->rows * a->C));
    PS_REF_READS(w, ps_ref_bytes(a->dtype, a->V * a->C));
    PS_REF_READS(b, ps_ref_bytes(a->dtype, a->V));
    PS_REF_READS(targets, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    PS_REF_READS(terms.class_weights, ps_ref_bytes(PS_DTYPE_F32, a->V));
    PS_REF_WRITES(workspace, out->workspace_bytes);
}

const ps_operator ps_operator_lm_loss_fwd = {
    .reference = {.run = lm_loss_fwd}, .cost = lm_loss_fwd_cost, .uses = lm_loss_fwd_uses};

/* dx of all rows, and the gradient of one column of logits. */
static ps_status lm_loss_bwd_bytes(ps_backend *self, const void *args, size_t *out)
{
    const ps_lm_loss_bwd_args *const a = args;
    (void)self;
    *out = (size_t)(a->rows * (a->C + 1)) * sizeof(double);
    return PS_OK;
}

/* For a row that is not ignored; p is the probability of the token. */
static double logit_gradient(const ps_lm_loss_bwd_args *a, int64_t r, int64_t token, double p)
{
    const ps_loss_terms *const t = &a->terms;
    const double u = class_weight(t, a->targets[r]), e = (double)t->smoothing;
    const double of_p = (1.0 - e) * u + e * (double)t->mean_weight + 2.0 * (double)t->z_loss * u * (double)a->lse[r];
    const double of_target = token == a->targets[r] ? (1.0 - e) * u : 0.0;
    return (of_p * p - of_target - e * class_weight(t, token) / (double)a->V) * (double)a->scale;
}

/* Token by token: row `token` of w is read for the last time before the same row of dw, which may overwrite it, is
 * written. */
static ps_status lm_loss_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_lm_loss_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    double *dx = a->workspace, *dlogit = dx + a->rows * a->C;
    memset(dx, 0, (size_t)(a->rows * a->C) * sizeof *dx);
    for (int64_t token = 0; token < a->V; token++) {
        for (int64_t r = 0; r < a->rows; r++) {
            const float z =
                a->keeps_logits ? a->logits[r * a->V + token] : logit(a->dtype, a->x, a->w, a->b, r, token, a->C);
            const double p = exp((double)z - (double)a->lse[r]);
            dlogit[r] =
                a->targets[r] == PS_IGNORE_INDEX ? 0.0 : ps_ref_rounded(a->dtype, logit_gradient(a, r, token, p));
            for (int64_t c = 0; !a->skips_dx && c < a->C; c++)
                dx[r * a->C + c] += dlogit[r] * ps_ref_load(a->dtype, a->w, token * a->C + c);
        }
        for (int64_t c = 0; !a->skips_dw && c < a->C; c++) {
            double sum = 0.0;
            for (int64_t r = 0; r < a->rows; r++) sum += dlogit[r] * ps_ref_load(a->dtype, a->x, r * a->C + c);
            ps_ref_store(a->grad_dtype, a->dw, token * a->C + c, sum, a->accumulate_grad);
        }
        double sum = 0.0;
        for (int64_t r = 0; r < a->rows; r++) sum += dlogit[r];
        if (a->db != NULL) ps_ref_store(a->grad_dtype, a->db, token, sum, a->accumulate_grad);
    }
    for (int64_t i = 0; !a->skips_dx && i < a->rows * a->C; i++) ps_ref_store(a->dtype, a->dx, i, dx[i], false);
    return PS_OK;
}

/* logits again when they are not kept, dx, dw */
static ps_cost lm_loss_bwd_cost(const void *args)
{
    const ps_lm_loss_bwd_args *const a = args;
    const double n_gemms = !a->keeps_logits + !a->skips_dx + !a->skips_dw;
    ps_cost c = ps_cost_of_gemm(a->rows, a->V, a->C, a->dtype);
    c.flops *= n_gemms, c.bytes *= n_gemms;
    c.bytes += kept_logits_bytes(a->keeps_logits, a->rows, a->V);
    return c;
}

static void lm_loss_bwd_uses(const void *args, ps_uses *out)
{
    const ps_lm_loss_bwd_args *const a = args;
    if (!a->skips_dx) PS_REF_WRITES(dx, ps_ref_bytes(a->dtype, a->rows * a->C));
    if (!a->skips_dw) PS_REF_WRITES(dw, ps_ref_bytes(a->grad_dtype, a->V * a->C));
    PS_REF_WRITES(db, ps_ref_bytes(a->grad_dtype, a->V));
    PS_REF_READS(x, ps_ref_bytes(a->dtype, a->rows * a->C));
    PS_REF_READS(w, ps_ref_bytes(a->dtype, a->V * a->C));
    PS_REF_READS(b, ps_ref_bytes(a->dtype, a->V));
    PS_REF_READS(lse, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    if (a->keeps_logits) PS_REF_READS(logits, ps_ref_bytes(PS_DTYPE_F32, ps_lm_logits_count(a->rows, a->V)));
    PS_REF_READS(targets, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    PS_REF_READS(terms.class_weights, ps_ref_bytes(PS_DTYPE_F32, a->V));
    PS_REF_WRITES(workspace, out->workspace_bytes);
}

const ps_operator ps_operator_lm_loss_bwd = {.reference = {.run = lm_loss_bwd, .workspace_bytes = lm_loss_bwd_bytes},
                                             .cost = lm_loss_bwd_cost,
                                             .uses = lm_loss_bwd_uses};
