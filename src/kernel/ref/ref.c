#include "kernel/ref/ref.h"

#include "base/mem.h"

const ps_kernel ps_ref_kernels[PS_OP_COUNT] = {
    [PS_OP_linear_fwd] = {ps_ref_linear_fwd, NULL, ps_cost_linear_fwd},
    [PS_OP_linear_bwd_input] = {ps_ref_linear_bwd_input, NULL, ps_cost_linear_bwd_input},
    [PS_OP_linear_bwd_weight] = {ps_ref_linear_bwd_weight, NULL, ps_cost_linear_bwd_weight},
    [PS_OP_layernorm_fwd] = {ps_ref_layernorm_fwd, NULL, ps_cost_layernorm_fwd},
    [PS_OP_layernorm_bwd] = {ps_ref_layernorm_bwd, ps_ref_layernorm_bwd_bytes, ps_cost_layernorm_bwd},
    [PS_OP_rmsnorm_fwd] = {ps_ref_rmsnorm_fwd, NULL, ps_cost_rmsnorm_fwd},
    [PS_OP_rmsnorm_bwd] = {ps_ref_rmsnorm_bwd, ps_ref_rmsnorm_bwd_bytes, ps_cost_rmsnorm_bwd},
    [PS_OP_gelu_fwd] = {ps_ref_gelu_fwd, NULL, ps_cost_gelu_fwd},
    [PS_OP_gelu_bwd] = {ps_ref_gelu_bwd, NULL, ps_cost_gelu_bwd},
    [PS_OP_swiglu_fwd] = {ps_ref_swiglu_fwd, NULL, ps_cost_swiglu_fwd},
    [PS_OP_swiglu_bwd] = {ps_ref_swiglu_bwd, NULL, ps_cost_swiglu_bwd},
    [PS_OP_tanh_fwd] = {ps_ref_tanh_fwd, NULL, ps_cost_tanh_fwd},
    [PS_OP_tanh_bwd] = {ps_ref_tanh_bwd, NULL, ps_cost_tanh_bwd},
    [PS_OP_rope] = {ps_ref_rope, NULL, ps_cost_rope},
    [PS_OP_attention_fwd] = {ps_ref_attention_fwd, ps_ref_attention_fwd_bytes, ps_cost_attention_fwd},
    [PS_OP_attention_bwd] = {ps_ref_attention_bwd, ps_ref_attention_bwd_bytes, ps_cost_attention_bwd},
    [PS_OP_attention_cached] = {ps_ref_attention_cached, ps_ref_attention_cached_bytes, ps_cost_attention_cached},
    [PS_OP_embedding_fwd] = {ps_ref_embedding_fwd, NULL, ps_cost_embedding_fwd},
    [PS_OP_embedding_bwd] = {ps_ref_embedding_bwd, ps_ref_embedding_bwd_bytes, ps_cost_embedding_bwd},
    [PS_OP_position_fwd] = {ps_ref_position_fwd, NULL, ps_cost_position_fwd},
    [PS_OP_position_bwd] = {ps_ref_position_bwd, NULL, ps_cost_position_bwd},
    [PS_OP_pool_fwd] = {ps_ref_pool_fwd, NULL, ps_cost_pool_fwd},
    [PS_OP_pool_bwd] = {ps_ref_pool_bwd, NULL, ps_cost_pool_bwd},
    [PS_OP_add] = {ps_ref_add, NULL, ps_cost_add},
    [PS_OP_dropout] = {ps_ref_dropout, NULL, ps_cost_dropout},
    [PS_OP_lm_loss_fwd] = {ps_ref_lm_loss_fwd, NULL, ps_cost_lm_loss_fwd},
    [PS_OP_lm_loss_bwd] = {ps_ref_lm_loss_bwd, ps_ref_lm_loss_bwd_bytes, ps_cost_lm_loss_bwd},
    [PS_OP_adam] = {ps_ref_adam, NULL, ps_cost_adam},
    [PS_OP_cast] = {ps_ref_cast, NULL, ps_cost_cast},
    [PS_OP_grad_stats] = {ps_ref_grad_stats, NULL, ps_cost_grad_stats},
    [PS_OP_fill] = {ps_ref_fill, NULL, ps_cost_fill},
};

static void ref_destroy(ps_backend *self)
{
    ps_mem_free(self);
}

ps_status ps_backend_create_ref(ps_backend **out)
{
    static const ps_backend_ops ops = {.name = "ref", .kernels = ps_ref_kernels, .destroy = ref_destroy};
    PS_TRY(ps_mem_alloc(1, sizeof **out, out));
    (*out)->ops = &ops;
    return PS_OK;
}
