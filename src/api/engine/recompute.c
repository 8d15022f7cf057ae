#include "api/engine/recompute.h"

#include <string.h>

#include "base/mem.h"
#include "train/graph/batch_arrays.h"
#include "train/optim/grad_clip.h"

ps_status ps_recompute_init(ps_engine *e)
{
    if (e->tiers.batch_copies == NULL) return PS_OK;
    return ps_mem_alloc((size_t)e->settings.accumulation, sizeof *e->passes, &e->passes);
}

void ps_recompute_note(ps_engine *e, const ps_pass *pass)
{
    const ps_exec_plan *b = ps_runner_exec_plan(e->runner);
    const ps_code *code = b->code;
    const void *arrays[PS_BATCH_ARRAY_COUNT];
    const int64_t micro = ps_runner_micro(e->runner);
    if (b->recompute == NULL) return;
    char *at = (char *)e->tiers.batch_copies + micro * ps_code_batch_bytes(code);
    ps_batch_list_arrays(&pass->batch, arrays);
    for (int i = 0; i < PS_BATCH_ARRAY_COUNT; i++) {
        const int64_t bytes = code->batch[i] >= 0 ? code->buffers[code->batch[i]].bytes : 0;
        if (bytes == 0) arrays[i] = NULL;
        if (arrays[i] == NULL) continue;
        memcpy(at, arrays[i], (size_t)bytes);
        arrays[i] = at;
        at += bytes;
    }
    e->passes[micro] = *pass;
    e->passes[micro].batch = ps_batch_of_arrays(arrays);
}

static ps_status run(ps_engine *e)
{
    do {
        PS_TRY(ps_runner_forward(e->runner, &e->passes[ps_runner_micro(e->runner)]));
        PS_TRY(ps_runner_backward(e->runner, &e->groups));
        ps_store_release_non_model(e->tiers.store);
    } while (!ps_runner_end_micro(e->runner));
    return PS_OK;
}

/* Copies, as carrying changes them. */
static bool are_same(ps_grad_sums a, ps_grad_sums b)
{
    ps_exact_sum_carry(&a.sum_squares);
    ps_exact_sum_carry(&b.sum_squares);
    return memcmp(&a.sum_squares, &b.sum_squares, sizeof a.sum_squares) == 0 && a.n_nonfinite == b.n_nonfinite;
}

static double norm_of(ps_grad_sums sums)
{
    return ps_grad_norm(&sums.sum_squares, 1);
}

ps_status ps_recompute_run(ps_engine *e, const ps_grad_sums *first)
{
    ps_grad_sums second;
    ps_param_groups_decide(&e->groups, e->n_updates, true, 1);
    ps_runner_begin_recompute(e->runner, &e->groups);
    PS_TRY(run(e));
    PS_TRY(ps_runner_grad_sums(e->runner, &second));
    if (are_same(*first, second)) return PS_OK;
    return PS_FAIL(PS_EDEVICE,
                   "step %lld is clipped, so its passes were made a second time (memory.update_in_backward), but their "
                   "gradients have another norm than at first: %.17g instead of %.17g as they are stored. Something "
                   "computes other bits from the same numbers: memory or a processor that fails, or an operator. "
                   "Continue from the last checkpoint; memory.update_in_backward = never makes each pass once",
                   (long long)ps_runner_steps(e->runner) + 1, norm_of(second), norm_of(*first));
}
