#include "cuda/fake_cpu.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "device/cuda/backend_cuda.h"
#include "device/cuda/gpu_impl.h"
#include "kernel/cpu/cpu_backend.h"

static const ps_cuda_driver *driver;

/* ---- calls on a stream ---- */

/* Of a queue, and the arguments of the kernel that carries it out. */
typedef struct stream_call {
    const ps_queue *queue;
    ps_status (*run)(void *self, const void *args);
    void *self;
    _Alignas(16) char args[PS_CALL_ARGS_BYTES_MAX - 32];
} stream_call;

/* On the stream's thread. */
static void execute(void *user, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                    const void *args)
{
    const stream_call *c = args;
    (void)user, (void)grid, (void)block, (void)shared_bytes;
    if (c->run(c->self, c->args) == PS_OK) return;
    fprintf(stderr, "fake_cpu: %s\n", ps_last_error());
    fake_break(0, PS_CU_LAUNCH_FAILED);
}

static ps_status launch(void *self, const void *args)
{
    const stream_call *c = args;
    ps_cu_function function;
    void *all[] = {(void *)(uintptr_t)args};
    (void)self;
    PS_TRY(ps_gpu_queue_reserve((ps_gpu_queue *)(uintptr_t)c->queue, 1));
    if (driver->function_get(&function, NULL, "call") != PS_CU_SUCCESS ||
        driver->launch(function, 1, 1, 1, 1, 1, 1, 0, ps_gpu_stream(c->queue), all, NULL) != PS_CU_SUCCESS)
        return PS_FAIL(PS_EDEVICE, "cuda: the device is lost: a call was not taken");
    return PS_OK;
}

ps_status fake_cpu_call(ps_queue *q, const ps_call *call)
{
    stream_call c = {.queue = q, .run = call->run, .self = call->self};
    for (int i = 0; i < call->n_uses; i++) {
        const ps_use *u = &call->uses[i];
        if (fake_is_device_memory(u->address, u->bytes)) continue;
        return PS_FAIL(PS_EINVAL, "queue %s: %s %s %s: %lld bytes at %p, which is not device memory", ps_queue_name(q),
                       call->name, u->is_write ? "writes" : "reads", u->name, (long long)u->bytes, u->address);
    }
    PS_ASSERT(call->args_bytes <= sizeof c.args);
    if (call->args_bytes > 0) memcpy(c.args, call->args, call->args_bytes);
    ps_call on_stream = *call;
    on_stream.run = launch;
    on_stream.args = &c;
    on_stream.args_bytes = sizeof c;
    return ps_queue_call(q, &on_stream);
}

/* ---- the backend ---- */

typedef struct cpu_on_gpu {
    ps_backend base;
    ps_gpu *gpu; /* NULL: for plans */
    ps_space plan_space;
    ps_backend *cpu, *host;
} cpu_on_gpu;

typedef struct op_args {
    size_t workspace_bytes;
    ps_op op;
    _Alignas(16) char args[sizeof(((stream_call *)0)->args) - 16];
} op_args;

#define XX(op) _Static_assert(sizeof(ps_##op##_args) <= sizeof(((op_args *)0)->args), #op);
PS_OPS(XX)
#undef XX

static ps_status run_op(void *self, const void *args)
{
    const op_args *a = args;
    return ps_kernel_run(((cpu_on_gpu *)self)->cpu, a->op, NULL, a->args, a->workspace_bytes);
}

static ps_status run(ps_backend *self, ps_op op, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    op_args a = {.workspace_bytes = workspace_bytes, .op = op};
    ps_uses uses;
    if (queue == NULL)
        return PS_FAIL(PS_EINVAL, "%s needs a queue of the device; ps_backend_host computes without", ps_op_name(op));
    ps_op_uses(op, args, workspace_bytes, &uses);
    memcpy(a.args, args, ps_op_args_bytes(op));
    return fake_cpu_call(queue, &(ps_call){.name = ps_op_name(op),
                                           .run = run_op,
                                           .self = self,
                                           .args = &a,
                                           .args_bytes = offsetof(op_args, args) + ps_op_args_bytes(op),
                                           .uses = uses.use,
                                           .n_uses = uses.n});
}

#define XX(op)                                                                                                         \
    static ps_status cpu_##op##_run(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)       \
    {                                                                                                                  \
        return run(self, PS_OP_##op, queue, args, workspace_bytes);                                                    \
    }                                                                                                                  \
    static ps_status cpu_##op##_bytes(ps_backend *self, const void *args, size_t *out)                                 \
    {                                                                                                                  \
        return ps_kernel_measure(((cpu_on_gpu *)self)->cpu, PS_OP_##op, args, out);                                    \
    }                                                                                                                  \
    static const ps_kernel cpu_##op = {.run = cpu_##op##_run, .workspace_bytes = cpu_##op##_bytes};
PS_OPS(XX)
#undef XX

static const ps_kernel *const kernels[PS_OP_COUNT] = {
#define XX(op) [PS_OP_##op] = &cpu_##op,
    PS_OPS(XX)
#undef XX
};

static const ps_space *space(const ps_backend *self)
{
    const cpu_on_gpu *b = (const cpu_on_gpu *)self;
    return b->gpu != NULL ? ps_gpu_space(b->gpu) : &b->plan_space;
}

static ps_backend *host(ps_backend *self)
{
    return ((const cpu_on_gpu *)self)->host;
}

static void destroy(ps_backend *self)
{
    cpu_on_gpu *b = (cpu_on_gpu *)self;
    ps_gpu_close(b->gpu);
    ps_backend_destroy(b->host);
    ps_backend_destroy(b->cpu);
    ps_mem_free(b);
}

static ps_status create(ps_gpu *gpu, int64_t page_bytes, ps_backend *host_backend, ps_backend **out)
{
    static const ps_backend_ops ops = {.name = "cuda",
                                       .kernels = kernels,
                                       .epilogues = PS_EPILOGUES_ALL,
                                       .pairs = PS_CPU_PAIRS,
                                       .destroy = destroy,
                                       .space = space,
                                       .host = host,
                                       .issues = true};
    cpu_on_gpu *b = NULL;
    ps_status st = ps_mem_alloc(1, sizeof *b, &b);
    *out = NULL;
    if (st != PS_OK) {
        ps_gpu_close(gpu);
        ps_backend_destroy(host_backend);
        return st;
    }
    *b =
        (cpu_on_gpu){.base.ops = &ops,
                     .gpu = gpu,
                     .plan_space = {.device = &ps_gpu_device_ops, .host = &ps_gpu_pinned_ops, .page_bytes = page_bytes},
                     .host = host_backend};
    const ps_cpu_isa isa = ps_cpu_isa_detect();
    st = gpu != NULL ? ps_backend_create_cpu(isa, 1, &b->cpu) : ps_backend_create_cpu_for_plans(isa, 1, &b->cpu);
    if (st == PS_OK)
        *out = &b->base;
    else
        destroy(&b->base);
    return st;
}

/* ---- the parts ---- */

static ps_status get_driver(const ps_cuda_driver **out)
{
    *out = driver;
    return ps_cuda_driver_start(driver);
}

static ps_status no_image(const ps_cuda_image **out)
{
    static const ps_cuda_image image = {.abi = PS_CUDA_IMAGE_ABI, .kernels = "none"};
    *out = &image;
    return PS_OK;
}

static ps_status no_nccl(const ps_nccl **out)
{
    *out = NULL;
    return PS_FAIL(PS_ENOSYS, "NCCL is not available here");
}

static ps_cuda_parts parts = {
    .driver = get_driver, .image = no_image, .gemm_bytes = PS_MIB, .nccl = no_nccl, .backend = create, .poisons = true};

const ps_cuda_driver *fake_cpu_begin(const fake_options *o)
{
    driver = fake_driver(o);
    fake_kernel_add("call", execute, NULL, sizeof(stream_call));
    parts.stream_commands = fake_depth();
    ps_cuda_use_parts(&parts);
    return driver;
}

bool fake_cpu_end(void)
{
    ps_cuda_use_parts(NULL);
    return fake_driver_end();
}

void fake_cpu_check_order(bool checks)
{
    parts.checks_order = checks;
}

ps_status fake_cpu_open(ps_gpu **out)
{
    return ps_gpu_open(driver, &(ps_gpu_options){.poisons = true, .stream_commands = fake_depth()}, out);
}
