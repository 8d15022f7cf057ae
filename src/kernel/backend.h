/* backend.h - a compute backend: its state, and its table of operators.
 *
 * An operator has a cost and a reference kernel (ref/ref.h). A backend lists its own kernels, each entry with its
 * scratch size. For other operators the whole entry of the reference is used, so that a kernel never runs with the
 * scratch size of another one.
 *
 *     plan     ps_kernel_measure(b, op, &args, &bytes)           with the args of the run, except pointers
 *     run      ps_run_linear_fwd(b, queue, &args, bytes)         an error when this call needs more than `bytes`
 *
 * Results depend on the arguments and the kind of backend, not on its number of threads; scratch sizes also depend on
 * that number. Results do not depend on the calling thread or its rounding mode. Any thread may call a backend, several
 * at once.
 *
 * Also compiles as C++17, for nvcc. */
#ifndef PS_KERNEL_BACKEND_H
#define PS_KERNEL_BACKEND_H

#include "kernel/cost.h"
#include "kernel/kernel.h"

typedef struct ps_backend ps_backend;
typedef struct ps_space ps_space; /* device/device.h */

/* A backend's kernel of one operator; args points to the operator's struct. */
typedef struct ps_kernel {
    /* Compute, in the calling thread; a backend with `issues` adds the work to `queue`. workspace_bytes: size of args'
     * workspace, at least what the call needs. */
    ps_status (*run)(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes);
    /* *out: scratch bytes of `run` with these args, whose pointers are not read. NULL: none. *out is unchanged on
     * failure. */
    ps_status (*workspace_bytes)(ps_backend *self, const void *args, size_t *out);
} ps_kernel;

typedef struct ps_backend_ops {
    const char *name;                /* "ref", "cpu avx512_bf16", ... */
    const ps_kernel *const *kernels; /* [PS_OP_COUNT]; NULL: the reference's */
    unsigned epilogues;              /* 1 << ps_epilogue_kind for each fused epilogue of its matrix multiplication */
    unsigned unrounded;              /* of these, epilogues that may use z before it is rounded to its type */
    unsigned pairs;                  /* 1 << ps_pair_kind for each fused pair */
    /* Called around each run and measurement: set the rounding mode of the calling thread, and restore it; `before` is
     * the result of begin. Both NULL: not needed. */
    int64_t (*begin)(ps_backend *self);
    void (*end)(ps_backend *self, int64_t before);
    void (*destroy)(ps_backend *self);
    const ps_space *(*space)(const ps_backend *self); /* memory of its kernels' arrays; NULL: RAM */
    ps_backend *(*host)(ps_backend *self);            /* ps_backend_host; NULL: itself */
    ps_device_type own_device;                        /* the functions of a user's operator that it runs */
    bool issues; /* run adds work to the queue and returns; else it computes in the calling thread */
} ps_backend_ops;

/* First member of every backend's state. */
struct ps_backend {
    const ps_backend_ops *ops;
};

/* For all ps_backend_create_*: the caller owns *out and destroys it by ps_backend_destroy. PS_ENOMEM_HOST in addition
 * to the errors below. */

/* The reference, against which the others are tested: simple loops, one thread, double accumulation. */
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

/* The highest level that CPU and operating system allow. Requests permission to use tiles, where the CPU has them. */
ps_cpu_isa ps_cpu_isa_detect(void);
const char *ps_cpu_isa_name(ps_cpu_isa isa); /* "portable", "avx2", "avx512", "avx512_bf16", "amx" */

/* How kernels of this level multiply bf16 on this CPU, for reports: "by tiles of AMX", "by vdpbf16ps" (never for
 * backends of ps_backend_create_cpu_same), or "in f32". */
const char *ps_cpu_bf16_gemms(ps_cpu_isa isa);

/* Default number of compute threads: one for each core that this process may use. */
int ps_cpu_threads(void);

/* isa: at most that of ps_cpu_isa_detect. n_threads: at least 1; bits do not depend on it. PS_ENOSYS when the CPU lacks
 * isa, or the system starts fewer threads; PS_EINVAL for n_threads < 1. Backends of several instruction sets may exist
 * at once. */
PS_NODISCARD ps_status ps_backend_create_cpu(ps_cpu_isa isa, int n_threads, ps_backend **out);

/* The same for ps_kernel_measure only: no thread is started, so n_threads may exceed what this machine allows. */
PS_NODISCARD ps_status ps_backend_create_cpu_for_plans(ps_cpu_isa isa, int n_threads, ps_backend **out);

/* As ps_backend_create_cpu (with plans_only: ps_backend_create_cpu_for_plans), but with the same bits for all
 * instruction sets from AVX2 on, on every CPU. So it does not use faster instructions that add in another order
 * (vdpbf16ps). PS_ENOSYS for PS_CPU_PORTABLE. */
PS_NODISCARD ps_status ps_backend_create_cpu_same(ps_cpu_isa isa, int n_threads, bool plans_only, ps_backend **out);

/* Simulates a GPU in plans: nothing is computed. Its memory is discrete and asynchronous; its scratch is that of the
 * GPU kernels (kernel/cuda). */
typedef struct ps_sim_options {
    int64_t page_bytes; /* granularity of its memory: a multiple of PS_PAGE_BYTES */
    int64_t gemm_bytes; /* workspace of each matrix multiplication */
    /* The library that computes attention where it can: *bytes is its scratch for attention_fwd or attention_bwd, -1
     * where it does not support these arguments. NULL: kernels only. */
    ps_status (*attention)(void *self, ps_op op, const void *args, int64_t *bytes);
    void *attention_self;
} ps_sim_options;

PS_NODISCARD ps_status ps_backend_create_sim(const ps_sim_options *o, ps_backend **out);

void ps_backend_destroy(ps_backend *b); /* NULL is accepted */

const char *ps_backend_name(const ps_backend *b);
const ps_space *ps_backend_space(const ps_backend *b);

/* The backend with the same bits that computes on host memory, including that of the space's host tier. b owns it; it
 * may be b itself. */
ps_backend *ps_backend_host(ps_backend *b);

/* For ps_backend_ops.epilogues: all epilogues of kernel.h. */
#define PS_EPILOGUES_ALL ((1u << PS_EPILOGUE_COUNT) - 1)

/* Whether its matrix multiplication has this epilogue fused. If not, plans run the following operator as a separate
 * instruction. */
bool ps_backend_has_epilogue(const ps_backend *b, ps_epilogue_kind kind);

/* Whether the bits of the fused epilogue differ from those of separate operators. It is then either fused in every
 * plan, or in none. */
bool ps_backend_epilogue_is_unrounded(const ps_backend *b, ps_epilogue_kind kind);

/* For ps_backend_ops.pairs. The reference also has an operator for each pair, but it is not faster. */
#define PS_PAIRS_ALL ((1u << PS_PAIR_COUNT) - 1)

/* Which functions of a user's operator it runs. */
ps_device_type ps_backend_own_device(const ps_backend *b);

/* Whether it fuses the two operators. If not, plans run one after the other. */
bool ps_backend_has_pair(const ps_backend *b, ps_pair_kind kind);

/* The entry that is used: the backend's own, or the reference's. */
const ps_kernel *ps_kernel_find(const ps_backend *b, ps_op op);

/* *workspace_bytes: scratch of ps_kernel_run for args, whose pointers are not read. 0 on failure. */
PS_NODISCARD ps_status ps_kernel_measure(ps_backend *b, ps_op op, const void *args, size_t *workspace_bytes);

/* Add the call to the queue as an item; args are copied, backend and arrays must live until the item is done. queue
 * NULL: the call is synchronous. PS_EINVAL, naming the operator, the need and workspace_bytes, when workspace_bytes is
 * too small; nothing is computed then. */
PS_NODISCARD ps_status ps_kernel_run(ps_backend *b, ps_op op, ps_queue *queue, const void *args,
                                     size_t workspace_bytes);

/* Arithmetic and memory traffic of the operator, for any backend. Pointers in args are not read. */
ps_cost ps_op_cost(ps_op op, const void *args);

/* All memory that a call accesses on any backend, workspace included. Ranges may overlap where the contract allows
 * it. */
#define PS_USES_MAX 20

typedef struct ps_uses {
    ps_use use[PS_USES_MAX];
    int n;
    int64_t workspace_bytes; /* of the call */
} ps_uses;

void ps_op_uses(ps_op op, const void *args, size_t workspace_bytes, ps_uses *out);

/* ps_run_linear_fwd(b, queue, &args, bytes) and so on: ps_kernel_run with typed arguments. */
#define XX(op)                                                                                                         \
    PS_NODISCARD static inline ps_status ps_run_##op(ps_backend *b, ps_queue *queue, const ps_##op##_args *args,       \
                                                     size_t workspace_bytes)                                           \
    {                                                                                                                  \
        return ps_kernel_run(b, PS_OP_##op, queue, args, workspace_bytes);                                             \
    }
PS_OPS(XX)
#undef XX

#endif
