/* cpu_backend.h - the state of the cpu backend, to which its kernels cast `self`. */
#ifndef PS_KERNEL_CPU_BACKEND_H
#define PS_KERNEL_CPU_BACKEND_H

#include "kernel/cpu/cpu_pool.h"
#include "kernel/cpu_kind.h"

typedef struct ps_cpu {
    ps_backend base;
    ps_cpu_isa isa;
    int n_threads;     /* scratch depends on it, results never */
    ps_cpu_pool *pool; /* of n_threads; NULL: for measuring only, without threads */
    bool uses_dpbf16;  /* ps_cpu_uses_dpbf16 of the backend's CPU */
} ps_cpu;

/* Whether vdpbf16ps is faster than FMA: on AMD it has twice the throughput of FMA, on Intel half. Looked up in a table,
 * not timed, as bits depend on it: it adds in another order than all other kernels. */
bool ps_cpu_dpbf16_is_fast(const char *vendor, ps_cpu_isa isa);

/* Whether kernels of `isa` multiply bf16 by vdpbf16ps. Never with `same`, which requires the common bits. */
static inline bool ps_cpu_uses_dpbf16(const char *vendor, ps_cpu_isa isa, bool same)
{
    return !same && ps_cpu_dpbf16_is_fast(vendor, isa);
}

static inline ps_cpu *ps_cpu_of(ps_backend *self)
{
    return (ps_cpu *)self;
}

/* Pairs that cpu kernels fuse: elementwise operators gain by it. */
#define PS_CPU_PAIRS (1u << PS_PAIR_DROPOUT_ADD)

#endif
