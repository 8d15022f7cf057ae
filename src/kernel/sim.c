/* sim.c - the backend of a device that is not here: its operators compute nothing, and ask for the scratch of the
 * portable kernels. */
#include "base/mem.h"
#include "kernel/backend.h"

typedef struct sim_backend {
    ps_backend base;
    ps_backend *portable;
} sim_backend;

static ps_status sim_run(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    (void)self, (void)queue, (void)args, (void)workspace_bytes;
    return PS_OK;
}

#define XX(op)                                                                                                         \
    static ps_status sim_##op##_bytes(ps_backend *self, const void *args, size_t *out)                                 \
    {                                                                                                                  \
        return ps_kernel_measure(((sim_backend *)self)->portable, PS_OP_##op, args, out);                              \
    }                                                                                                                  \
    static const ps_kernel sim_##op = {.run = sim_run, .workspace_bytes = sim_##op##_bytes};
PS_OPS(XX)
#undef XX

static const ps_kernel *const sim_kernels[PS_OP_COUNT] = {
#define XX(op) [PS_OP_##op] = &sim_##op,
    PS_OPS(XX)
#undef XX
};

static void sim_destroy(ps_backend *self)
{
    ps_backend_destroy(((sim_backend *)self)->portable);
    ps_mem_free(self);
}

ps_status ps_backend_create_sim(ps_backend **out)
{
    static const ps_backend_ops ops = {
        .name = "sim", .kernels = sim_kernels, .epilogues = PS_EPILOGUES_ALL, .destroy = sim_destroy};
    sim_backend *b = NULL;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *b, &b));
    const ps_status st = ps_backend_create_cpu_for_plans(PS_CPU_PORTABLE, 1, &b->portable);
    if (st != PS_OK) {
        ps_mem_free(b);
        return st;
    }
    b->base.ops = &ops;
    *out = &b->base;
    return PS_OK;
}
