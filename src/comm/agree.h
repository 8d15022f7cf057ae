/* agree.h - all ranks go on, or none does. */
#ifndef PS_COMM_AGREE_H
#define PS_COMM_AGREE_H

#include "comm/comm.h"

/* Called by all ranks, each with what it has come to: PS_OK when that was PS_OK everywhere. Else all get the status of
 * the first rank that failed, and "rank 2 (host): " with its last error. One rank, and c NULL: st as it is. PS_ECOMM as
 * all collectives. */
PS_NODISCARD ps_status ps_comm_agree(ps_comm *c, ps_status st);

#endif
