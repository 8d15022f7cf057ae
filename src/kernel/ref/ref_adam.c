#include "kernel/ref/ref.h"

#include <math.h>

#include "base/compact.h"
#include "base/split.h"
#include "base/stochastic.h"

static uint32_t word_of(const ps_adam_args *a, int64_t i)
{
    return ps_rng_u32(a->key, (uint64_t)(a->first + i));
}

static float master_load(const ps_adam_args *a, int64_t i)
{
    if (a->is_stochastic) return ps_dtype_load(PS_DTYPE_BF16, a->param, i);
    return a->low == NULL ? a->master[i] : ps_split_join(((const uint16_t *)a->param)[i], a->low[i]);
}

static void master_store(const ps_adam_args *a, int64_t i, float w)
{
    if (a->is_stochastic) w = ps_stochastic_round(w, PS_STOCHASTIC_PARAM(word_of(a, i)));
    if (a->master != NULL) a->master[i] = w;
    if (a->low != NULL) a->low[i] = ps_split_low(w);
    ps_dtype_store(a->param_dtype, a->param, i, w);
}

/* Unlike other references this one computes in float, in a fixed sequence: master, m and v are floats from step to
 * step, so two backends agree over a training run only if they round at the same places. Every line below is one or
 * more IEEE operations (+ - * / sqrt), each rounded, without FMA, available in each instruction set:
 *   step = lr / bias1, shrink = 1 / sqrt(bias2), decay = lr weight_decay  once;
 * then per element, left to right as bracketed. Folding the bias corrections into step and shrink saves two divisions
 * per element (so does torch.optim.Adam). m and v: [n], from element `first` on. */
static void update(const ps_adam_args *a, int64_t first, int64_t n, float *m, float *v)
{
    const float step = a->lr / a->bias1, shrink = 1.0f / sqrtf(a->bias2), decay = a->lr * a->weight_decay;
    for (int64_t j = 0; j < n; j++) {
        const int64_t i = first + j;
        float w = master_load(a, i);
        float g = ps_dtype_load(a->grad_dtype, a->grad, i) * a->grad_scale;
        if (a->decoupled_decay)
            w = w - (decay * w);
        else
            g = g + (a->weight_decay * w);
        m[j] = (a->beta1 * m[j]) + (a->one_minus_beta1 * g);
        v[j] = (a->beta2 * v[j]) + (a->one_minus_beta2 * (g * g));
        w = w - ((step * m[j]) / ((sqrtf(v[j]) * shrink) + a->eps));
        master_store(a, i, w);
    }
}

static void update_group(const ps_adam_args *a, int64_t first, ps_compact_group *group_m, ps_compact_group *group_v)
{
    const int64_t n = ps_min_i64(PS_FORMAT_GROUP, a->n - first);
    float m[PS_FORMAT_GROUP], v[PS_FORMAT_GROUP];
    ps_format_decode(PS_FORMAT_SIGNED, group_m, 0, m, n);
    ps_format_decode(PS_FORMAT_ROOT, group_v, 0, v, n);
    update(a, first, n, m, v);
    ps_compact_set(PS_FORMAT_SIGNED, group_m, m, n);
    ps_compact_set(PS_FORMAT_ROOT, group_v, v, n);
}

static void update_stochastic(const ps_adam_args *a, int64_t i)
{
    const uint32_t word = word_of(a, i);
    float m = ps_dtype_load(PS_DTYPE_BF16, a->m, i), v = ps_dtype_load(PS_DTYPE_BF16, a->v, i);
    update(a, i, 1, &m, &v);
    ps_dtype_store(PS_DTYPE_BF16, a->m, i, ps_stochastic_round(m, PS_STOCHASTIC_MOMENTUM(word)));
    ps_dtype_store(PS_DTYPE_BF16, a->v, i, ps_stochastic_round(v, PS_STOCHASTIC_VARIANCE(word)));
}

static ps_status adam(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_adam_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    if (a->is_stochastic)
        for (int64_t i = 0; i < a->n; i++) update_stochastic(a, i);
    else if (!a->is_compact)
        update(a, 0, a->n, a->m, a->v);
    else
        for (int64_t i = 0; i < a->n; i += PS_FORMAT_GROUP)
            update_group(a, i, (ps_compact_group *)a->m + i / PS_FORMAT_GROUP,
                         (ps_compact_group *)a->v + i / PS_FORMAT_GROUP);
    return PS_OK;
}

/* Of m or v. */
static int64_t state_bytes(const ps_adam_args *a)
{
    const ps_format f = a->is_stochastic ? PS_FORMAT_BF16 : a->is_compact ? PS_FORMAT_SIGNED : PS_FORMAT_F32;
    return ps_format_bytes(f, a->n);
}

/* In and out, beside a parameter that is written. */
static int master_bytes(const ps_adam_args *a)
{
    const int param = (int)ps_dtype_bytes(PS_DTYPE_BF16);
    return a->is_stochastic ? param : a->low != NULL ? 2 * (int)sizeof *a->low + param : 2 * (int)sizeof *a->master;
}

static ps_cost adam_cost(const void *args)
{
    const ps_adam_args *const a = args;
    const int flops = a->is_compact ? 30 : a->is_stochastic ? 24 : 14;
    const size_t bytes = (size_t)master_bytes(a) + ps_dtype_bytes(a->param_dtype) + ps_dtype_bytes(a->grad_dtype);
    return (ps_cost){.flops = (double)a->n * flops, .bytes = (double)a->n * (double)bytes + 4 * (double)state_bytes(a)};
}

static void adam_uses(const void *args, ps_uses *out)
{
    const ps_adam_args *const a = args;
    PS_REF_WRITES(param, ps_ref_bytes(a->param_dtype, a->n));
    PS_REF_READS(grad, ps_ref_bytes(a->grad_dtype, a->n));
    if (a->master != NULL) PS_REF_WRITES(master, ps_ref_bytes(PS_DTYPE_F32, a->n));
    if (a->low != NULL) PS_REF_WRITES(low, ps_ref_bytes(PS_DTYPE_BF16, a->n));
    PS_REF_WRITES(m, state_bytes(a));
    PS_REF_WRITES(v, state_bytes(a));
}

const ps_operator ps_operator_adam = {.reference = {.run = adam}, .cost = adam_cost, .uses = adam_uses};
