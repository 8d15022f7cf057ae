#include "device/cuda/backend_cuda.h"

#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "device/cuda/gpu_impl.h"
#include "kernel/own.h"

/* A kernel needs permission for more shared memory a block than this. */
#define SHARED_BYTES_FREE (48 * PS_KIB)
/* Of a caller's own operator, which is not known: more would be an operator of its own. */
#define OWN_COMMANDS 64

typedef struct cuda_backend {
    ps_backend base;
    ps_gpu *gpu; /* NULL: for plans */
    ps_space plan_space;
    ps_cuda_gemms gemms;
    ps_cuda_attention attention; /* self NULL: none */
    ps_backend *host;
    ps_cu_module *modules;
    int n_modules;
    ps_cu_function functions[PS_CUDA_KERNEL_COUNT];
    _Atomic uint32_t shared_bytes[PS_CUDA_KERNEL_COUNT]; /* permitted so far */
} cuda_backend;

/* ---- issuing ---- */

/* An operator while it is issued to a stream. */
typedef struct issue {
    cuda_backend *backend;
    ps_cu_stream stream;
} issue;

static ps_status allow_shared(cuda_backend *b, const ps_cuda_launch *l)
{
    if (l->shared_bytes <= SHARED_BYTES_FREE || l->shared_bytes <= atomic_load(&b->shared_bytes[l->kernel]))
        return PS_OK;
    PS_TRY(ps_gpu_check(
        b->gpu,
        b->gpu->driver->function_set(b->functions[l->kernel], PS_CU_FUNCTION_SHARED_BYTES, (int)l->shared_bytes),
        ps_cuda_kernel_table[l->kernel].name));
    atomic_store(&b->shared_bytes[l->kernel], l->shared_bytes);
    return PS_OK;
}

static ps_status launch(void *self, const ps_cuda_launch *l)
{
    const issue *on = self;
    cuda_backend *b = on->backend;
    const ps_cuda_kernel_entry *kernel = &ps_cuda_kernel_table[l->kernel];
    void *args[] = {(void *)(uintptr_t)l->args};
    PS_TRY(allow_shared(b, l));
    PS_TRY(ps_gpu_will_issue(b->gpu, on->stream, 1));
    return ps_gpu_check(b->gpu,
                        b->gpu->driver->launch(b->functions[l->kernel], l->blocks, 1, 1, kernel->threads, 1, 1,
                                               l->shared_bytes, on->stream, args, NULL),
                        kernel->name);
}

static ps_status multiply(void *self, const ps_cuda_gemm *p, bool *is_done)
{
    const issue *on = self;
    PS_TRY(ps_gpu_will_issue(on->backend->gpu, on->stream, PS_GPU_LIBRARY_COMMANDS));
    return on->backend->gemms.multiply(on->backend->gemms.self, on->stream, p, is_done);
}

static ps_status attend(void *self, ps_op op, const void *args, bool *is_done)
{
    const issue *on = self;
    return on->backend->attention.run(on->backend->attention.self, on->stream, op, args, is_done);
}

static ps_status run_own(void *self, const ps_own_args *a, const ps_own_call *call)
{
    const issue *on = self;
    ps_own_call on_stream = *call;
    on_stream.stream = on->stream;
    PS_TRY(ps_gpu_will_issue(on->backend->gpu, on->stream, OWN_COMMANDS));
    return ps_own_run(a, &on_stream);
}

/* A call of the queue: its function runs when it is issued. */
typedef struct cuda_call {
    const ps_queue *queue;
    size_t workspace_bytes;
    ps_op op;
    _Alignas(max_align_t) char args[PS_CALL_ARGS_BYTES_MAX - 32];
} cuda_call;

#define XX(op) _Static_assert(sizeof(ps_##op##_args) <= sizeof(((cuda_call *)0)->args), #op);
PS_OPS(XX)
#undef XX

static ps_status run_call(void *self, const void *args)
{
    cuda_backend *b = self;
    const cuda_call *c = args;
    issue on = {b, ps_gpu_stream(c->queue)};
    const ps_cuda_issuer to = {.launch = launch,
                               .gemm = multiply,
                               .attention = b->attention.self != NULL ? attend : NULL,
                               .own = run_own,
                               .self = &on,
                               .gemm_bytes = b->gemms.workspace_bytes};
    return ps_cuda_run(&to, c->op, c->args, c->workspace_bytes);
}

static ps_status run(ps_backend *self, ps_op op, ps_queue *queue, const void *args, size_t workspace_bytes)
{
    const cuda_backend *b = (const cuda_backend *)self;
    if (queue == NULL || b->gpu == NULL || ps_gpu_queue_of(queue, b->gpu) == NULL)
        return PS_FAIL(PS_EINVAL, "%s of cuda needs a queue of the device; ps_backend_host computes without",
                       ps_op_name(op));
    cuda_call c = {.queue = queue, .workspace_bytes = workspace_bytes, .op = op};
    const size_t n = ps_op_args_bytes(op);
    ps_uses uses;
    uses.n = 0;
    if (ps_queue_wants_uses(queue)) ps_op_uses(op, args, workspace_bytes, &uses);
    memcpy(c.args, args, n);
    return ps_queue_call(queue, &(ps_call){.name = ps_op_name(op),
                                           .run = run_call,
                                           .self = self,
                                           .args = &c,
                                           .args_bytes = offsetof(cuda_call, args) + n,
                                           .uses = uses.use,
                                           .n_uses = uses.n});
}

ps_status ps_backend_cuda_rank_sum(ps_backend *self, ps_cu_stream stream, ps_dtype dtype,
                                   const ps_cuda_rank_sum_args *a)
{
    issue on = {(cuda_backend *)self, stream};
    const ps_cuda_issuer to = {.launch = launch, .self = &on};
    return ps_cuda_rank_sum(&to, dtype, a);
}

static ps_status measure(const ps_backend *self, ps_op op, const void *args, size_t *out)
{
    const cuda_backend *b = (const cuda_backend *)self;
    int64_t more = -1;
    if (b->attention.self != NULL && (op == PS_OP_attention_fwd || op == PS_OP_attention_bwd))
        PS_TRY(b->attention.measure(b->attention.self, op, args, &more));
    /* room for the kernels too, which compute the cases with a mask */
    *out = (size_t)ps_max_i64(more, ps_cuda_workspace_bytes(op, args, b->gemms.workspace_bytes));
    return PS_OK;
}

#define XX(op)                                                                                                         \
    static ps_status cuda_##op##_run(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)      \
    {                                                                                                                  \
        return run(self, PS_OP_##op, queue, args, workspace_bytes);                                                    \
    }                                                                                                                  \
    static ps_status cuda_##op##_bytes(ps_backend *self, const void *args, size_t *out)                                \
    {                                                                                                                  \
        return measure(self, PS_OP_##op, args, out);                                                                   \
    }                                                                                                                  \
    static const ps_kernel cuda_##op = {.run = cuda_##op##_run, .workspace_bytes = cuda_##op##_bytes};
PS_OPS(XX)
#undef XX

static const ps_kernel *const operators[PS_OP_COUNT] = {
#define XX(op) [PS_OP_##op] = &cuda_##op,
    PS_OPS(XX)
#undef XX
};

/* ---- create, destroy ---- */

static const ps_space *space(const ps_backend *self)
{
    const cuda_backend *b = (const cuda_backend *)self;
    return b->gpu != NULL ? ps_gpu_space(b->gpu) : &b->plan_space;
}

static ps_backend *host(ps_backend *self)
{
    return ((const cuda_backend *)self)->host;
}

static void end_parts(ps_gpu *gpu, const ps_cuda_gemms *gemms, const ps_cuda_attention *attention,
                      ps_backend *host_backend)
{
    if (attention != NULL && attention->destroy != NULL) attention->destroy(attention->self);
    if (gemms->destroy != NULL) gemms->destroy(gemms->self);
    ps_backend_destroy(host_backend);
    ps_gpu_close(gpu);
}

static void destroy(ps_backend *self)
{
    cuda_backend *b = (cuda_backend *)self;
    if (b->n_modules > 0) (void)b->gpu->driver->context_set(b->gpu->context); /* lost or not */
    for (int i = 0; i < b->n_modules; i++) (void)b->gpu->driver->module_unload(b->modules[i]);
    ps_mem_free(b->modules);
    end_parts(b->gpu, &b->gemms, &b->attention, b->host);
    ps_mem_free(b);
}

static ps_status load_module(cuda_backend *b, const void *image)
{
    PS_TRY(ps_gpu_enter(b->gpu));
    const ps_cu_result r = b->gpu->driver->module_load(&b->modules[b->n_modules], image);
    if (r == PS_CU_NO_BINARY_FOR_GPU)
        return PS_FAIL(PS_ENOSYS,
                       "the kernels are not compiled for GPU %d (%s): build them with nvcc for its compute "
                       "capability",
                       b->gpu->options.ordinal, b->gpu->name);
    PS_TRY(ps_gpu_check(b->gpu, r, "kernels"));
    b->n_modules++;
    return PS_OK;
}

/* nvcc and the Makefile decide which module has it. It is loaded now: at its first launch the driver would wait until the
 * context is idle. A driver before CUDA 12.4 loads it then. */
static ps_status find_kernel(cuda_backend *b, int kernel)
{
    const char *name = ps_cuda_kernel_table[kernel].name;
    ps_cu_result r = PS_CU_NOT_FOUND;
    for (int i = 0; i < b->n_modules && r == PS_CU_NOT_FOUND; i++)
        r = b->gpu->driver->function_get(&b->functions[kernel], b->modules[i], name);
    if (r == PS_CU_NOT_FOUND)
        return PS_FAIL(PS_ENOSYS, "the kernels do not fit this library: %s is missing; build both anew", name);
    if (r == PS_CU_SUCCESS && b->gpu->driver->function_load != NULL)
        r = b->gpu->driver->function_load(b->functions[kernel]);
    return ps_gpu_check(b->gpu, r, name);
}

static ps_status load(cuda_backend *b, const ps_cuda_image *image)
{
    PS_TRY(ps_mem_alloc((size_t)image->n_modules, sizeof *b->modules, &b->modules));
    for (int i = 0; i < image->n_modules; i++) PS_TRY(load_module(b, image->modules[i]));
    for (int k = 0; k < PS_CUDA_KERNEL_COUNT; k++) PS_TRY(find_kernel(b, k));
    return PS_OK;
}

static const ps_backend_ops ops = {.name = "cuda",
                                   .kernels = operators,
                                   .epilogues = PS_EPILOGUES_ALL,
                                   .unrounded = PS_CUDA_UNROUNDED,
                                   .pairs = PS_PAIRS_ALL,
                                   .destroy = destroy,
                                   .space = space,
                                   .host = host,
                                   .own_device = PS_DEVICE_CUDA,
                                   .issues = true};

ps_status ps_backend_create_cuda(ps_gpu *gpu, const ps_cuda_image *image, const ps_cuda_gemms *gemms,
                                 const ps_cuda_attention *attention, ps_backend *host_backend, ps_backend **out)
{
    cuda_backend *b = NULL;
    *out = NULL;
    const ps_status st = ps_mem_alloc(1, sizeof *b, &b);
    if (st != PS_OK) {
        end_parts(gpu, gemms, attention, host_backend);
        return st;
    }
    *b = (cuda_backend){.base.ops = &ops, .gpu = gpu, .gemms = *gemms, .host = host_backend};
    if (attention != NULL) b->attention = *attention;
    const ps_status loaded = load(b, image);
    if (loaded == PS_OK)
        *out = &b->base;
    else
        destroy(&b->base);
    return loaded;
}

const char *ps_backend_cuda_attention(const ps_backend *backend)
{
    const cuda_backend *b = (const cuda_backend *)backend;
    if (backend == NULL || backend->ops != &ops) return NULL;
    return b->attention.self != NULL ? b->attention.name : "own kernels";
}

ps_status ps_backend_create_cuda_for_plans(int64_t page_bytes, int64_t gemm_bytes, const ps_cuda_attention *attention,
                                           ps_backend *host_backend, ps_backend **out)
{
    cuda_backend *b = NULL;
    *out = NULL;
    const ps_status st = ps_mem_alloc(1, sizeof *b, &b);
    if (st != PS_OK) {
        ps_backend_destroy(host_backend);
        return st;
    }
    *b = (cuda_backend){
        .base.ops = &ops,
        .plan_space = {.device = &ps_gpu_device_ops, .host = &ps_gpu_pinned_ops, .page_bytes = page_bytes},
        .gemms.workspace_bytes = gemm_bytes,
        .host = host_backend};
    if (attention != NULL) b->attention = *attention;
    *out = &b->base;
    return PS_OK;
}
