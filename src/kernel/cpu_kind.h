/* cpu_kind.h - a processor kind is an instruction set, and the vendor where kernels of that set differ by vendor: one
 * instruction is fast on the processors of one vendor only. */
#ifndef PS_KERNEL_CPU_KIND_H
#define PS_KERNEL_CPU_KIND_H

#include "kernel/backend.h"

enum { PS_CPU_VENDOR_BYTES = 13 }; /* NUL included */

typedef struct ps_cpu_kind {
    ps_cpu_isa isa;
    char vendor[PS_CPU_VENDOR_BYTES]; /* as CPUID says: "AuthenticAMD", "GenuineIntel", ..., or "" */
} ps_cpu_kind;

/* "amd-avx512_bf16", "intel-avx512_bf16", "amx", "avx512", "avx2", "portable". PS_EINVAL for another name, with all of
 * these in the message. */
PS_NODISCARD ps_status ps_cpu_kind_read(const char *name, ps_cpu_kind *out);

/* Its name. Where only AMD's kind has a name of its own, that of other vendors is Intel's. */
const char *ps_cpu_kind_name(const ps_cpu_kind *kind);

/* This machine's processor, with the highest instruction set that the operating system allows; or the kind that the
 * environment variable PS_TEST_CPU names, which tests set to be on another machine. PS_EINVAL: no such name; PS_ENOSYS:
 * an instruction set above this machine's. After an error *out is this machine's. */
PS_NODISCARD ps_status ps_cpu_kind_detect(ps_cpu_kind *out);

/* As ps_backend_create_cpu_for_plans (with `same`: ps_backend_create_cpu_same), of the processor of another machine.
 * Measuring the workspace of its kernels executes code that is compiled for its instruction set: PS_ENOSYS where this
 * machine cannot. */
PS_NODISCARD ps_status ps_backend_create_cpu_described(const ps_cpu_kind *kind, int n_threads, bool same,
                                                       ps_backend **out);

#endif
