#include "kernel/ref/ref.h"

static ps_status dequantize(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_dequantize_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) ps_dtype_store(a->dtype, a->y, i, ps_quant_get(a->quant, a->x, i));
    return PS_OK;
}

static int64_t record_bytes(const ps_dequantize_args *a)
{
    return ps_item_bytes(ps_quant_item(a->quant), a->n);
}

static ps_cost dequantize_cost(const void *args)
{
    const ps_dequantize_args *const a = args;
    return (ps_cost){.flops = (double)a->n,
                     .bytes = (double)record_bytes(a) + (double)a->n * (double)ps_dtype_bytes(a->dtype)};
}

static void dequantize_uses(const void *args, ps_uses *out)
{
    const ps_dequantize_args *const a = args;
    PS_REF_WRITES(y, ps_ref_bytes(a->dtype, a->n));
    PS_REF_READS(x, record_bytes(a));
}

const ps_operator ps_operator_dequantize = {
    .reference = {.run = dequantize}, .cost = dequantize_cost, .uses = dequantize_uses};
