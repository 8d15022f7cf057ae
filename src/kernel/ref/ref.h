/* ref.h - the reference kernels: one plain loop nest per formula of kernel.h, sums in double, one thread.
 *
 * They are what every other backend is measured against, so they prefer being obviously right to being fast.
 * Each operator has one. Those that op.def says have scratch have a ps_ref_<op>_bytes, too. */
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

double ps_ref_gelu(ps_gelu_kind kind, double x);
double ps_ref_gelu_derivative(ps_gelu_kind kind, double x);

/* Store element i of a product, and what follows it. */
void ps_ref_finish(const ps_linear_epilogue *e, ps_dtype t, void *y, int64_t i, double value, bool accumulate);

/* The declarations are written out, not expanded from op.def: an operator without a reference does not compile. */
#define PS_REF(op) ps_status ps_ref_##op(ps_backend *self, ps_stream *queue, const void *args, size_t workspace_bytes)
#define PS_REF_BYTES(op) ps_status ps_ref_##op##_bytes(ps_backend *self, const void *args, size_t *out)

PS_REF(linear_fwd);
PS_REF(linear_bwd_input);
PS_REF(linear_bwd_weight);
PS_REF(layernorm_fwd);
PS_REF(layernorm_bwd);
PS_REF_BYTES(layernorm_bwd);
PS_REF(rmsnorm_fwd);
PS_REF(rmsnorm_bwd);
PS_REF_BYTES(rmsnorm_bwd);
PS_REF(gelu_fwd);
PS_REF(gelu_bwd);
PS_REF(swiglu_fwd);
PS_REF(swiglu_bwd);
PS_REF(tanh_fwd);
PS_REF(tanh_bwd);
PS_REF(rope);
PS_REF(attention_fwd);
PS_REF_BYTES(attention_fwd);
PS_REF(attention_bwd);
PS_REF_BYTES(attention_bwd);
PS_REF(attention_cached);
PS_REF_BYTES(attention_cached);
PS_REF(embedding_fwd);
PS_REF(embedding_bwd);
PS_REF_BYTES(embedding_bwd);
PS_REF(position_fwd);
PS_REF(position_bwd);
PS_REF(pool_fwd);
PS_REF(pool_bwd);
PS_REF(add);
PS_REF(dropout);
PS_REF(lm_loss_fwd);
PS_REF(lm_loss_bwd);
PS_REF_BYTES(lm_loss_bwd);
PS_REF(adam);
PS_REF(cast);
PS_REF(grad_stats);
PS_REF(fill);

#undef PS_REF
#undef PS_REF_BYTES

/* [PS_OP_COUNT], every one filled: what stands in where a backend has no entry of its own. They look neither at self nor at
 * the queue. */
extern const ps_kernel ps_ref_kernels[];

#endif
