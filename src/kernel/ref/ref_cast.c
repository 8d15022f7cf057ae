#include "kernel/ref/ref.h"

/* Every 16-bit value is exact in float, so this rounds once at most. */
static ps_status cast(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const ps_cast_args *const a = args;
    (void)self, (void)queue, (void)workspace_bytes;
    for (int64_t i = 0; i < a->n; i++) ps_dtype_store(a->dst_dtype, a->dst, i, ps_dtype_load(a->src_dtype, a->src, i));
    return PS_OK;
}

static ps_cost cast_cost(const void *args)
{
    const ps_cast_args *const a = args;
    return (ps_cost){.bytes = (double)a->n * (double)(ps_dtype_bytes(a->dst_dtype) + ps_dtype_bytes(a->src_dtype))};
}

static void cast_uses(const void *args, ps_uses *out)
{
    const ps_cast_args *const a = args;
    PS_REF_WRITES(dst, ps_ref_bytes(a->dst_dtype, a->n));
    PS_REF_READS(src, ps_ref_bytes(a->src_dtype, a->n));
}

const ps_operator ps_operator_cast = {.reference = {.run = cast}, .cost = cast_cost, .uses = cast_uses};
