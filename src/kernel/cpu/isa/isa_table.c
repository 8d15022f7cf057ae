/* What the cpu has kernels of its own for; elsewhere the reference stands in. */
#include "kernel/cpu/cpu_isa.h"

#define OWN(op) [PS_OP_##op] = &PS_CPU_NAME(op)

const ps_kernel *const PS_CPU_NAME(kernels)[PS_OP_COUNT] = {
    OWN(linear_fwd),
    OWN(linear_bwd_input),
    OWN(linear_bwd_weight),
    OWN(layernorm_fwd),
    OWN(layernorm_bwd),
    OWN(rmsnorm_fwd),
    OWN(rmsnorm_bwd),
    OWN(gelu_fwd),
    OWN(gelu_bwd),
    OWN(swiglu_fwd),
    OWN(swiglu_bwd),
    OWN(tanh_fwd),
    OWN(tanh_bwd),
    OWN(rope),
    OWN(attention_fwd),
    OWN(attention_bwd),
    OWN(attention_cached),
    OWN(embedding_fwd),
    OWN(embedding_bwd),
    OWN(position_fwd),
    OWN(position_bwd),
    OWN(pool_fwd),
    OWN(pool_bwd),
    OWN(add),
    OWN(dropout),
    OWN(lm_loss_fwd),
    OWN(lm_loss_bwd),
    OWN(adam),
    OWN(sgd),
    OWN(cast),
    OWN(grad_stats),
    OWN(fill),
};
