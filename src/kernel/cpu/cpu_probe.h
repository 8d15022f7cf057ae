/* cpu_probe.h - what the processor and the operating system answer when they are asked what may be used.
 *
 * cpu_detect.c and cpu_tiles.c decide by a probe; test/kernel/test_cpu_detect.c has those of other machines. */
#ifndef PS_KERNEL_CPU_PROBE_H
#define PS_KERNEL_CPU_PROBE_H

#include "kernel/cpu_kind.h"

/* Registers of CPUID's answer. */
enum { PS_CPUID_EAX, PS_CPUID_EBX, PS_CPUID_ECX, PS_CPUID_EDX, PS_CPUID_REGISTERS };

typedef struct ps_cpu_probe {
    /* Zeros where the processor has no such leaf. */
    void (*cpuid)(uint32_t leaf, uint32_t subleaf, uint32_t out[PS_CPUID_REGISTERS]);
    /* XCR0, the states that the system saves; called only where CPUID says OSXSAVE. */
    uint64_t (*xcr0)(void);
    /* The system call of Linux: 0, or a negative number. */
    long (*arch_prctl)(int code, uintptr_t argument);
} ps_cpu_probe;

extern const ps_cpu_probe ps_cpu_probe_machine;

/* The kind of processor that the probe finds; `forced`, the value of PS_TEST_CPU, NULL or "" for none, instead of it.
 * Errors as of ps_cpu_kind_detect. Asks for the permission to use tiles only where the answer depends on it. */
PS_NODISCARD ps_status ps_cpu_kind_of(const ps_cpu_probe *probe, const char *forced, ps_cpu_kind *out);

#endif
