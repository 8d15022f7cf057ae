#include "kernel/ref/ref.h"

#include <math.h>

/* Unlike other references this one computes in float, in a fixed sequence: master, m and v are floats from step to
 * step, so two backends agree over a training run only if they round at the same places. Every line below is one or
 * more IEEE operations (+ - * / sqrt), each rounded, without FMA, available in each instruction set:
 *   step = lr / bias1, shrink = 1 / sqrt(bias2), decay = lr weight_decay  once;
 * then per element, left to right as bracketed. Folding the bias corrections into step and shrink saves two divisions
 * per element (so does torch.optim.Adam). */
static ps_status adam(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_adam_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    const float step = a->lr / a->bias1, shrink = 1.0f / sqrtf(a->bias2), decay = a->lr * a->weight_decay;
    for (int64_t i = 0; i < a->n; i++) {
        float w = a->master[i];
        float g = ps_dtype_load(a->grad_dtype, a->grad, i) * a->grad_scale;
        if (a->decoupled_decay)
            w = w - (decay * w);
        else
            g = g + (a->weight_decay * w);
        const float m = (a->beta1 * a->m[i]) + (a->one_minus_beta1 * g);
        const float v = (a->beta2 * a->v[i]) + (a->one_minus_beta2 * (g * g));
        w = w - ((step * m) / ((sqrtf(v) * shrink) + a->eps));
        a->m[i] = m;
        a->v[i] = v;
        a->master[i] = w;
        ps_dtype_store(a->param_dtype, a->param, i, w);
    }
    return PS_OK;
}

static ps_cost adam_cost(const void *args)
{
    const ps_adam_args *const a = args;
    return (ps_cost){.flops = (double)a->n * 14,
                     .bytes = (double)a->n *
                              (24 + (double)(ps_dtype_bytes(a->param_dtype) + ps_dtype_bytes(a->grad_dtype)))};
}

static void adam_uses(const void *args, ps_uses *out)
{
    const ps_adam_args *const a = args;
    PS_REF_WRITES(param, ps_ref_bytes(a->param_dtype, a->n));
    PS_REF_READS(grad, ps_ref_bytes(a->grad_dtype, a->n));
    PS_REF_WRITES(master, ps_ref_bytes(PS_DTYPE_F32, a->n));
    PS_REF_WRITES(m, ps_ref_bytes(PS_DTYPE_F32, a->n));
    PS_REF_WRITES(v, ps_ref_bytes(PS_DTYPE_F32, a->n));
}

const ps_operator ps_operator_adam = {.reference = {.run = adam}, .cost = adam_cost, .uses = adam_uses};
