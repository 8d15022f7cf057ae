/* agree.h - all ranks go on, or none does: ps_comm_agree of patrickstar.h. */
#ifndef PS_COMM_AGREE_H
#define PS_COMM_AGREE_H

#include "comm/comm.h"

/* ps_comm_agree for a call that all ranks make with the same numbers [n]: PS_EINVAL on all, naming the call, when one
 * has another. NaN is equal to NaN; whole numbers are exact up to 2^53. comm NULL: st. */
PS_NODISCARD ps_status ps_comm_agree_alike(ps_comm *comm, ps_status st, const char *call, const double *numbers, int n);

#endif
