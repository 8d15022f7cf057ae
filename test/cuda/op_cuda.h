/* op_cuda.h - a backend for operator tests that computes with the kernels for a GPU, on the host's emulator; matrix
 * products, which a library of CUDA has, are plain loops. Several of them differ in the order of blocks and threads: bits
 * must not. */
#ifndef TEST_CUDA_OP_CUDA_H
#define TEST_CUDA_OP_CUDA_H

#include "cuda/emulate.h"
#include "cuda/kernel_limits.h"
#include "kernel/cuda/cuda_operator.h"
#include "kernel/op_check.h"
#include "kernel/own.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

#define OP_CUDA_GEMM_BYTES 512

typedef struct op_cuda_backend {
    ps_backend base;
    unsigned seed;
} op_cuda_backend;

/* Reading the guards of arrays is an error too, where AddressSanitizer is on. */
static inline void op_cuda_guard(bool is_on)
{
    for (int i = 0; i < op_now.n_arrays; i++) {
        const op_array *a = &op_now.arrays[i];
        unsigned char *const guards[] = {a->data - OP_GUARD_BYTES, a->data + a->bytes};
        for (int g = 0; g < 2; g++)
            if (is_on)
                ASAN_POISON_MEMORY_REGION(guards[g], OP_GUARD_BYTES);
            else
                ASAN_UNPOISON_MEMORY_REGION(guards[g], OP_GUARD_BYTES);
    }
}

/* Arrays of the test are what there is of global memory. */
static inline bool op_cuda_find(uint64_t address, uint64_t *begin, uint64_t *end)
{
    for (int i = 0; i < op_now.n_arrays; i++) {
        *begin = (uint64_t)(uintptr_t)op_now.arrays[i].data, *end = *begin + op_now.arrays[i].bytes;
        if (address >= *begin && address < *end) return true;
    }
    return false;
}

static inline ps_status op_cuda_launch(void *self, const ps_cuda_launch *l)
{
    op_cuda_backend *b = self;
    unsigned char args[1024] __attribute__((aligned(64)));
    assert_true(l->args_bytes <= sizeof args);
    if ((int64_t)l->shared_bytes > kernel_limits_dynamic(l->kernel))
        fail_msg("%s: %u bytes of shared memory are asked for, " KERNEL_LIMITS_PATH " allows %lld (-1: it has no line)",
                 ps_cuda_kernel_table[l->kernel].name, (unsigned)l->shared_bytes,
                 (long long)kernel_limits_dynamic(l->kernel));
    memcpy(args, l->args, l->args_bytes); /* as a driver would */
    op_cuda_guard(true);
    emulate_over(op_cuda_find);
    emulate(l->kernel, l->blocks, l->shared_bytes, args, b->seed++);
    op_cuda_guard(false);
    return PS_OK;
}

static inline double op_cuda_element(const ps_cuda_matrix *m, int64_t row, int64_t col)
{
    return (double)ps_dtype_load(m->dtype, m->data, m->is_transposed ? col * m->stride + row : row * m->stride + col);
}

/* Of x Phi(x) in its tanh form. */
static inline double op_cuda_gelu_derivative(double x)
{
    const double s = sqrt(2 / acos(-1.0)), t = tanh(s * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * s * (1 + 3 * 0.044715 * x * x);
}

/* It has some products that something follows, by shape: kernels follow the others. */
static inline ps_status op_cuda_gemm(void *self, const ps_cuda_gemm *p, bool *is_done)
{
    (void)self;
    *is_done = (p->addend == NULL && p->gelu_x == NULL) || (p->m + p->n + p->k) % 3 != 0;
    if (!*is_done) return PS_OK;
    assert_true(p->m > 0 && p->n > 0 && p->k > 0);
    assert_true(p->bias == NULL || (p->y_dtype == p->a.dtype && !p->accumulate));
    memset(p->workspace, 0xC3, OP_CUDA_GEMM_BYTES); /* it is the library's */
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            const int64_t at = i * p->y_stride + j;
            double sum = p->accumulate ? (double)ps_dtype_load(p->y_dtype, p->y, at) : 0.0;
            if (p->bias != NULL) sum += (double)ps_dtype_load(p->a.dtype, p->bias, j);
            if (p->addend != NULL) sum += (double)ps_dtype_load(p->y_dtype, p->addend, at);
            for (int64_t l = 0; l < p->k; l++) sum += op_cuda_element(&p->a, i, l) * op_cuda_element(&p->b, l, j);
            if (p->gelu_x != NULL) sum *= op_cuda_gelu_derivative((double)ps_dtype_load(p->y_dtype, p->gelu_x, at));
            ps_dtype_store(p->y_dtype, p->y, at, (float)sum);
        }
    return PS_OK;
}

/* A function that computes in the emulator's memory, which is the host's. */
static inline ps_status op_cuda_own(void *self, const ps_own_args *a, const ps_own_call *call)
{
    (void)self;
    return ps_own_run(a, call);
}

static inline ps_status op_cuda_run(ps_backend *self, ps_op op, const void *args, size_t workspace_bytes)
{
    const ps_cuda_issuer to = {.launch = op_cuda_launch,
                               .gemm = op_cuda_gemm,
                               .own = op_cuda_own,
                               .self = self,
                               .gemm_bytes = OP_CUDA_GEMM_BYTES};
    return ps_cuda_run(&to, op, args, workspace_bytes);
}

#define XX(op)                                                                                                         \
    static inline ps_status op_cuda_##op(ps_backend *self, ps_queue *queue, const void *args, size_t workspace_bytes)  \
    {                                                                                                                  \
        (void)queue;                                                                                                   \
        return op_cuda_run(self, PS_OP_##op, args, workspace_bytes);                                                   \
    }                                                                                                                  \
    static inline ps_status op_cuda_##op##_bytes(ps_backend *self, const void *args, size_t *out)                      \
    {                                                                                                                  \
        (void)self;                                                                                                    \
        *out = (size_t)ps_cuda_workspace_bytes(PS_OP_##op, args, OP_CUDA_GEMM_BYTES);                                  \
        return PS_OK;                                                                                                  \
    }                                                                                                                  \
    static const ps_kernel op_cuda_kernel_##op = {.run = op_cuda_##op, .workspace_bytes = op_cuda_##op##_bytes};
PS_OPS(XX)
#undef XX

static const ps_kernel *const op_cuda_kernels[PS_OP_COUNT] = {
#define XX(op) [PS_OP_##op] = &op_cuda_kernel_##op,
    PS_OPS(XX)
#undef XX
};

/* Number 0 or 1. There until the program ends. */
static inline ps_backend *op_cuda(int i)
{
    static const ps_backend_ops ops = {.name = "emulated GPU",
                                       .kernels = op_cuda_kernels,
                                       .epilogues = PS_EPILOGUES_ALL,
                                       .unrounded = PS_CUDA_UNROUNDED};
    static op_cuda_backend made[2] = {{.base.ops = &ops, .seed = 1}, {.base.ops = &ops, .seed = 1000003}};
    return &made[i].base;
}

#endif
