#include "kernel/cpu/cpu_tiles.h"

#define STATE_TILE_CONFIG (UINT64_C(1) << 17)
#define STATE_TILE_DATA (UINT64_C(1) << 18)

bool ps_cpu_tiles_work(const ps_cpu_tiles *t)
{
    const uint64_t states = STATE_TILE_CONFIG | STATE_TILE_DATA;
    return t->has_tile && t->has_bf16 && t->max_palette >= 1 && t->row_bytes == 64 && t->rows == 16 &&
           t->n_names == 8 && (t->xcr0 & states) == states && t->is_permitted;
}

#if defined(__x86_64__)
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

static uint64_t tiles_xcr0(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & BIT_OSXSAVE)) return 0;
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

ps_cpu_tiles ps_cpu_tiles_detect(void)
{
    ps_cpu_tiles t = {.xcr0 = tiles_xcr0()};
    unsigned a, b, c, d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) t.has_tile = d & BIT_AMX_TILE, t.has_bf16 = d & BIT_AMX_BF16;
    if (!ps_cpu_tiles_are_announced(&t)) return t;
    if (__get_cpuid_count(0x1D, 0, &a, &b, &c, &d)) t.max_palette = a;
    if (t.max_palette >= 1 && __get_cpuid_count(0x1D, 1, &a, &b, &c, &d))
        t.row_bytes = b & 0xFFFF, t.n_names = b >> 16, t.rows = c & 0xFFFF;
    t.is_permitted = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILE_DATA) == 0;
    return t;
}

bool ps_cpu_tiles_permit(void)
{
    const uint64_t states = 0x600e6; /* SSE, AVX, AVX-512, tile configuration and data */
    unsigned a, b, c, d;
    unsigned long supported = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & BIT_AMX_TILE) || !(d & BIT_AMX_BF16)) return false;
    if ((tiles_xcr0() & states) != states) return false;
    if (syscall(SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &supported) != 0 || !(supported >> XFEATURE_TILE_DATA & 1))
        return false;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILE_DATA) == 0;
}
#else
ps_cpu_tiles ps_cpu_tiles_detect(void)
{
    return (ps_cpu_tiles){0};
}

bool ps_cpu_tiles_permit(void)
{
    return false;
}
#endif
