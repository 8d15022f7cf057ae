/* cpu_tiles.h - whether the matrix tiles of Intel's AMX can be used. */
#ifndef PS_KERNEL_CPU_TILES_H
#define PS_KERNEL_CPU_TILES_H

#include "kernel/cpu/cpu_probe.h"

/* This process may use tiles of bf16: processor and system have them, and the system gave the permission that is asked
 * for here, for all threads of now and later. It refuses while a thread has an alternate signal stack too small for the
 * tiles' state (sigaltstack below getauxval(AT_MINSIGSTKSZ)). CPUID leaf 0x1D, which describes the tiles, does not
 * matter: palette 1 is the same on all processors, and virtual machines leave the leaf empty. */
bool ps_cpu_tiles_permit(const ps_cpu_probe *probe);

#endif
