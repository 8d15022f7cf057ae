/* ref.h - the reference kernels: one plain loop nest per formula of kernel.h, sums in double, one thread.
 *
 * They are what every other backend is measured against, so they prefer being obviously right to being fast.
 * Each operator has one: ref.c names them. Those with scratch have a ps_ref_<op>_bytes, everything else needs none. */
#ifndef PS_KERNEL_REF_REF_H
#define PS_KERNEL_REF_REF_H

#include "base/base.h"
#include "kernel/backend.h"

/* Element i as double. */
static inline double ps_ref_load(ps_dtype t, const void *array, int64_t i)
{
    return (double)ps_dtype_load(t, array, i);
}

/* array[i] = value, or array[i] += value: in both cases one rounding, of the final result. */
static inline void ps_ref_store(ps_dtype t, void *array, int64_t i, double value, bool accumulate)
{
    ps_dtype_store(t, array, i, (float)(accumulate ? ps_ref_load(t, array, i) + value : value));
}

/* What reading back a stored value gives. */
static inline double ps_ref_rounded(ps_dtype t, double value)
{
    float cell;
    ps_ref_store(t, &cell, 0, value, false);
    return ps_ref_load(t, &cell, 0);
}

#define XX(op, args_type)                                                                                              \
    ps_status ps_ref_##op(ps_backend *self, ps_stream *queue, const void *args, size_t workspace_bytes);
#include "kernel/op.def"
#undef XX

ps_status ps_ref_layernorm_bwd_bytes(ps_backend *self, const void *args, size_t *out);
ps_status ps_ref_rmsnorm_bwd_bytes(ps_backend *self, const void *args, size_t *out);
ps_status ps_ref_attention_fwd_bytes(ps_backend *self, const void *args, size_t *out);
ps_status ps_ref_attention_bwd_bytes(ps_backend *self, const void *args, size_t *out);
ps_status ps_ref_attention_cached_bytes(ps_backend *self, const void *args, size_t *out);
ps_status ps_ref_embedding_bwd_bytes(ps_backend *self, const void *args, size_t *out);
ps_status ps_ref_lm_loss_bwd_bytes(ps_backend *self, const void *args, size_t *out);

/* [PS_OP_COUNT], every one filled: what stands in where a backend has no entry of its own. They look neither at self nor at
 * the queue. */
extern const ps_kernel ps_ref_kernels[];

#endif
