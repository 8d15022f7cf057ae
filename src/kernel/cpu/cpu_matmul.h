/* cpu_matmul.h - matrix multiplication of all types.
 *
 *     c[m, n] (+)= a[m, k] b[k, n] + bias[n]
 *
 * bf16 has the order of arithmetic of cpu_amx.h; f32 and f16 sum over ascending k with FMA. */
#ifndef PS_KERNEL_CPU_MATMUL_H
#define PS_KERNEL_CPU_MATMUL_H

#include "kernel/cpu/cpu_isa.h"

/* Rows of c, a, b start at ldc, lda, ldb elements. a_transposed: a is stored [k, m]; b_transposed: b is stored [n, k].
 * Pointers are aligned to their elements. c overlaps no operand. */
typedef struct ps_matmul {
    void *c;
    const void *a, *b, *bias; /* bias: of ab_dtype, or NULL */
    int64_t m, n, k;
    int64_t lda, ldb, ldc;
    bool a_transposed, b_transposed;
    bool accumulate; /* add to c, one rounding of the sum */
    ps_dtype ab_dtype, c_dtype;
} ps_matmul;

#ifdef PS_ISA

/* m, n, k == 0: c = bias or 0, or unchanged when accumulating. workspace: 64-byte aligned, of workspace_bytes;
 * PS_EINVAL when that is less than matmul_bytes. */
PS_NODISCARD ps_status PS_CPU_NAME(matmul)(ps_cpu *cpu, const ps_matmul *p, void *workspace, size_t workspace_bytes);

/* *out: scratch, a function of p without its pointers, and of the number of threads. */
PS_NODISCARD ps_status PS_CPU_NAME(matmul_bytes)(ps_cpu *cpu, const ps_matmul *p, size_t *out);

/* *most: raised to at least this scratch. */
PS_NODISCARD ps_status PS_CPU_NAME(matmul_most)(ps_cpu *cpu, const ps_matmul *p, size_t *most);

/* out[n] (+)= column sums of x[rows, n], at row stride ld; sums in float, in order of rows. */
void PS_CPU_NAME(column_sums)(ps_cpu *cpu, void *out, ps_dtype out_dtype, const void *x, ps_dtype dtype, int64_t rows,
                              int64_t n, int64_t ld, bool accumulate);

#endif

#endif
