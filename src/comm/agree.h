/* agree.h - all ranks go on, or none does: ps_comm_agree of patrickstar.h. */
#ifndef PS_COMM_AGREE_H
#define PS_COMM_AGREE_H

#include "comm/comm.h"

/* The least and the most that ranks have of each number; all call. 0 <= n <= PS_COMM_NUMBERS_MAX, no NaN. */
enum { PS_COMM_NUMBERS_MAX = 8 };
PS_NODISCARD ps_status ps_comm_find_range(ps_comm *comm, const double *numbers, int n, double *least, double *most);

/* ps_comm_agree for a call that all ranks make with the same numbers, as above: PS_EINVAL on all, naming the call, when
 * one has another. Whole numbers are exact up to 2^53. comm NULL: st. */
PS_NODISCARD ps_status ps_comm_agree_alike(ps_comm *comm, ps_status st, const char *call, const double *numbers, int n);

#endif
