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

/* How fast a device does it. */
typedef struct ps_device_rates {
    double flop_per_s[PS_DTYPE_COUNT]; /* that operators reach; 0: unknown, arithmetic takes no time */
    double memory_bytes_per_s;         /* > 0 */
    double latency_s;                  /* of one operator, whatever it does */
} ps_device_rates;

/* Time of one operator whose operands are of type t: the longer of arithmetic and memory traffic, which overlap (Williams,
 * Waterman, Patterson, "Roofline", CACM 52(4), 2009), and the latency. */
double ps_cost_seconds(const ps_cost *cost, ps_dtype t, const ps_device_rates *rates);

#endif
