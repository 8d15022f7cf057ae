/* cost.h - arithmetic and memory traffic of one kernel call, from its shapes: for planning and for figures. */
#ifndef PS_KERNEL_COST_H
#define PS_KERNEL_COST_H

#include "kernel/kernel.h"

typedef struct ps_cost {
    double flops; /* multiply and add count as two */
    double bytes; /* operands read and results written, each once */
} ps_cost;

/* args points to the struct that belongs to op; pointers in it are not looked at. */
ps_cost ps_kernel_cost(ps_op op, const void *args);

#endif
