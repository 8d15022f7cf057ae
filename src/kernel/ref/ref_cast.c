#include "kernel/ref/ref.h"

/* Every 16-bit value is exact in float, so this rounds once at most. */
ps_status ps_ref_cast(ps_stream *s, const ps_cast_args *a)
{
    (void)s;
    for (int64_t i = 0; i < a->n; i++) ps_dtype_store(a->dst_dtype, a->dst, i, ps_dtype_load(a->src_dtype, a->src, i));
    return PS_OK;
}
