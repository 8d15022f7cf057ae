/* The cpu backend: reference slots first, then the tables of isa/ for the level asked for. */
#include "kernel/cpu/cpu_isa.h"

void ps_kernels_init_cpu(ps_kernels *k, ps_cpu_isa isa)
{
    const ps_cpu_isa best = ps_cpu_isa_detect();
    ps_kernels_init_ref(k);
    switch (isa < best ? isa : best) {
#if defined(__x86_64__)
    case PS_CPU_AVX512_BF16: ps_cpu_table_avx512_bf16(k); break;
    case PS_CPU_AVX512: ps_cpu_table_avx512(k); break;
    case PS_CPU_AVX2: ps_cpu_table_avx2(k); break;
#else
    case PS_CPU_AVX512_BF16:
    case PS_CPU_AVX512:
    case PS_CPU_AVX2:
#endif
    case PS_CPU_ISA_COUNT:
    case PS_CPU_PORTABLE: ps_cpu_table_portable(k); break;
    }
}
