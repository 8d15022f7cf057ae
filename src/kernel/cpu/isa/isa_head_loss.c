/* Losses of heads with few outputs: elementwise, or over the positions of a sequence, summed in double in their order.
 * Too little work for several threads. */
#include "kernel/cpu/cpu_vec.h"

#include <math.h>

/* log(1 + x) for x in [0, 1], by the correction of Higham, "Accuracy and Stability of Numerical Algorithms", 1.14.1:
 * what is lost in 1 + x is lost in its difference from 1, too. */
static float head_log_1_plus(float x)
{
    const float u = 1.0f + x;
    return u == 1.0f ? x : vf_log_of(u) * (x / (u - 1.0f));
}

static float head_values_loss(ps_values_loss_kind kind, float z, float t)
{
    if (kind == PS_VALUES_SQUARED) return (z - t) * (z - t);
    return (z > 0.0f ? z : 0.0f) - z * t + head_log_1_plus(vf_exp_of(-fabsf(z)));
}

static ps_status values_loss_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_values_loss_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) {
        a->loss[i] = isnan(a->values[i]) ? 0.0f : head_values_loss(a->kind, a->z[i], a->values[i]);
        a->predicted[i] = a->kind == PS_VALUES_SQUARED ? -1 : a->z[i] > 0.0f;
    }
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(values_loss_fwd) = {.run = values_loss_fwd};

static ps_status values_loss_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_values_loss_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) {
        const float z = a->z[i], t = a->values[i];
        const float d = a->kind == PS_VALUES_SQUARED ? 2.0f * (z - t) : 1.0f / (1.0f + vf_exp_of(-z)) - t;
        ps_dtype_store(a->dtype, a->dz, i, isnan(t) ? 0.0f : d * a->scale);
    }
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(values_loss_bwd) = {.run = values_loss_bwd};

/* For a column of T numbers at stride 2: the largest, its position, and the sum of exp(z - largest). */
static float head_column(const float *z, int64_t T, int64_t *best, double *sum)
{
    *best = 0;
    for (int64_t t = 1; t < T; t++)
        if (z[t * 2] > z[*best * 2]) *best = t;
    const float max = z[*best * 2];
    *sum = 0.0;
    for (int64_t t = 0; t < T; t++) *sum += (double)vf_exp_of(z[t * 2] - max);
    return max;
}

static ps_status span_loss_fwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_span_loss_fwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->B * 2; i++) {
        const float *const z = a->z + i / 2 * a->T * 2 + i % 2;
        int64_t best;
        double sum;
        const float max = head_column(z, a->T, &best, &sum);
        a->predicted[i] = (int32_t)best;
        a->loss[i] = 0.0f;
        if (a->targets[i] != PS_IGNORE_INDEX)
            a->loss[i] = a->weight[i % 2] * ((max - z[(int64_t)a->targets[i] * 2]) + vf_log_of((float)sum));
    }
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(span_loss_fwd) = {.run = span_loss_fwd};

static ps_status span_loss_bwd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_span_loss_bwd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->B * 2; i++) {
        const int64_t first = i / 2 * a->T * 2 + i % 2;
        const bool counts = a->targets[i] != PS_IGNORE_INDEX;
        int64_t best;
        double sum;
        const float max = head_column(a->z + first, a->T, &best, &sum), share = 1.0f / (float)sum;
        for (int64_t t = 0; t < a->T; t++) {
            const float p = vf_exp_of(a->z[first + t * 2] - max) * share;
            const float d = (p - (t == a->targets[i] ? 1.0f : 0.0f)) * a->scale[i % 2];
            ps_dtype_store(a->dtype, a->dz, first + t * 2, counts ? d : 0.0f);
        }
    }
    return PS_OK;
}

const ps_kernel PS_CPU_NAME(span_loss_bwd) = {.run = span_loss_bwd};
