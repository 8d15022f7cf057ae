/* cpu_tiles.h - whether the matrix tiles of Intel AMX can be used. */
#ifndef PS_KERNEL_CPU_TILES_H
#define PS_KERNEL_CPU_TILES_H

#include "kernel/cpu/cpu_probe.h"

/* Whether this process may use bf16 tiles: CPU and system support them, and the system grants the permission that this
 * function requests for all present and future threads. The system refuses while a thread has an alternate signal stack
 * too small for the tile state (sigaltstack below getauxval(AT_MINSIGSTKSZ)). CPUID leaf 0x1D, which describes the
 * tiles, is ignored: palette 1 is the same on all CPUs, and virtual machines leave the leaf empty. */
bool ps_cpu_tiles_permit(const ps_cpu_probe *probe);

#endif
