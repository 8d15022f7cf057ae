/* sim.c - operators of a device that is not here: they compute nothing. Scratch bytes are those of the portable kernels in one
 * thread, which go through attention and the head in tiles as kernels of GPUs do. */
#include "kernel/kernel.h"

#define XX(op, args)                                                                                                   \
    static ps_status sim_##op(ps_stream *s, const args *a)                                                             \
    {                                                                                                                  \
        (void)s, (void)a;                                                                                              \
        return PS_OK;                                                                                                  \
    }
#include "kernel/op.def"
#undef XX

void ps_kernels_init_sim(ps_kernels *k)
{
    ps_kernels portable;
    ps_kernels_init_cpu(&portable, PS_CPU_PORTABLE);
    *k = (ps_kernels){
        .name = "sim",
#define XX(op, args) .op = sim_##op,
#include "kernel/op.def"
#undef XX
        .workspace_bytes = portable.workspace_bytes,
    };
}
