/* agree.h - all ranks go on, or none does: ps_comm_agree of patrickstar.h. */
#ifndef PS_COMM_AGREE_H
#define PS_COMM_AGREE_H

#include "comm/comm.h"

#endif
