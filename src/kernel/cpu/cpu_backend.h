/* cpu_backend.h - the state of the cpu backend: what its kernels find behind `self`. */
#ifndef PS_KERNEL_CPU_BACKEND_H
#define PS_KERNEL_CPU_BACKEND_H

#include "kernel/backend.h"
#include "kernel/cpu/cpu_dnnl.h"

typedef struct ps_cpu {
    ps_backend base;
    ps_cpu_isa isa;
    int n_threads; /* of every team: partitions and scratch are made of it */
    ps_dnnl *dnnl;
} ps_cpu;

static inline ps_cpu *ps_cpu_of(ps_backend *self)
{
    return (ps_cpu *)self;
}

#endif
