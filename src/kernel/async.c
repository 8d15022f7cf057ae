/* async.c - the backend of the fake GPU (device/async.h): the cpu's kernels in one thread, in the process that has the
 * device's memory. Everything that a kernel needs there is made before that process is forked from this one, so calls name
 * it by addresses of here. */
#include <unistd.h>

#include "base/mem.h"
#include "device/async.h"
#include "kernel/backend.h"

typedef struct async_backend {
    ps_backend base;
    ps_backend *cpu;
    ps_async *device; /* not in the helper */
    pid_t host;
} async_backend;

/* In the helper, called by its queue; or here, on memory of the host tier, or of whoever has arrays of his own. */
static ps_status run_here(ps_backend *self, ps_op op, const void *args, size_t workspace_bytes)
{
    const async_backend *b = (const async_backend *)self;
    ps_uses uses = {.n = 0};
    if (getpid() == b->host) ps_op_uses(op, args, workspace_bytes, &uses);
    for (int i = 0; i < uses.n; i++)
        if (ps_async_is_device_memory(b->device, uses.use[i].address, 1))
            return PS_FAIL(PS_EINVAL, "%s of cpu_async needs a queue of the device, in whose memory %s lies",
                           ps_op_name(op), uses.use[i].name);
    return ps_kernel_run(b->cpu, op, NULL, args, workspace_bytes);
}

#define XX(op)                                                                                                         \
    static ps_status async_##op##_run(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)     \
    {                                                                                                                  \
        (void)queue;                                                                                                   \
        return run_here(self, PS_OP_##op, args, workspace_bytes);                                                      \
    }                                                                                                                  \
    static ps_status async_##op##_bytes(ps_backend *self, const void *args, size_t *out)                               \
    {                                                                                                                  \
        return ps_kernel_measure(((async_backend *)self)->cpu, PS_OP_##op, args, out);                                 \
    }                                                                                                                  \
    static const ps_kernel async_##op = {.run = async_##op##_run, .workspace_bytes = async_##op##_bytes};
PS_OPS(XX)
#undef XX

static const ps_kernel *const async_kernels[PS_OP_COUNT] = {
#define XX(op) [PS_OP_##op] = &async_##op,
    PS_OPS(XX)
#undef XX
};

static const ps_space *space(const ps_backend *self)
{
    return ps_async_space(((const async_backend *)self)->device);
}

static void destroy(ps_backend *self)
{
    async_backend *b = (async_backend *)self;
    ps_async_close(b->device);
    ps_backend_destroy(b->cpu);
    ps_mem_free(b);
}

ps_status ps_backend_create_async(const struct ps_async_options *o, ps_cpu_isa isa, bool same, ps_backend **out)
{
    static const ps_backend_ops ops = {.name = "cpu_async",
                                       .kernels = async_kernels,
                                       .epilogues = PS_EPILOGUES_ALL,
                                       .destroy = destroy,
                                       .space = space};
    async_backend *b = NULL;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *b, &b));
    b->base.ops = &ops;
    b->host = getpid();
    ps_status st = same ? ps_backend_create_cpu_same(isa, 1, false, &b->cpu) : ps_backend_create_cpu(isa, 1, &b->cpu);
    if (st == PS_OK) st = ps_async_open(o, &b->device);
    if (st == PS_OK)
        *out = &b->base;
    else
        destroy(&b->base);
    return st;
}
