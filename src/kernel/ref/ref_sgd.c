#include "kernel/ref/ref.h"

/* In float and in a fixed sequence, each operation rounded, without FMA, for the reason in ref_adam.c. */
static ps_status sgd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_sgd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) {
        float w = a->master[i];
        const float g = (ps_dtype_load(a->grad_dtype, a->grad, i) * a->grad_scale) + (a->weight_decay * w);
        float d = g;
        if (a->buffer != NULL) {
            const float m = (a->momentum * a->buffer[i]) + (a->one_minus_dampening * g);
            a->buffer[i] = m;
            d = a->nesterov ? g + (a->momentum * m) : m;
        }
        w = w - (a->lr * d);
        a->master[i] = w;
        ps_dtype_store(a->param_dtype, a->param, i, w);
    }
    return PS_OK;
}

static ps_cost sgd_cost(const void *args)
{
    const ps_sgd_args *const a = args;
    return (ps_cost){.flops = (double)a->n * (a->buffer != NULL ? 9 : 5),
                     .bytes = (double)a->n * ((a->buffer != NULL ? 16 : 8) + (double)(ps_dtype_bytes(a->param_dtype) +
                                                                                      ps_dtype_bytes(a->grad_dtype)))};
}

static void sgd_uses(const void *args, ps_uses *out)
{
    const ps_sgd_args *const a = args;
    PS_REF_WRITES(param, ps_ref_bytes(a->param_dtype, a->n));
    PS_REF_READS(grad, ps_ref_bytes(a->grad_dtype, a->n));
    PS_REF_WRITES(master, ps_ref_bytes(PS_DTYPE_F32, a->n));
    PS_REF_WRITES(buffer, ps_ref_bytes(PS_DTYPE_F32, a->n));
}

const ps_operator ps_operator_sgd = {.reference = {.run = sgd}, .cost = sgd_cost, .uses = sgd_uses};
