/* Losses of heads with few outputs, from computed logits: values, and text spans; and the sums of losses. */
#include <math.h>

#include "kernel/ref/ref.h"

/* ---- values ---- */

static ps_status values_loss_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_values_loss_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) {
        const double z = (double)a->z[i], t = (double)a->values[i];
        const double loss =
            a->kind == PS_VALUES_SQUARED ? (z - t) * (z - t) : fmax(z, 0.0) - z * t + log1p(exp(-fabs(z)));
        a->loss[i] = isnan(t) ? 0.0f : (float)loss;
        a->predicted[i] = a->kind == PS_VALUES_SQUARED ? -1 : z > 0.0;
    }
    return PS_OK;
}

static ps_cost values_loss_fwd_cost(const void *args)
{
    const ps_values_loss_fwd_args *const a = args;
    return ps_cost_of_stream(a->n, 4, 4, PS_DTYPE_F32);
}

static void values_loss_fwd_uses(const void *args, ps_uses *out)
{
    const ps_values_loss_fwd_args *const a = args;
    PS_REF_WRITES(loss, ps_ref_bytes(PS_DTYPE_F32, a->n));
    PS_REF_WRITES(predicted, ps_ref_bytes(PS_DTYPE_F32, a->n));
    PS_REF_READS(z, ps_ref_bytes(PS_DTYPE_F32, a->n));
    PS_REF_READS(values, ps_ref_bytes(PS_DTYPE_F32, a->n));
}

const ps_operator ps_operator_values_loss_fwd = {
    .reference = {.run = values_loss_fwd}, .cost = values_loss_fwd_cost, .uses = values_loss_fwd_uses};

static ps_status values_loss_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_values_loss_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) {
        const double z = (double)a->z[i], t = (double)a->values[i];
        const double d = a->kind == PS_VALUES_SQUARED ? 2.0 * (z - t) : 1.0 / (1.0 + exp(-z)) - t;
        ps_ref_store(a->dtype, a->dz, i, isnan(t) ? 0.0 : d * (double)a->scale, false);
    }
    return PS_OK;
}

static ps_cost values_loss_bwd_cost(const void *args)
{
    const ps_values_loss_bwd_args *const a = args;
    return ps_cost_of_stream(a->n, 3, 4, PS_DTYPE_F32);
}

static void values_loss_bwd_uses(const void *args, ps_uses *out)
{
    const ps_values_loss_bwd_args *const a = args;
    PS_REF_WRITES(dz, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(z, ps_ref_bytes(PS_DTYPE_F32, a->n));
    PS_REF_READS(values, ps_ref_bytes(PS_DTYPE_F32, a->n));
}

const ps_operator ps_operator_values_loss_bwd = {
    .reference = {.run = values_loss_bwd}, .cost = values_loss_bwd_cost, .uses = values_loss_bwd_uses};

/* ---- spans ---- */

/* For column k of sequence b: log sum exp, and the position of the largest. */
static double column_lse(const float *z, int64_t T, int64_t b, int k, int64_t *best)
{
    const float *const column = z + b * T * 2 + k;
    double sum = 0.0;
    *best = 0;
    for (int64_t t = 1; t < T; t++)
        if (column[t * 2] > column[*best * 2]) *best = t;
    const double max = (double)column[*best * 2];
    for (int64_t t = 0; t < T; t++) sum += exp((double)column[t * 2] - max);
    return max + log(sum);
}

static ps_status span_loss_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_span_loss_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t b = 0; b < a->B; b++)
        for (int k = 0; k < 2; k++) {
            const int32_t target = a->targets[b * 2 + k];
            int64_t best;
            const double lse = column_lse(a->z, a->T, b, k, &best);
            a->predicted[b * 2 + k] = (int32_t)best;
            a->loss[b * 2 + k] =
                target == PS_IGNORE_INDEX
                    ? 0.0f
                    : (float)((double)a->weight[k] * (lse - (double)a->z[(b * a->T + target) * 2 + k]));
        }
    return PS_OK;
}

static ps_cost span_loss_fwd_cost(const void *args)
{
    const ps_span_loss_fwd_args *const a = args;
    return ps_cost_of_stream(a->B * a->T * 2, 1, 4, PS_DTYPE_F32);
}

static void span_loss_fwd_uses(const void *args, ps_uses *out)
{
    const ps_span_loss_fwd_args *const a = args;
    PS_REF_WRITES(loss, ps_ref_bytes(PS_DTYPE_F32, a->B * 2));
    PS_REF_WRITES(predicted, ps_ref_bytes(PS_DTYPE_F32, a->B * 2));
    PS_REF_READS(z, ps_ref_bytes(PS_DTYPE_F32, a->B * a->T * 2));
    PS_REF_READS(targets, ps_ref_bytes(PS_DTYPE_F32, a->B * 2));
}

const ps_operator ps_operator_span_loss_fwd = {
    .reference = {.run = span_loss_fwd}, .cost = span_loss_fwd_cost, .uses = span_loss_fwd_uses};

static ps_status span_loss_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_span_loss_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t b = 0; b < a->B; b++)
        for (int k = 0; k < 2; k++) {
            const int32_t target = a->targets[b * 2 + k];
            int64_t best;
            const double lse = column_lse(a->z, a->T, b, k, &best);
            for (int64_t t = 0; t < a->T; t++) {
                const int64_t at = (b * a->T + t) * 2 + k;
                const double d = (exp((double)a->z[at] - lse) - (t == target ? 1.0 : 0.0)) * (double)a->scale[k];
                ps_ref_store(a->dtype, a->dz, at, target == PS_IGNORE_INDEX ? 0.0 : d, false);
            }
        }
    return PS_OK;
}

static ps_cost span_loss_bwd_cost(const void *args)
{
    const ps_span_loss_bwd_args *const a = args;
    return ps_cost_of_stream(a->B * a->T * 2, 3, 8, PS_DTYPE_F32);
}

static void span_loss_bwd_uses(const void *args, ps_uses *out)
{
    const ps_span_loss_bwd_args *const a = args;
    PS_REF_WRITES(dz, ps_ref_bytes(a->dtype, a->B * a->T * 2));
    PS_REF_READS(z, ps_ref_bytes(PS_DTYPE_F32, a->B * a->T * 2));
    PS_REF_READS(targets, ps_ref_bytes(PS_DTYPE_F32, a->B * 2));
}

const ps_operator ps_operator_span_loss_bwd = {
    .reference = {.run = span_loss_bwd}, .cost = span_loss_bwd_cost, .uses = span_loss_bwd_uses};

/* ---- sums of losses ---- */

static ps_status loss_sums(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_loss_sums_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    ps_loss_sums s = {0};
    for (int64_t r = 0; r < a->rows; r++) {
        const bool has_value = a->values != NULL;
        if (has_value ? isnan(a->values[r]) : a->targets[r] == PS_IGNORE_INDEX) continue;
        s.loss += (double)a->row_loss[r];
        s.weight += a->class_weights != NULL ? (double)a->class_weights[a->targets[r]] : 1.0;
        s.n_targets++;
        s.n_correct += a->predicted[r] == (has_value ? a->values[r] > 0.5f : a->targets[r]);
    }
    *a->sums = s;
    return PS_OK;
}

static ps_cost loss_sums_cost(const void *args)
{
    const ps_loss_sums_args *const a = args;
    return ps_cost_of_stream(a->rows, 3, 3, PS_DTYPE_F32);
}

static void loss_sums_uses(const void *args, ps_uses *out)
{
    const ps_loss_sums_args *const a = args;
    PS_REF_WRITES(sums, sizeof *a->sums);
    PS_REF_READS(row_loss, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    PS_REF_READS(targets, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    PS_REF_READS(values, ps_ref_bytes(PS_DTYPE_F32, a->rows));
    PS_REF_READS(class_weights, ps_ref_bytes(PS_DTYPE_F32, a->n_classes));
    PS_REF_READS(predicted, ps_ref_bytes(PS_DTYPE_F32, a->rows));
}

const ps_operator ps_operator_loss_sums = {
    .reference = {.run = loss_sums}, .cost = loss_sums_cost, .uses = loss_sums_uses};
