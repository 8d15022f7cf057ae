/* cost.h - arithmetic and memory traffic of one kernel call, from its shapes, for plans and reports. */
#ifndef PS_KERNEL_COST_H
#define PS_KERNEL_COST_H

#include <stdint.h>

#include "base/dtype.h"

typedef struct ps_cost {
    double flops; /* multiply and add count as two */
    double bytes; /* operands and results, each counted once */
} ps_cost;

/* The roofline of a device, and its latency per call. */
typedef struct ps_compute_throughput {
    double flops_per_s; /* of matrix multiplication, achieved, not peak */
    double bytes_per_s; /* of memory */
    int64_t latency_ns; /* of each call */
} ps_compute_throughput;

/* A PC's CPU with 16-bit matrix multiplication. */
extern const ps_compute_throughput ps_compute_throughput_default;

/* Estimated seconds of one call: the latency plus the maximum of arithmetic and memory traffic, which overlap
 * (Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009). */
double ps_cost_seconds(const ps_cost *cost, const ps_compute_throughput *throughput);

/* Costs of matrix multiplication [m, k] x [k, n], and of a pass over `streams` arrays of n elements each, with `work`
 * arithmetic operations for each element. */
ps_cost ps_cost_of_gemm(int64_t m, int64_t n, int64_t k, ps_dtype t);
ps_cost ps_cost_of_stream(int64_t n, double streams, double work, ps_dtype t);

#endif
