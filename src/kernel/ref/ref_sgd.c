#include "kernel/ref/ref.h"

/* In float and in a fixed sequence, each operation rounded, without FMA, for the reason in ref_adam.c. buffer: [n], from
 * element `first` on; NULL: none. */
static void update(const void *args, int64_t first, int64_t n, float *buffer)
{
    const ps_sgd_args *const a = args;
    for (int64_t j = 0; j < n; j++) {
        const int64_t i = first + j;
        float w = a->master[i];
        const float g = (ps_dtype_load(a->grad_dtype, a->grad, i) * a->grad_scale) + (a->weight_decay * w);
        float d = g;
        if (buffer != NULL) {
            const float m = (a->momentum * buffer[j]) + (a->one_minus_dampening * g);
            buffer[j] = m;
            d = a->nesterov ? g + (a->momentum * m) : m;
        }
        w = w - (a->lr * d);
        a->master[i] = w;
        ps_dtype_store(a->param_dtype, a->param, i, w);
    }
}

static ps_format format_of(const ps_sgd_args *a)
{
    return a->is_compact ? PS_FORMAT_SIGNED : PS_FORMAT_F32;
}

static ps_status sgd(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_sgd_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    if (a->buffer == NULL)
        update(a, 0, a->n, NULL);
    else
        ps_ref_update_groups(update, a, format_of(a), a->buffer, a->n);
    return PS_OK;
}

/* Of the buffer. */
static int64_t state_bytes(const ps_sgd_args *a)
{
    if (a->buffer == NULL) return 0;
    return ps_format_bytes(format_of(a), a->n);
}

static ps_cost sgd_cost(const void *args)
{
    const ps_sgd_args *const a = args;
    const int flops = a->buffer == NULL ? 5 : a->is_compact ? 17 : 9;
    return (ps_cost){.flops = (double)a->n * flops,
                     .bytes =
                         (double)a->n * (8 + (double)(ps_dtype_bytes(a->param_dtype) + ps_dtype_bytes(a->grad_dtype))) +
                         2 * (double)state_bytes(a)};
}

static void sgd_uses(const void *args, ps_uses *out)
{
    const ps_sgd_args *const a = args;
    PS_REF_WRITES(param, ps_ref_bytes(a->param_dtype, a->n));
    PS_REF_READS(grad, ps_ref_bytes(a->grad_dtype, a->n));
    PS_REF_WRITES(master, ps_ref_bytes(PS_DTYPE_F32, a->n));
    PS_REF_WRITES(buffer, state_bytes(a));
}

const ps_operator ps_operator_sgd = {.reference = {.run = sgd}, .cost = sgd_cost, .uses = sgd_uses};
