/* sums_of_ranks.h - sums over ranks of the statistics of each rank's gradients. */
#ifndef PS_STATE_SUMS_OF_RANKS_H
#define PS_STATE_SUMS_OF_RANKS_H

#include "chunk/comm/comm.h"
#include "kernel/kernel.h"

enum { PS_SUMS_OF_RANKS_ALSO_MAX = 5 };

/* All ranks call it, with equally many numbers `also` [n_also, at most PS_SUMS_OF_RANKS_ALSO_MAX], which are summed
 * with them (not exactly). The sums of squares are exact, so their bits do not depend on the distribution of chunks.
 * first_nonfinite stays this rank's own. comm NULL: a single rank. */
PS_NODISCARD ps_status ps_sums_of_ranks(ps_comm *comm, ps_grad_sums *sums, double *also, int n_also);

#endif
