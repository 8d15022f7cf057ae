/* cpu_isa.h - compiles one source to a kernel for each instruction set.
 *
 * The files in isa/ are compiled once for each level of ps_cpu_isa except the last, with PS_ISA as its name and with
 * its compiler flags. PS_CPU_AMX uses the objects of avx512_bf16, which check the backend's level before they use
 * tiles. PS_CPU_NAME(add) is then ps_cpu_add_avx2 and so on, so that one library has all levels, and the level is
 * chosen at run time. No other file is compiled with these flags, or may include cpu_vec.h. */
#ifndef PS_KERNEL_CPU_ISA_H
#define PS_KERNEL_CPU_ISA_H

#include "base/base.h"
#include "kernel/cpu/cpu_backend.h"

#define PS_CPU_PASTE2(fn, isa) ps_cpu_##fn##_##isa
#define PS_CPU_PASTE(fn, isa) PS_CPU_PASTE2(fn, isa)
#define PS_CPU_NAME(fn) PS_CPU_PASTE(fn, PS_ISA)

#define PS_CPU_INLINE static inline __attribute__((always_inline))

/* [PS_OP_COUNT] kernels of each level; NULL: the reference is used. */
extern const ps_kernel *const ps_cpu_kernels_portable[];
extern const ps_kernel *const ps_cpu_kernels_avx2[];
extern const ps_kernel *const ps_cpu_kernels_avx512[];
extern const ps_kernel *const ps_cpu_kernels_avx512_bf16[];

#ifdef PS_ISA

/* Kernels of isa_table.c, defined in isa/. */
#define XX(op) extern const ps_kernel PS_CPU_NAME(op);
PS_OPS(XX)
#undef XX

#endif

/* Number of elements below which a second thread costs more than it gains. */
#define PS_CPU_PARALLEL_MIN 16384

/* Elements of one block of elementwise work. */
#define PS_CPU_BLOCK 4096

/* Call range for all of [0, n), divided at block boundaries, on all threads. */
static inline void ps_cpu_for_blocks(ps_backend *self, int64_t n, ps_cpu_range range, const void *args)
{
    ps_cpu_pool_run_range(ps_cpu_of(self)->pool, n, PS_CPU_BLOCK, PS_CPU_PARALLEL_MIN, range, args);
}

/* Call range for all of the rows [0, rows), of `cols` elements each, on all threads. */
static inline void ps_cpu_for_rows(ps_backend *self, int64_t rows, int64_t cols, ps_cpu_range range, const void *args)
{
    ps_cpu_pool_run_range(ps_cpu_of(self)->pool, rows, 1, ps_ceil_div(PS_CPU_PARALLEL_MIN, ps_max_i64(cols, 1)), range,
                          args);
}

/* Run call(dtype constant) for a dtype: one body, which the compiler specialises for each type. */
#define PS_CPU_BY_DTYPE(dtype, call)                                                                                   \
    do {                                                                                                               \
        if ((dtype) == PS_DTYPE_F32)                                                                                   \
            call(PS_DTYPE_F32);                                                                                        \
        else if ((dtype) == PS_DTYPE_BF16)                                                                             \
            call(PS_DTYPE_BF16);                                                                                       \
        else                                                                                                           \
            call(PS_DTYPE_F16);                                                                                        \
    } while (0)

/* Address of element i. */
static inline void *ps_cpu_at(ps_dtype t, void *array, int64_t i)
{
    return (char *)array + i * (int64_t)ps_dtype_bytes(t);
}

static inline const void *ps_cpu_at_const(ps_dtype t, const void *array, int64_t i)
{
    return (const char *)array + i * (int64_t)ps_dtype_bytes(t);
}

/* Allocate `bytes` from *workspace, aligned to 64. */
static inline void *ps_cpu_take(char **workspace, int64_t bytes)
{
    char *const p = *workspace;
    *workspace += ps_round_up(bytes, 64);
    return p;
}

/* Remaining bytes of the workspace from `at` on. */
static inline size_t ps_cpu_remainder(const void *workspace, size_t workspace_bytes, const char *at)
{
    const size_t taken = (size_t)(at - (const char *)workspace);
    return taken < workspace_bytes ? workspace_bytes - taken : 0;
}

#endif
