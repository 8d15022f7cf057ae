#include "kernel/ref/ref.h"

/* In float and in a fixed sequence, each operation rounded, without FMA, for the reason in ref_adam.c. */
static ps_status lion(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_lion_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    const float decay = a->lr * a->weight_decay;
    for (int64_t i = 0; i < a->n; i++) {
        const float g = ps_dtype_load(a->grad_dtype, a->grad, i) * a->grad_scale, m = a->m[i];
        const float u = (a->beta1 * m) + (a->one_minus_beta1 * g);
        float w = a->master[i];
        w = w - (decay * w);
        w = w - (u > 0 ? a->lr : u < 0 ? -a->lr : 0);
        a->m[i] = (a->beta2 * m) + (a->one_minus_beta2 * g);
        a->master[i] = w;
        ps_dtype_store(a->param_dtype, a->param, i, w);
    }
    return PS_OK;
}

static ps_cost lion_cost(const void *args)
{
    const ps_lion_args *const a = args;
    return (ps_cost){.flops = (double)a->n * 10,
                     .bytes = (double)a->n *
                              (16 + (double)(ps_dtype_bytes(a->param_dtype) + ps_dtype_bytes(a->grad_dtype)))};
}

static void lion_uses(const void *args, ps_uses *out)
{
    const ps_lion_args *const a = args;
    PS_REF_WRITES(param, ps_ref_bytes(a->param_dtype, a->n));
    PS_REF_READS(grad, ps_ref_bytes(a->grad_dtype, a->n));
    PS_REF_WRITES(master, ps_ref_bytes(PS_DTYPE_F32, a->n));
    PS_REF_WRITES(m, ps_ref_bytes(PS_DTYPE_F32, a->n));
}

const ps_operator ps_operator_lion = {.reference = {.run = lion}, .cost = lion_cost, .uses = lion_uses};
