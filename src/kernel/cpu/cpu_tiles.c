#include "kernel/cpu/cpu_tiles.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux 5.16: arch_prctl; the number of the state is that of XCR0's bit. */
#define ARCH_GET_XCOMP_SUPP 0x1021
#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_TILE_DATA 18

#define BIT_OSXSAVE (1U << 27)
#define BIT_AMX_BF16 (1U << 22)
#define BIT_AMX_TILE (1U << 24)

/* States that the system saves: SSE, AVX, AVX-512, the tiles' configuration and data. */
#define STATES 0x600e6U

static bool system_saves_tiles(void)
{
    unsigned a, b, c, d, low, high;
    unsigned long supported = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & BIT_OSXSAVE)) return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & STATES) == STATES && syscall(SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &supported) == 0 &&
           (supported >> XFEATURE_TILE_DATA & 1);
}

bool ps_cpu_tiles_permit(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & BIT_AMX_TILE) || !(d & BIT_AMX_BF16)) return false;
    return system_saves_tiles() && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILE_DATA) == 0;
}
