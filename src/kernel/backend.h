/* backend.h - something that computes: its state, and its table of operators.
 *
 * An operator has a cost and a reference kernel (ref/ref.h). A backend lists the operators that it has a kernel of its
 * own for, each with its scratch in one entry; elsewhere the reference's entry stands in as a whole, so that a kernel
 * is never run with the scratch of another.
 *
 *     plan     ps_kernel_measure(b, op, &args, &bytes)           the args that will be run, but for pointers
 *     run      ps_run_linear_fwd(b, queue, &args, bytes)         refused when this call needs more than `bytes`
 *
 * Results depend on the arguments and on what the backend was created as, but not on its number of threads; scratch
 * depends on that too. Nothing depends on the thread that calls, whatever rounding it has set. A backend can be called
 * from any thread, by several at once.
 *
 * Also compiles as C++17, for nvcc. */
#ifndef PS_KERNEL_BACKEND_H
#define PS_KERNEL_BACKEND_H

#include "kernel/cost.h"
#include "kernel/kernel.h"

typedef struct ps_backend ps_backend;
typedef struct ps_space ps_space; /* device/device.h */

/* How a backend computes one operator; args points to the struct that belongs to it. */
typedef struct ps_kernel {
    /* Compute, in the calling thread; of a backend that `issues`, give the work to `queue`. workspace_bytes: the size
     * of args' workspace, never less than the call needs. */
    ps_status (*run)(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes);
    /* *out: bytes of scratch that run needs with these args; pointers in them are not looked at. NULL: it needs none. A
     * failure leaves *out alone. */
    ps_status (*workspace_bytes)(ps_backend *self, const void *args, size_t *out);
} ps_kernel;

typedef struct ps_backend_ops {
    const char *name;                /* "ref", "cpu avx512_bf16", ... */
    const ps_kernel *const *kernels; /* [PS_OP_COUNT]; NULL: the reference's */
    unsigned epilogues;              /* 1 << ps_epilogue_kind, of those that its products have */
    unsigned unrounded;              /* of these, those that may take z before it is rounded to its type */
    unsigned pairs;                  /* 1 << ps_pair_kind, of those that it has kernels for */
    /* Around each run and measurement: make the calling thread ready (rounding), and set it back as it was; `before` is
     * what begin returned. Both NULL: nothing to do. */
    int64_t (*begin)(ps_backend *self);
    void (*end)(ps_backend *self, int64_t before);
    void (*destroy)(ps_backend *self);
    const ps_space *(*space)(const ps_backend *self); /* where its kernels' arrays must lie; NULL: in RAM */
    ps_backend *(*host)(ps_backend *self);            /* ps_backend_host; NULL: itself */
    ps_device_type own_device;                        /* whose functions of a user's operator it runs */
    bool issues; /* run issues to the queue and returns; else it computes in the thread that calls it */
} ps_backend_ops;

/* First member of every backend's state. */
struct ps_backend {
    const ps_backend_ops *ops;
};

/* All ps_backend_create_*: the caller owns *out and ends it by ps_backend_destroy; PS_ENOMEM_HOST besides the errors
 * that are named. */

/* Slow, readable, one thread, double accumulation: what the others are measured against. */
PS_NODISCARD ps_status ps_backend_create_ref(ps_backend **out);

/* Instruction sets of a cpu; each level includes those before it. */
typedef enum ps_cpu_isa {
    PS_CPU_PORTABLE,
    PS_CPU_AVX2,        /* with FMA and F16C */
    PS_CPU_AVX512,      /* F, BW, DQ, VL */
    PS_CPU_AVX512_BF16, /* dot products of bf16 */
    PS_CPU_AMX,         /* tiles: Intel's matrix unit */
    PS_CPU_ISA_COUNT,
} ps_cpu_isa;

/* The highest level that processor and operating system allow. Asks the system for the permission to use tiles, where
 * there are any. */
ps_cpu_isa ps_cpu_isa_detect(void);
const char *ps_cpu_isa_name(ps_cpu_isa isa); /* "portable", "avx2", "avx512", "avx512_bf16", "amx" */

/* How kernels of this level multiply bf16 on this processor, for reports: "by tiles of AMX", "by vdpbf16ps" (never
 * where ps_backend_create_cpu_same made the backend), or "in f32". */
const char *ps_cpu_bf16_products(ps_cpu_isa isa);

/* Threads to compute with when nobody says how many: one a core that this process may keep busy. */
int ps_cpu_threads(void);

/* `isa`: at most what ps_cpu_isa_detect says. n_threads: at least 1; any number gives the same bits. PS_ENOSYS when the
 * processor has less, or the system starts fewer threads; PS_EINVAL for n_threads < 1. Backends of several instruction
 * sets may be in use at once. */
PS_NODISCARD ps_status ps_backend_create_cpu(ps_cpu_isa isa, int n_threads, ps_backend **out);

/* The same to measure with, and not to run: no thread is started, so n_threads may be more than this machine gives. */
PS_NODISCARD ps_status ps_backend_create_cpu_for_plans(ps_cpu_isa isa, int n_threads, ps_backend **out);

/* As ps_backend_create_cpu (with plans_only: ps_backend_create_cpu_for_plans), but with the bits that all instruction
 * sets from AVX2 on have in common on every processor. So it goes without faster instructions that add in another order
 * (vdpbf16ps). PS_ENOSYS for PS_CPU_PORTABLE. */
PS_NODISCARD ps_status ps_backend_create_cpu_same(ps_cpu_isa isa, int n_threads, bool plans_only, ps_backend **out);

/* Stands for a GPU that is not here, in plans: nothing is computed. Its memory is apart from the host's, and works
 * later; its scratch is that of the kernels for GPUs (kernel/cuda). */
typedef struct ps_sim_options {
    int64_t page_bytes;    /* granularity of its memory: a multiple of PS_PAGE_BYTES */
    int64_t product_bytes; /* workspace that each matrix product is given */
    /* Who is meant to compute attention where it can: *bytes is the scratch that it takes for attention_fwd or
     * attention_bwd, -1 where it has nothing for these arguments. NULL: kernels alone. */
    ps_status (*attention)(void *self, ps_op op, const void *args, int64_t *bytes);
    void *attention_self;
} ps_sim_options;

PS_NODISCARD ps_status ps_backend_create_sim(const ps_sim_options *o, ps_backend **out);

struct ps_async_options;

/* The fake GPU of device/async.h, which it opens, and owns: its ps_backend_space has the ps_async as driver. Computes
 * with the cpu's kernels (`same`: of ps_backend_create_cpu_same) in one thread of another process, on queues of that
 * space's device, and nowhere else. Bits, scratch, epilogues and pairs are those of the cpu in one thread. Its ps_backend_host
 * is the cpu in this process, with host_threads. Devices and queues must be gone before it is destroyed. Errors as of
 * ps_backend_create_cpu and ps_async_open. */
PS_NODISCARD ps_status ps_backend_create_async(const struct ps_async_options *o, ps_cpu_isa isa, bool same,
                                               int host_threads, ps_backend **out);

/* The same to measure with, and not to run: nothing is opened, and the space has no driver. */
PS_NODISCARD ps_status ps_backend_create_async_for_plans(const struct ps_async_options *o, ps_cpu_isa isa, bool same,
                                                         int host_threads, ps_backend **out);

void ps_backend_destroy(ps_backend *b); /* NULL is accepted */

const char *ps_backend_name(const ps_backend *b);
const ps_space *ps_backend_space(const ps_backend *b);

/* What computes beside it on memory that the host can touch, that of the space's host tier included: with the same
 * bits. It belongs to b, and may be b itself. */
ps_backend *ps_backend_host(ps_backend *b);

/* For ps_backend_ops.epilogues: every one of kernel.h. */
#define PS_EPILOGUES_ALL ((1u << PS_EPILOGUE_COUNT) - 1)

/* Do its products take this epilogue? Where not, plans run the operator that follows as an instruction of its own. */
bool ps_backend_has_epilogue(const ps_backend *b, ps_epilogue_kind kind);

/* Does that epilogue have bits of its own? Then it is fused always, however a step is run, or never. */
bool ps_backend_epilogue_is_unrounded(const ps_backend *b, ps_epilogue_kind kind);

/* For ps_backend_ops.pairs. Of an operator that is a pair the reference stands in as of any other, but is not faster. */
#define PS_PAIRS_ALL ((1u << PS_PAIR_COUNT) - 1)

/* Whose functions of a user's operator does it run? */
ps_device_type ps_backend_own_device(const ps_backend *b);

/* Does it compute the two operators as one? Where not, plans run one after the other. */
bool ps_backend_has_pair(const ps_backend *b, ps_pair_kind kind);

/* The entry in force: the backend's own, or the reference's. */
const ps_kernel *ps_kernel_find(const ps_backend *b, ps_op op);

/* *workspace_bytes: what ps_kernel_run needs for args (pointers in them are not looked at). On failure it is 0. */
PS_NODISCARD ps_status ps_kernel_measure(ps_backend *b, ps_op op, const void *args, size_t *workspace_bytes);

/* An item of the queue: done when the queue comes to it, with the arguments of now; backend and arrays must last until
 * then. queue NULL: done when the call returns. PS_EINVAL, naming operator, need and what was given, when
 * workspace_bytes is too little: nothing is computed then. */
PS_NODISCARD ps_status ps_kernel_run(ps_backend *b, ps_op op, ps_queue *queue, const void *args,
                                     size_t workspace_bytes);

/* Arithmetic and memory traffic of the operator, whoever computes it. Pointers in args are not looked at. */
ps_cost ps_op_cost(ps_op op, const void *args);

/* All memory that a call touches, whoever computes it, its workspace included: addresses may lie in each other, where
 * the contract allows it. */
#define PS_USES_MAX 20

typedef struct ps_uses {
    ps_use use[PS_USES_MAX];
    int n;
    int64_t workspace_bytes; /* that the call has */
} ps_uses;

void ps_op_uses(ps_op op, const void *args, size_t workspace_bytes, ps_uses *out);

/* ps_run_linear_fwd(b, queue, &args, bytes) and so on: ps_kernel_run with the operator's own type of arguments. */
#define XX(op)                                                                                                         \
    PS_NODISCARD static inline ps_status ps_run_##op(ps_backend *b, ps_queue *queue, const ps_##op##_args *args,       \
                                                     size_t workspace_bytes)                                           \
    {                                                                                                                  \
        return ps_kernel_run(b, PS_OP_##op, queue, args, workspace_bytes);                                             \
    }
PS_OPS(XX)
#undef XX

#endif
