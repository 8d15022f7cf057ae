/* cpu_kind.h - kinds of CPUs: an instruction set, and the vendor where kernels differ by vendor, as one instruction is
 * fast on the CPUs of one vendor only. */
#ifndef PS_KERNEL_CPU_KIND_H
#define PS_KERNEL_CPU_KIND_H

#include "kernel/backend.h"

enum { PS_CPU_VENDOR_BYTES = 13 }; /* NUL included */

typedef struct ps_cpu_kind {
    ps_cpu_isa isa;
    char vendor[PS_CPU_VENDOR_BYTES]; /* from CPUID: "AuthenticAMD", "GenuineIntel", ..., or "" */
} ps_cpu_kind;

/* "amd-avx512_bf16", "intel-avx512_bf16", "amx", "avx512", "avx2", "portable". PS_EINVAL for another name, with all of
 * these in the message. */
PS_NODISCARD ps_status ps_cpu_kind_read(const char *name, ps_cpu_kind *out);

/* The name of a kind. Where only AMD's kind is separate, other vendors have the name of Intel's. */
const char *ps_cpu_kind_name(const ps_cpu_kind *kind);

/* The kind of this machine's CPU, with the highest instruction set that the operating system allows; or the kind in the
 * environment variable PS_TEST_CPU, by which tests simulate another machine. PS_EINVAL: no such name; PS_ENOSYS: an
 * instruction set above this machine's. On failure *out is this machine's. */
PS_NODISCARD ps_status ps_cpu_kind_detect(ps_cpu_kind *out);

/* As ps_backend_create_cpu_for_plans (with `same`: ps_backend_create_cpu_same), for the CPU of another machine.
 * Measuring workspace executes code of that instruction set: PS_ENOSYS where this machine lacks it. */
PS_NODISCARD ps_status ps_backend_create_cpu_described(const ps_cpu_kind *kind, int n_threads, bool same,
                                                       ps_backend **out);

#endif
