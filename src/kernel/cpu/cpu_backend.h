/* cpu_backend.h - the state of the cpu backend: what its kernels find behind `self`. */
#ifndef PS_KERNEL_CPU_BACKEND_H
#define PS_KERNEL_CPU_BACKEND_H

#include "kernel/backend.h"
#include "kernel/cpu/cpu_dnnl.h"
#include "kernel/cpu/cpu_pool.h"

typedef struct ps_cpu {
    ps_backend base;
    ps_cpu_isa isa;
    int n_threads;     /* of every team: partitions and scratch are made of it */
    bool computes;     /* false: it measures only, and no thread of a team is ever started */
    ps_cpu_pool *pool; /* n_threads of them; NULL when it does not compute */
    ps_dnnl *dnnl;
} ps_cpu;

/* As ps_backend_create_cpu_for_plans, but products have the scratch of whatever instruction set the process computes with. */
PS_NODISCARD ps_status ps_cpu_create_for_any_plan(ps_cpu_isa isa, int n_threads, ps_backend **out);

static inline ps_cpu *ps_cpu_of(ps_backend *self)
{
    return (ps_cpu *)self;
}

#endif
