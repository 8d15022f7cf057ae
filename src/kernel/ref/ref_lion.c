#include "kernel/ref/ref.h"

/* In float and in a fixed sequence, each operation rounded, without FMA, for the reason in ref_adam.c. m: [n], from
 * element `first` on. */
static void update(const void *args, int64_t first, int64_t n, float *m)
{
    const ps_lion_args *const a = args;
    const float decay = a->lr * a->weight_decay;
    for (int64_t j = 0; j < n; j++) {
        const int64_t i = first + j;
        const float g = ps_dtype_load(a->grad_dtype, a->grad, i) * a->grad_scale;
        const float u = (a->beta1 * m[j]) + (a->one_minus_beta1 * g);
        float w = a->master[i];
        w = w - (decay * w);
        w = w - (u > 0 ? a->lr : u < 0 ? -a->lr : 0);
        m[j] = (a->beta2 * m[j]) + (a->one_minus_beta2 * g);
        a->master[i] = w;
        ps_dtype_store(a->param_dtype, a->param, i, w);
    }
}

static ps_format format_of(const ps_lion_args *a)
{
    return a->is_compact ? PS_FORMAT_SIGNED : PS_FORMAT_F32;
}

static ps_status lion(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_lion_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    ps_ref_update_groups(update, a, format_of(a), a->m, a->n);
    return PS_OK;
}

/* Of m. */
static int64_t state_bytes(const ps_lion_args *a)
{
    return ps_format_bytes(format_of(a), a->n);
}

static ps_cost lion_cost(const void *args)
{
    const ps_lion_args *const a = args;
    return (ps_cost){.flops = (double)a->n * (a->is_compact ? 18 : 10),
                     .bytes =
                         (double)a->n * (8 + (double)(ps_dtype_bytes(a->param_dtype) + ps_dtype_bytes(a->grad_dtype))) +
                         2 * (double)state_bytes(a)};
}

static void lion_uses(const void *args, ps_uses *out)
{
    const ps_lion_args *const a = args;
    PS_REF_WRITES(param, ps_ref_bytes(a->param_dtype, a->n));
    PS_REF_READS(grad, ps_ref_bytes(a->grad_dtype, a->n));
    PS_REF_WRITES(master, ps_ref_bytes(PS_DTYPE_F32, a->n));
    PS_REF_WRITES(m, state_bytes(a));
}

const ps_operator ps_operator_lion = {.reference = {.run = lion}, .cost = lion_cost, .uses = lion_uses};
