#include "kernel/cpu/cpu_isa.h"
#include "kernel/ref/ref.h"

#define FORWARD_TO_REF(op, args)                                                                                       \
    ps_status PS_CPU_NAME(op)(ps_stream * s, const args *a)                                                            \
    {                                                                                                                  \
        return ps_ref_##op(s, a);                                                                                      \
    }
FORWARD_TO_REF(rope, ps_rope_args)
