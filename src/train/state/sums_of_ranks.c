#include "train/state/sums_of_ranks.h"

#include <string.h>

ps_status ps_sums_of_ranks(ps_comm *comm, ps_grad_sums *sums, double *also, int n_also)
{
    enum { NONFINITE = PS_EXACT_SUM_DIGITS, ALSO };
    double v[ALSO + PS_SUMS_OF_RANKS_ALSO_MAX];
    PS_ASSERT(n_also >= 0 && n_also <= PS_SUMS_OF_RANKS_ALSO_MAX);
    if (comm == NULL) return PS_OK;
    ps_exact_sum_carry(&sums->sum_squares);
    for (int i = 0; i < PS_EXACT_SUM_DIGITS; i++) v[i] = (double)sums->sum_squares.digit[i];
    v[NONFINITE] = (double)sums->n_nonfinite;
    for (int i = 0; i < n_also; i++) v[ALSO + i] = also[i];
    PS_TRY(ps_comm_all_reduce(comm, v, ALSO + n_also, PS_COMM_SUM));
    for (int i = 0; i < PS_EXACT_SUM_DIGITS; i++) sums->sum_squares.digit[i] = (int64_t)v[i];
    sums->n_nonfinite = (int64_t)v[NONFINITE];
    for (int i = 0; i < n_also; i++) also[i] = v[ALSO + i];
    return PS_OK;
}
