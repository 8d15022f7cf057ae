/* cpu_backend.h - the state of the cpu backend: what its kernels find behind `self`. */
#ifndef PS_KERNEL_CPU_BACKEND_H
#define PS_KERNEL_CPU_BACKEND_H

#include "kernel/cpu/cpu_pool.h"
#include "kernel/cpu_kind.h"

typedef struct ps_cpu {
    ps_backend base;
    ps_cpu_isa isa;
    int n_threads;     /* scratch depends on it, results never */
    ps_cpu_pool *pool; /* of n_threads; NULL: it measures only, and no thread is started */
    bool uses_dpbf16;  /* ps_cpu_uses_dpbf16 on the processor that it is for */
} ps_cpu;

/* Is vdpbf16ps faster than FMA? AMD's multiplies at twice the rate of FMA, Intel's at half of it. Looked up in a table,
 * and not timed, as bits depend on the answer: it adds in another order than all other kernels. */
bool ps_cpu_dpbf16_is_fast(const char *vendor, ps_cpu_isa isa);

/* Do kernels of `isa` multiply bf16 by vdpbf16ps? Not with `same`: the backend is to have the bits of all others. */
static inline bool ps_cpu_uses_dpbf16(const char *vendor, ps_cpu_isa isa, bool same)
{
    return !same && ps_cpu_dpbf16_is_fast(vendor, isa);
}

static inline ps_cpu *ps_cpu_of(ps_backend *self)
{
    return (ps_cpu *)self;
}

/* Pairs that cpu kernels compute as one: what is computed element by element gains by it. */
#define PS_CPU_PAIRS (1u << PS_PAIR_DROPOUT_ADD)

#endif
