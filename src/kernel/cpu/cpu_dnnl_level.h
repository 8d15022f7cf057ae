/* cpu_dnnl_level.h - the instruction sets that oneDNN may use. It takes them for the whole process at its first call. */
#ifndef PS_KERNEL_CPU_DNNL_LEVEL_H
#define PS_KERNEL_CPU_DNNL_LEVEL_H

#include "kernel/backend.h"
#include "kernel/cpu/cpu_tiles.h"

typedef enum ps_dnnl_level {
    PS_DNNL_SSE41,
    PS_DNNL_AVX2,
    PS_DNNL_AVX512,
    PS_DNNL_AVX512_BF16,
    PS_DNNL_AS_IS, /* nothing to set: all it finds, or what the user's environment says */
} ps_dnnl_level;

/* For kernels of `isa` on a processor with these tiles. `asked`: the value of ONEDNN_MAX_CPU_ISA, NULL or an unknown name when there
 * is none; a level below ours is left in force. */
ps_dnnl_level ps_dnnl_level_of(ps_cpu_isa isa, const ps_cpu_tiles *tiles, const char *asked);

/* The kernels that have their products in oneDNN when its level is `asked`; all of them without one. */
ps_cpu_isa ps_dnnl_level_allows(const char *asked);

/* The value of ONEDNN_MAX_CPU_ISA, or of DNNL_MAX_CPU_ISA, its older name; or NULL. */
const char *ps_dnnl_level_asked(void);

/* "oneDNN 2.6.3 <commit>" */
void ps_dnnl_version(char *out, size_t size);

/* From here on oneDNN works at the level for `isa` in this process; before its first other call. PS_ESTATE when another level was
 * fixed before; PS_EDEVICE, saying what to set, when somebody else has used oneDNN in this process in a way that cannot hold. */
PS_NODISCARD ps_status ps_dnnl_level_fix(ps_cpu_isa isa);

/* The same, for who can do with any level: the one that is fixed, or the best. */
PS_NODISCARD ps_status ps_dnnl_level_fix_any(void);

#endif
