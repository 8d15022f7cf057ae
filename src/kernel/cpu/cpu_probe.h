/* cpu_probe.h - queries of the features that CPU and operating system support.
 *
 * cpu_detect.c and cpu_tiles.c use a probe; test/kernel/test_cpu_detect.c has probes of other machines. */
#ifndef PS_KERNEL_CPU_PROBE_H
#define PS_KERNEL_CPU_PROBE_H

#include "kernel/cpu_kind.h"

/* Result registers of CPUID. */
enum { PS_CPUID_EAX, PS_CPUID_EBX, PS_CPUID_ECX, PS_CPUID_EDX, PS_CPUID_REGISTERS };

typedef struct ps_cpu_probe {
    /* Zeros where the CPU has no such leaf. */
    void (*cpuid)(uint32_t leaf, uint32_t subleaf, uint32_t out[PS_CPUID_REGISTERS]);
    /* XCR0, the register states that the system saves; called only with OSXSAVE in CPUID. */
    uint64_t (*xcr0)(void);
    /* The Linux system call: 0, or a negative number. */
    long (*arch_prctl)(int code, uintptr_t argument);
} ps_cpu_probe;

extern const ps_cpu_probe ps_cpu_probe_machine;

/* The kind of CPU that the probe finds, or `forced`, the value of PS_TEST_CPU (NULL or "": none). Errors as of
 * ps_cpu_kind_detect. Requests permission to use tiles only where the result depends on it. */
PS_NODISCARD ps_status ps_cpu_kind_of(const ps_cpu_probe *probe, const char *forced, ps_cpu_kind *out);

#endif
