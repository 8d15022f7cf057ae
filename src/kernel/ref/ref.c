#include "kernel/ref/ref.h"

#include "base/mem.h"

#define BYTES_SCRATCH(op) ps_ref_##op##_bytes
#define BYTES_NO_SCRATCH(op) NULL

const ps_kernel ps_ref_kernels[PS_OP_COUNT] = {
#define XX(op, args_type, scratch) [PS_OP_##op] = {ps_ref_##op, BYTES_##scratch(op), ps_cost_##op},
#include "kernel/op.def"
#undef XX
};

static void ref_destroy(ps_backend *self)
{
    ps_mem_free(self);
}

ps_status ps_backend_create_ref(ps_backend **out)
{
    static const ps_backend_ops ops = {
        .name = "ref", .kernels = ps_ref_kernels, .epilogues = PS_EPILOGUES_ALL, .destroy = ref_destroy};
    PS_TRY(ps_mem_alloc(1, sizeof **out, out));
    (*out)->ops = &ops;
    return PS_OK;
}
