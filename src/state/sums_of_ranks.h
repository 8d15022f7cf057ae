/* sums_of_ranks.h - what each rank knows of its own chunks' gradients, added up. */
#ifndef PS_STATE_SUMS_OF_RANKS_H
#define PS_STATE_SUMS_OF_RANKS_H

#include "comm/comm.h"
#include "kernel/kernel.h"

enum { PS_SUMS_OF_RANKS_ALSO_MAX = 4 };

/* All ranks call it, with as many numbers `also` [n_also, at most PS_SUMS_OF_RANKS_ALSO_MAX], which are added up along
 * with them (those not exactly). The sums of squares are exact, so they have the same bits however chunks are dealt out.
 * first_nonfinite stays this rank's own. comm NULL: alone. */
PS_NODISCARD ps_status ps_sums_of_ranks(ps_comm *comm, ps_grad_sums *sums, double *also, int n_also);

#endif
