/* cpu_isa.h - how one source becomes a kernel for each instruction set.
 *
 * The files in isa/ are compiled once for each level of ps_cpu_isa, with PS_ISA naming it and the compiler's flags to
 * match. PS_CPU_NAME(add) is then ps_cpu_add_avx2 or alike, so that all levels live side by side in one library and a
 * program chooses at run time. Nothing else may be compiled with these flags: cpu_vec.h refuses it. */
#ifndef PS_KERNEL_CPU_ISA_H
#define PS_KERNEL_CPU_ISA_H

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/base.h"
#include "kernel/kernel.h"

#define PS_CPU_PASTE2(fn, isa) ps_cpu_##fn##_##isa
#define PS_CPU_PASTE(fn, isa) PS_CPU_PASTE2(fn, isa)
#define PS_CPU_NAME(fn) PS_CPU_PASTE(fn, PS_ISA)

#define PS_CPU_INLINE static inline __attribute__((always_inline))

/* Overrides the slots of k that this level does faster than the reference, and the name. */
void ps_cpu_table_portable(ps_kernels *k);
void ps_cpu_table_avx2(ps_kernels *k);
void ps_cpu_table_avx512(ps_kernels *k);
void ps_cpu_table_avx512_bf16(ps_kernels *k);

#ifdef PS_ISA

#define XX(op, args) ps_status PS_CPU_NAME(op)(ps_stream * s, const args *a);
#include "kernel/op.def"
#undef XX

/* Scratch of the operators that need any; shapes as in kernel.h. */
size_t PS_CPU_NAME(linear_fwd_bytes)(const ps_linear_fwd_args *a);
size_t PS_CPU_NAME(linear_bwd_input_bytes)(const ps_linear_bwd_input_args *a);
size_t PS_CPU_NAME(linear_bwd_weight_bytes)(const ps_linear_bwd_weight_args *a);
size_t PS_CPU_NAME(layernorm_bwd_bytes)(const ps_layernorm_bwd_args *a);
size_t PS_CPU_NAME(rope_bytes)(const ps_rope_args *a);
size_t PS_CPU_NAME(attention_fwd_bytes)(const ps_attention_fwd_args *a);
size_t PS_CPU_NAME(attention_bwd_bytes)(const ps_attention_bwd_args *a);
size_t PS_CPU_NAME(embedding_bwd_bytes)(const ps_embedding_bwd_args *a);
size_t PS_CPU_NAME(lm_loss_fwd_bytes)(const ps_lm_loss_fwd_args *a);
size_t PS_CPU_NAME(lm_loss_bwd_bytes)(const ps_lm_loss_bwd_args *a);

#endif

/* Threads the next parallel region may use. Partitions of sums are made of this number, never of the size of the team
 * that comes, which the OpenMP runtime may choose smaller. */
static inline int64_t ps_cpu_n_threads(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

static inline int64_t ps_cpu_thread_index(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* Elements below which a second thread costs more than it brings. */
#define PS_CPU_PARALLEL_MIN 16384

/* Elements of one unit of elementwise work. */
#define PS_CPU_BLOCK 4096

/* Run range(args, lo, hi) over [0, n) in blocks, on all threads. */
#define PS_CPU_FOR_BLOCKS(n, range, args)                                                                              \
    do {                                                                                                               \
        const int64_t n_ = (n), n_blocks_ = ps_ceil_div(n_, PS_CPU_BLOCK);                                             \
        _Pragma("omp parallel for schedule(static) if (n_ >= PS_CPU_PARALLEL_MIN)") for (int64_t b_ = 0;               \
                                                                                         b_ < n_blocks_; b_++)         \
            range(args, b_ *PS_CPU_BLOCK, ps_min_i64(n_, (b_ + 1) * PS_CPU_BLOCK));                                    \
    } while (0)

/* Run call(dtype constant) for the dtype at hand: one body, specialised by the compiler for each type. */
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

/* Carve `bytes` from *workspace; pieces start at multiples of 64. */
static inline void *ps_cpu_take(char **workspace, int64_t bytes)
{
    char *const p = *workspace;
    *workspace += ps_round_up(bytes, 64);
    return p;
}

#endif
