#include "kernel/cpu/cpu_isa.h"
#include "kernel/ref/ref.h"

static size_t table_workspace_bytes(ps_op op, const void *args)
{
    switch ((int)op) {
    case PS_OP_linear_fwd: return PS_CPU_NAME(linear_fwd_bytes)(args);
    case PS_OP_linear_bwd_input: return PS_CPU_NAME(linear_bwd_input_bytes)(args);
    case PS_OP_linear_bwd_weight: return PS_CPU_NAME(linear_bwd_weight_bytes)(args);
    case PS_OP_layernorm_bwd: return PS_CPU_NAME(layernorm_bwd_bytes)(args);
    case PS_OP_rmsnorm_bwd: return ps_ref_rmsnorm_bwd_bytes(args);
    case PS_OP_rope: return PS_CPU_NAME(rope_bytes)(args);
    case PS_OP_attention_fwd: return PS_CPU_NAME(attention_fwd_bytes)(args);
    case PS_OP_attention_bwd: return PS_CPU_NAME(attention_bwd_bytes)(args);
    case PS_OP_embedding_bwd: return PS_CPU_NAME(embedding_bwd_bytes)(args);
    case PS_OP_lm_loss_fwd: return PS_CPU_NAME(lm_loss_fwd_bytes)(args);
    case PS_OP_lm_loss_bwd: return PS_CPU_NAME(lm_loss_bwd_bytes)(args);
    default: return 0;
    }
}

#define TABLE_STRING2(x) #x
#define TABLE_STRING(x) TABLE_STRING2(x)

void PS_CPU_NAME(table)(ps_kernels *k)
{
    k->name = "cpu " TABLE_STRING(PS_ISA);
#define XX(op, args) k->op = PS_CPU_NAME(op);
#include "kernel/op.def"
#undef XX
    k->workspace_bytes = table_workspace_bytes;
}
