/* cpu_matmul.h - matrix products of any types; for the files in isa/. */
#ifndef PS_KERNEL_CPU_MATMUL_H
#define PS_KERNEL_CPU_MATMUL_H

#include "kernel/cpu/cpu_dnnl.h"
#include "kernel/cpu/cpu_isa.h"

/* As ps_dnnl_matmul, for all types. Where this instruction set cannot multiply a type, operands are converted to f32
 * block by block, so that scratch is bounded whatever the shape. m, n, k == 0: c = bias or 0, or unchanged when
 * accumulating. */
PS_NODISCARD ps_status PS_CPU_NAME(matmul)(ps_cpu *cpu, const ps_matmul *p, void *workspace, size_t workspace_bytes);
PS_NODISCARD ps_status PS_CPU_NAME(matmul_bytes)(ps_cpu *cpu, const ps_matmul *p, size_t *out);

/* *most: at least the scratch of this product too. */
PS_NODISCARD ps_status PS_CPU_NAME(matmul_most)(ps_cpu *cpu, const ps_matmul *p, size_t *most);

/* out[n] (+)= column sums of x[rows, n], whose rows are ld elements apart; sums in float, in order of rows. */
void PS_CPU_NAME(column_sums)(void *out, ps_dtype out_dtype, const void *x, ps_dtype dtype, int64_t rows, int64_t n,
                              int64_t ld, bool accumulate);

#endif
