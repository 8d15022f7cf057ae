/* grad_stats.c - the step's sums over its gradients: norm, values that are not finite. */
#include "train/run/runner_impl.h"

ps_status ps_runner_add_grad_stats(ps_runner *r, ps_tier tier, int32_t tensor, const char *x, int64_t n)
{
    const ps_grad_stats_args a = {.sums = ps_results_write_grads(&r->results, tier),
                                  .x = x,
                                  .n = n,
                                  .tensor = tensor,
                                  .dtype = ps_runner_grad_dtype(r, tensor)};
    PS_TRY(ps_run_grad_stats(ps_state_backend(&r->state, tier), r->tiers->compute[tier], &a, 0));
    ps_results_note_grads(&r->results, tier);
    return PS_OK;
}
