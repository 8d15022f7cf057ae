/* agree.h - all ranks continue, or none does: ps_comm_agree of patrickstar_comm.h. */
#ifndef PS_COMM_AGREE_H
#define PS_COMM_AGREE_H

#include "chunk/comm/comm.h"

/* The minimum and maximum over ranks of each number; all call. 0 <= n <= PS_COMM_NUMBERS_MAX, no NaN. */
enum { PS_COMM_NUMBERS_MAX = 8 };
PS_NODISCARD ps_status ps_comm_find_range(ps_comm *comm, const double *numbers, int n, double *least, double *most);

/* ps_comm_agree for a call that all ranks make with the same numbers, as above: PS_EINVAL on all, naming the call, when
 * a rank has another number. Whole numbers are exact up to 2^53. comm NULL: st. */
PS_NODISCARD ps_status ps_comm_agree_alike(ps_comm *comm, ps_status st, const char *call, const double *numbers, int n);

#endif
