/* sum.h - sums over ranks, in their order. */
#ifndef PS_COMM_SUM_H
#define PS_COMM_SUM_H

#include "base/dtype.h"

/* out[i] = ((values[0][i] + values[1][i]) + values[2][i]) + ..., each addition in fp32, the whole rounded once to
 * dtype, to nearest even. n_values >= 1; out may be one of them. */
void ps_comm_sum(ps_dtype dtype, const void *const *values, int32_t n_values, int64_t n, void *out);

#endif
