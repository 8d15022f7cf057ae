/* sim.c - the backend of a simulated GPU: its operators compute nothing, in simulated memory. */
#include "base/mem.h"
#include "device/device.h"
#include "kernel/backend.h"
#include "kernel/cuda/cuda_operator.h"

typedef struct sim_backend {
    ps_backend base;
    ps_space space;
    ps_sim_options options;
} sim_backend;

static ps_status sim_run(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    (void)self, (void)queue, (void)args, (void)workspace_bytes;
    return PS_OK;
}

/* As on a GPU: also room for the kernels, which compute attention with a mask. */
static ps_status measure(const sim_backend *b, ps_op op, const void *args, size_t *out)
{
    const ps_sim_options *o = &b->options;
    int64_t more = -1;
    if (o->attention != NULL && (op == PS_OP_attention_fwd || op == PS_OP_attention_bwd))
        PS_TRY(o->attention(o->attention_self, op, args, &more));
    *out = (size_t)ps_max_i64(more, ps_cuda_workspace_bytes(op, args, o->gemm_bytes));
    return PS_OK;
}

#define XX(op)                                                                                                         \
    static ps_status sim_##op##_bytes(ps_backend *self, const void *args, size_t *out)                                 \
    {                                                                                                                  \
        return measure((const sim_backend *)self, PS_OP_##op, args, out);                                              \
    }                                                                                                                  \
    static const ps_kernel sim_##op = {.run = sim_run, .workspace_bytes = sim_##op##_bytes};
PS_OPS(XX)
#undef XX

static const ps_kernel *const sim_kernels[PS_OP_COUNT] = {
#define XX(op) [PS_OP_##op] = &sim_##op,
    PS_OPS(XX)
#undef XX
};

static const ps_space *sim_space(const ps_backend *self)
{
    return &((const sim_backend *)self)->space;
}

static void sim_destroy(ps_backend *self)
{
    ps_mem_free(self);
}

ps_status ps_backend_create_sim(const ps_sim_options *o, ps_backend **out)
{
    static const ps_backend_ops ops = {.name = "sim",
                                       .kernels = sim_kernels,
                                       .epilogues = PS_EPILOGUES_ALL,
                                       .unrounded = PS_CUDA_UNROUNDED,
                                       .pairs = PS_PAIRS_ALL,
                                       .destroy = sim_destroy,
                                       .own_device = PS_DEVICE_CUDA,
                                       .space = sim_space};
    sim_backend *b = NULL;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *b, &b));
    b->base.ops = &ops;
    b->space =
        (ps_space){.device = &ps_device_sim_async_ops, .host = &ps_device_sim_async_ops, .page_bytes = o->page_bytes};
    b->options = *o;
    *out = &b->base;
    return PS_OK;
}
