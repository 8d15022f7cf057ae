/* cost.h - arithmetic and memory traffic of one kernel call, from its shapes: for planning and for figures. */
#ifndef PS_KERNEL_COST_H
#define PS_KERNEL_COST_H

#include <stdint.h>

#include "tensor/dtype.h"

typedef struct ps_cost {
    double flops; /* multiply and add count as two */
    double bytes; /* operands read and results written, each once */
} ps_cost;

/* How fast something computes: the two lines of a roofline, and what each call costs besides. */
typedef struct ps_compute_rates {
    double flops_per_s; /* of matrix products, as reached, not as advertised */
    double bytes_per_s; /* of memory */
    int64_t latency_ns; /* of each call */
} ps_compute_rates;

/* A PC's processor with 16-bit matrix products. */
extern const ps_compute_rates ps_compute_rates_default;

/* Estimated seconds of one call: the latency, plus the longer of arithmetic and memory traffic, which overlap
 * (Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009). */
double ps_cost_seconds(const ps_cost *cost, const ps_compute_rates *rates);

/* What operators' costs are made of: a product of [m, k] and [k, n]; or a pass over `streams` arrays of n elements
 * each, with `work` arithmetic operations for each of the n. */
ps_cost ps_cost_of_product(int64_t m, int64_t n, int64_t k, ps_dtype t);
ps_cost ps_cost_of_stream(int64_t n, double streams, double work, ps_dtype t);

#endif
