/* ref.h - the reference kernels: one plain loop nest per formula of kernel.h, sums in double, one thread.
 *
 * They are what every other backend is measured against, so they prefer being obviously right to being fast.
 * The declarations are written out, not expanded from op.def: an operator without a reference does not compile
 * (ref.c names each). Those with scratch have a ps_ref_<op>_bytes, everything else needs none. */
#ifndef PS_KERNEL_REF_REF_H
#define PS_KERNEL_REF_REF_H

#include "base/base.h"
#include "kernel/kernel.h"

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

ps_status ps_ref_linear_fwd(ps_stream *s, const ps_linear_fwd_args *a);
ps_status ps_ref_linear_bwd_input(ps_stream *s, const ps_linear_bwd_input_args *a);
ps_status ps_ref_linear_bwd_weight(ps_stream *s, const ps_linear_bwd_weight_args *a);

ps_status ps_ref_layernorm_fwd(ps_stream *s, const ps_layernorm_fwd_args *a);
ps_status ps_ref_layernorm_bwd(ps_stream *s, const ps_layernorm_bwd_args *a);
size_t ps_ref_layernorm_bwd_bytes(const ps_layernorm_bwd_args *a);

ps_status ps_ref_rmsnorm_fwd(ps_stream *s, const ps_rmsnorm_fwd_args *a);
ps_status ps_ref_rmsnorm_bwd(ps_stream *s, const ps_rmsnorm_bwd_args *a);
size_t ps_ref_rmsnorm_bwd_bytes(const ps_rmsnorm_bwd_args *a);

ps_status ps_ref_gelu_fwd(ps_stream *s, const ps_gelu_fwd_args *a);
ps_status ps_ref_gelu_bwd(ps_stream *s, const ps_gelu_bwd_args *a);

ps_status ps_ref_swiglu_fwd(ps_stream *s, const ps_swiglu_fwd_args *a);
ps_status ps_ref_swiglu_bwd(ps_stream *s, const ps_swiglu_bwd_args *a);
ps_status ps_ref_tanh_fwd(ps_stream *s, const ps_tanh_fwd_args *a);
ps_status ps_ref_tanh_bwd(ps_stream *s, const ps_tanh_bwd_args *a);

ps_status ps_ref_rope(ps_stream *s, const ps_rope_args *a);
ps_status ps_ref_attention_fwd(ps_stream *s, const ps_attention_fwd_args *a);
size_t ps_ref_attention_fwd_bytes(const ps_attention_fwd_args *a);
ps_status ps_ref_attention_bwd(ps_stream *s, const ps_attention_bwd_args *a);
size_t ps_ref_attention_bwd_bytes(const ps_attention_bwd_args *a);

ps_status ps_ref_embedding_fwd(ps_stream *s, const ps_embedding_fwd_args *a);
ps_status ps_ref_embedding_bwd(ps_stream *s, const ps_embedding_bwd_args *a);
size_t ps_ref_embedding_bwd_bytes(const ps_embedding_bwd_args *a);
ps_status ps_ref_position_fwd(ps_stream *s, const ps_position_fwd_args *a);
ps_status ps_ref_position_bwd(ps_stream *s, const ps_position_bwd_args *a);

ps_status ps_ref_pool_fwd(ps_stream *s, const ps_pool_fwd_args *a);
ps_status ps_ref_pool_bwd(ps_stream *s, const ps_pool_bwd_args *a);
ps_status ps_ref_add(ps_stream *s, const ps_add_args *a);
ps_status ps_ref_dropout(ps_stream *s, const ps_dropout_args *a);

ps_status ps_ref_lm_loss_fwd(ps_stream *s, const ps_lm_loss_fwd_args *a);
ps_status ps_ref_lm_loss_bwd(ps_stream *s, const ps_lm_loss_bwd_args *a);
size_t ps_ref_lm_loss_bwd_bytes(const ps_lm_loss_bwd_args *a);

ps_status ps_ref_adam(ps_stream *s, const ps_adam_args *a);
ps_status ps_ref_cast(ps_stream *s, const ps_cast_args *a);
ps_status ps_ref_grad_stats(ps_stream *s, const ps_grad_stats_args *a);
ps_status ps_ref_fill(ps_stream *s, const ps_fill_args *a);

#endif
