#include "kernel/cpu/cpu_tiles.h"

/* Linux 5.16: arch_prctl; the number of the state is that of XCR0's bit. */
#define ARCH_GET_XCOMP_SUPP 0x1021
#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_TILE_DATA 18

#define BIT_OSXSAVE (1U << 27)
#define BIT_AMX_BF16 (1U << 22)
#define BIT_AMX_TILE (1U << 24)

/* States that the system saves: SSE, AVX, AVX-512, the tiles' configuration and data. */
#define STATES UINT64_C(0x600e6)

static bool system_saves_tiles(const ps_cpu_probe *probe)
{
    uint32_t leaf[PS_CPUID_REGISTERS];
    uint64_t supported = 0;
    probe->cpuid(1, 0, leaf);
    return (leaf[PS_CPUID_ECX] & BIT_OSXSAVE) && (probe->xcr0() & STATES) == STATES &&
           probe->arch_prctl(ARCH_GET_XCOMP_SUPP, (uintptr_t)&supported) == 0 && (supported >> XFEATURE_TILE_DATA & 1);
}

bool ps_cpu_tiles_permit(const ps_cpu_probe *probe)
{
    uint32_t leaf[PS_CPUID_REGISTERS];
    probe->cpuid(7, 0, leaf);
    if (!(leaf[PS_CPUID_EDX] & BIT_AMX_TILE) || !(leaf[PS_CPUID_EDX] & BIT_AMX_BF16)) return false;
    return system_saves_tiles(probe) && probe->arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_TILE_DATA) == 0;
}
