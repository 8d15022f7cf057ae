#include "kernel/ref/ref.h"

#include "base/mem.h"

const ps_operator *const ps_operators[PS_OP_COUNT] = {
#define XX(op) [PS_OP_##op] = &ps_operator_##op,
    PS_OPS(XX)
#undef XX
};

static void ref_destroy(ps_backend *self)
{
    ps_mem_free(self);
}

/* No own kernels: the reference is used for all operators. */
static const ps_kernel *const ref_kernels[PS_OP_COUNT];

ps_status ps_backend_create_ref(ps_backend **out)
{
    static const ps_backend_ops ops = {.name = "ref",
                                       .kernels = ref_kernels,
                                       .epilogues = PS_EPILOGUES_ALL,
                                       .pairs = PS_PAIRS_ALL,
                                       .destroy = ref_destroy};
    PS_TRY(ps_mem_alloc(1, sizeof **out, out));
    (*out)->ops = &ops;
    return PS_OK;
}
