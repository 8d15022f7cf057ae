#include "kernel/ref/ref.h"

static size_t ref_workspace_bytes(ps_op op, const void *args)
{
    switch ((int)op) {
    case PS_OP_layernorm_bwd: return ps_ref_layernorm_bwd_bytes(args);
    case PS_OP_rmsnorm_bwd: return ps_ref_rmsnorm_bwd_bytes(args);
    case PS_OP_attention_fwd: return ps_ref_attention_fwd_bytes(args);
    case PS_OP_attention_bwd: return ps_ref_attention_bwd_bytes(args);
    case PS_OP_embedding_bwd: return ps_ref_embedding_bwd_bytes(args);
    case PS_OP_lm_loss_bwd: return ps_ref_lm_loss_bwd_bytes(args);
    default: return 0;
    }
}

void ps_kernels_init_ref(ps_kernels *k)
{
    *k = (ps_kernels){
        .name = "ref",
#define XX(op, args) .op = ps_ref_##op,
#include "kernel/op.def"
#undef XX
        .workspace_bytes = ref_workspace_bytes,
    };
}
