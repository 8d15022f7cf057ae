/* cpu_kind.h - kinds of processors, as far as kernels depend on them: the instruction set, and the vendor where one
 * instruction is fast on the processors of one vendor only. */
#ifndef PS_KERNEL_CPU_KIND_H
#define PS_KERNEL_CPU_KIND_H

#include "kernel/backend.h"

enum { PS_CPU_VENDOR_BYTES = 13 }; /* NUL included */

typedef struct ps_cpu_kind {
    ps_cpu_isa isa;
    char vendor[PS_CPU_VENDOR_BYTES]; /* as CPUID says: "AuthenticAMD", "GenuineIntel", ..., or "" */
} ps_cpu_kind;

/* "amd-avx512_bf16", "intel-avx512_bf16", "amx", "avx512", "avx2", "portable". PS_EINVAL for another word, with all of
 * these in the message. */
PS_NODISCARD ps_status ps_cpu_kind_read(const char *word, ps_cpu_kind *out);

/* The word for it. Where only AMD's kind has a word of its own, that of other vendors is Intel's. */
const char *ps_cpu_kind_name(const ps_cpu_kind *kind);

/* This machine's processor, with the highest level that the operating system allows; or what the environment variable
 * PS_TEST_CPU says, which tests set to be on another machine. PS_EINVAL: no such word; PS_ENOSYS: a level above this
 * machine's. After an error *out is this machine's. */
PS_NODISCARD ps_status ps_cpu_kind_detect(ps_cpu_kind *out);

/* As ps_backend_create_cpu_for_plans (with `same`: ps_backend_create_cpu_same), of the processor of another machine. The
 * scratch of its kernels is found out by code that is compiled for its instruction set: PS_ENOSYS where this machine
 * cannot execute that. */
PS_NODISCARD ps_status ps_backend_create_cpu_described(const ps_cpu_kind *kind, int n_threads, bool same,
                                                       ps_backend **out);

#endif
