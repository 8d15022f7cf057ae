/* cpu_tiles.h - whether the matrix tiles of Intel's AMX can be used: what the processor announces, and what is behind it.
 *
 * Virtual machines may show the flags of AMX and have its state enabled, but leave CPUID leaf 0x1D, which describes the tiles,
 * empty (seen: Emerald Rapids under Firecracker). A library that lays out its tiles by that leaf then dies of an illegal
 * instruction. */
#ifndef PS_KERNEL_CPU_TILES_H
#define PS_KERNEL_CPU_TILES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ps_cpu_tiles {
    bool has_tile, has_bf16;           /* CPUID 7: amx_tile, amx_bf16 */
    uint32_t max_palette;              /* CPUID 0x1D.0 */
    uint32_t row_bytes, rows, n_names; /* CPUID 0x1D.1: palette 1 */
    uint64_t xcr0;                     /* states that the system saves; tiles are bits 17 and 18 */
    bool is_permitted;                 /* the system lets this process use them */
} ps_cpu_tiles;

/* Of the processor it runs on. Asks the system for the permission, as everybody does who wants to use tiles. */
ps_cpu_tiles ps_cpu_tiles_detect(void);

/* Something announces tiles. */
static inline bool ps_cpu_tiles_are_announced(const ps_cpu_tiles *t)
{
    return t->has_tile || t->has_bf16;
}

/* They can be used: announced, described as palette 1 of all processors so far (8 tiles of 16 rows of 64 bytes), saved by the
 * system, and permitted. */
bool ps_cpu_tiles_work(const ps_cpu_tiles *t);

/* This process may use tiles of bf16: processor and system have them, and the system gave the permission that is asked for here, for all
 * threads of now and later. It refuses while a thread has an alternate signal stack too small for the tiles' state (sigaltstack below
 * getauxval(AT_MINSIGSTKSZ)). CPUID leaf 0x1D does not matter: palette 1 is the same on all processors. */
bool ps_cpu_tiles_permit(void);

#endif
