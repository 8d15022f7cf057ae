/* cpu_gemm_epilogue.h - converts finished sums to elements of c. All matrix multiplication stores results by it, except
 * whole rows in isa_gemm_tiles.c, with the same arithmetic. For the files in isa/. */
#ifndef PS_KERNEL_CPU_GEMM_EPILOGUE_H
#define PS_KERNEL_CPU_GEMM_EPILOGUE_H

#include "kernel/cpu/cpu_matmul.h"
#include "kernel/cpu/cpu_vec.h"

PS_CPU_INLINE void gemm_epilogue_as(ps_dtype t, const ps_matmul *p, int64_t row, int64_t col, int64_t n,
                                    const float *sums, bool streams)
{
    const int64_t at = row * p->ldc + col;
    for (int64_t j = 0; j < n; j += VF_LANES) {
        vf v = vf_get(PS_DTYPE_F32, sums, j, n - j);
        if (p->bias) v += vf_get(p->ab_dtype, p->bias, col + j, n - j);
        if (p->accumulate) v += vf_get(t, p->c, at + j, n - j);
        if (streams && t == PS_DTYPE_F32 && n - j >= VF_LANES)
            vf_stream((float *)p->c + at + j, v);
        else
            vf_put(t, p->c, at + j, n - j, v);
    }
}

/* Store elements [col, col + n) of a row of c from their sums; with `streams`, f32 by non-temporal stores. */
PS_CPU_INLINE void gemm_epilogue(const ps_matmul *p, int64_t row, int64_t col, int64_t n, const float *sums,
                                 bool streams)
{
#define CALL(t) gemm_epilogue_as(t, p, row, col, n, sums, streams)
    PS_CPU_BY_DTYPE(p->c_dtype, CALL);
#undef CALL
}

#endif
