/* async.c - the backend of the fake GPU (device/async.h): the cpu's kernels in one thread, in the process that has the
 * device's memory. Everything that a kernel needs there is made before that process is forked from this one, so calls
 * name it by addresses of here. */
#include <unistd.h>

#include "base/mem.h"
#include "device/async.h"
#include "kernel/cpu/cpu_backend.h"

typedef struct async_backend {
    ps_backend base;
    ps_backend *cpu;  /* there */
    ps_backend *here; /* beside it, on memory of this process */
    ps_async *device; /* not in the helper; NULL: for plans */
    ps_space plan_space;
    pid_t host;
} async_backend;

/* In the helper, called by its queue. */
static ps_status run_there(ps_backend *self, ps_op op, const void *args, size_t workspace_bytes)
{
    const async_backend *b = (const async_backend *)self;
    if (getpid() == b->host)
        return PS_FAIL(PS_EINVAL, "%s of cpu_async needs a queue of the device; ps_backend_host computes without",
                       ps_op_name(op));
    return ps_kernel_run(b->cpu, op, NULL, args, workspace_bytes);
}

#define XX(op)                                                                                                         \
    static ps_status async_##op##_run(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)     \
    {                                                                                                                  \
        (void)queue;                                                                                                   \
        return run_there(self, PS_OP_##op, args, workspace_bytes);                                                     \
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
    const async_backend *b = (const async_backend *)self;
    return b->device != NULL ? ps_async_space(b->device) : &b->plan_space;
}

static ps_backend *host(ps_backend *self)
{
    return ((const async_backend *)self)->here;
}

static void destroy(ps_backend *self)
{
    async_backend *b = (async_backend *)self;
    ps_async_close(b->device);
    ps_backend_destroy(b->here);
    ps_backend_destroy(b->cpu);
    ps_mem_free(b);
}

static ps_status create_cpu(ps_cpu_isa isa, bool same, bool plans_only, int n_threads, ps_backend **out)
{
    if (same) return ps_backend_create_cpu_same(isa, n_threads, plans_only, out);
    return plans_only ? ps_backend_create_cpu_for_plans(isa, n_threads, out)
                      : ps_backend_create_cpu(isa, n_threads, out);
}

static ps_status create(const ps_async_options *o, ps_cpu_isa isa, bool same, bool plans_only, int host_threads,
                        ps_backend **out)
{
    static const ps_backend_ops ops = {.name = "cpu_async",
                                       .kernels = async_kernels,
                                       .epilogues = PS_EPILOGUES_ALL,
                                       .pairs = PS_CPU_PAIRS,
                                       .destroy = destroy,
                                       .space = space,
                                       .host = host};
    async_backend *b = NULL;
    *out = NULL;
    PS_TRY(ps_mem_alloc(1, sizeof *b, &b));
    b->base.ops = &ops;
    b->host = getpid();
    b->plan_space = ps_async_plan_space(o);
    ps_status st = create_cpu(isa, same, plans_only, 1, &b->cpu);
    if (st == PS_OK && !plans_only) st = ps_async_open(o, &b->device);
    /* its threads are not for the helper */
    if (st == PS_OK) st = create_cpu(isa, same, plans_only, host_threads, &b->here);
    if (st == PS_OK)
        *out = &b->base;
    else
        destroy(&b->base);
    return st;
}

ps_status ps_backend_create_async(const ps_async_options *o, ps_cpu_isa isa, bool same, int host_threads,
                                  ps_backend **out)
{
    return create(o, isa, same, false, host_threads, out);
}

ps_status ps_backend_create_async_for_plans(const ps_async_options *o, ps_cpu_isa isa, bool same, int host_threads,
                                            ps_backend **out)
{
    return create(o, isa, same, true, host_threads, out);
}
