#include "kernel/cpu/cpu_isa.h"
#include "kernel/ref/ref.h"

#define FORWARD_TO_REF(op, args)                                                                                       \
    ps_status PS_CPU_NAME(op)(ps_stream * s, const args *a)                                                            \
    {                                                                                                                  \
        return ps_ref_##op(s, a);                                                                                      \
    }
FORWARD_TO_REF(rmsnorm_fwd, ps_rmsnorm_fwd_args)
FORWARD_TO_REF(rmsnorm_bwd, ps_rmsnorm_bwd_args)
FORWARD_TO_REF(swiglu_fwd, ps_swiglu_fwd_args)
FORWARD_TO_REF(swiglu_bwd, ps_swiglu_bwd_args)
FORWARD_TO_REF(tanh_fwd, ps_tanh_fwd_args)
FORWARD_TO_REF(tanh_bwd, ps_tanh_bwd_args)
FORWARD_TO_REF(pool_fwd, ps_pool_fwd_args)
FORWARD_TO_REF(pool_bwd, ps_pool_bwd_args)
