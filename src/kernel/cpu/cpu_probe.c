#include "kernel/cpu/cpu_probe.h"

#include <cpuid.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A CPU answers for a missing leaf with another one; __get_cpuid_count checks the highest leaf first. */
static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t out[PS_CPUID_REGISTERS])
{
    if (!__get_cpuid_count(leaf, subleaf, &out[PS_CPUID_EAX], &out[PS_CPUID_EBX], &out[PS_CPUID_ECX],
                           &out[PS_CPUID_EDX]))
        memset(out, 0, PS_CPUID_REGISTERS * sizeof *out);
}

static uint64_t xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static long arch_prctl(int code, uintptr_t argument)
{
    return syscall(SYS_arch_prctl, code, argument);
}

const ps_cpu_probe ps_cpu_probe_machine = {.cpuid = cpuid, .xcr0 = xcr0, .arch_prctl = arch_prctl};
