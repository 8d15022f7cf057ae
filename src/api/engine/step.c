/* step.c - one training step: forward, backward, update; also evaluation and logits. */
#include <math.h>
#include <stdio.h>

#include "api/engine/engine.h"
#include "api/engine/recompute.h"
#include "base/log.h"
#include "base/sized.h"
#include "train/state/step_decision.h"
#include "train/state/sums_of_ranks.h"

static ps_status check_ids(const char *what, const int32_t *ids, int64_t n, int64_t limit)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= limit)
            return PS_FAIL(PS_EINVAL, "%s %lld of the batch is %d, the model has %lld", what, (long long)i, ids[i],
                           (long long)limit);
    return PS_OK;
}

static ps_status check_targets(const ps_program *p, const int32_t *targets)
{
    for (int64_t i = 0; i < p->n_targets; i++)
        if (targets[i] != PS_IGNORE_INDEX && (targets[i] < 0 || targets[i] >= p->n_target_classes))
            return PS_FAIL(PS_EINVAL, "target %lld of the batch is %d, the model has %lld", (long long)i, targets[i],
                           (long long)p->n_target_classes);
    return PS_OK;
}

/* NaN is ignored. */
static ps_status check_values(const ps_program *p, const float *values)
{
    const bool are_shares = p->nodes[p->n_nodes - 1].attr.loss.kind == PS_VALUES_LOGISTIC;
    for (int64_t i = 0; i < p->n_targets; i++) {
        if (isinf(values[i]))
            return PS_FAIL(PS_EINVAL, "value %lld of the batch is infinite; NaN is for what takes no part",
                           (long long)i);
        if (are_shares && (values[i] < 0 || values[i] > 1))
            return PS_FAIL(PS_EINVAL, "value %lld of the batch is %g, expected 0 to 1; NaN is for what takes no part",
                           (long long)i, (double)values[i]);
    }
    return PS_OK;
}

/* wants_targets: the pass computes a loss. */
static ps_status check_batch(const ps_engine *e, const ps_batch *batch, bool wants_targets)
{
    const ps_program *p = e->shape->program;
    const int64_t n = p->B * p->T;
    if (batch->tokens == NULL) return PS_FAIL(PS_EINVAL, "the batch has no tokens");
    if (wants_targets && !p->has_loss)
        return PS_FAIL(PS_EINVAL, "the model ends with hidden states and has no loss: use ps_infer");
    if (wants_targets && p->target_array == PS_BATCH_VALUES && batch->values == NULL)
        return PS_FAIL(PS_EINVAL, "the batch has no values, which the model's loss is of");
    if (wants_targets && p->target_array == PS_BATCH_TARGETS && batch->targets == NULL)
        return PS_FAIL(PS_EINVAL, "the batch has no targets");
    PS_TRY(check_ids("token", batch->tokens, n, p->n_input_tokens));
    if (batch->token_type_ids != NULL) PS_TRY(check_ids("token type", batch->token_type_ids, n, p->n_types));
    if (!wants_targets) return PS_OK;
    return p->target_array == PS_BATCH_VALUES ? check_values(p, batch->values) : check_targets(p, batch->targets);
}

static ps_status take_batch(const ps_engine *e, const ps_batch *batch, bool wants_targets, ps_batch *own)
{
    PS_TRY(PS_SIZED_TAKE(ps_batch, batch, own));
    return check_batch(e, own, wants_targets);
}

/* ---- weights of micro-batches (train.loss_average); letters as in doc/numerics.md ---- */

static bool weighs_targets(const ps_engine *e)
{
    return e->loss_average == PS_CONFIG_LOSS_AVERAGE_TARGETS;
}

/* The factor of the derivatives of targets' losses in backward: S / (n A), as W is known only when the last micro-batch
 * has come, and the update divides by the rest. With train.loss_average = micro_batches the micro-batch's own weight
 * replaces n. */
static float backward_scale(const ps_engine *e, double micro_batch_weight)
{
    const double weight = weighs_targets(e) ? (double)e->shape->program->n_targets : micro_batch_weight;
    const float scale = (float)(e->loss_scale / (double)e->settings.accumulation);
    return weight > 0 ? scale / (float)weight : scale;
}

/* W / (n A R): 1 where no target is ignored and classes have no weights. Infinite where W is 0: the step's gradient is
 * then 0. With train.loss_average = micro_batches it is 1. */
static double weight_ratio(const ps_engine *e)
{
    const ps_settings *s = &e->settings;
    if (!weighs_targets(e)) return 1;
    if (!(e->step_targets.weight > 0)) return INFINITY;
    return e->step_targets.weight / ((double)e->shape->program->n_targets * (double)(s->accumulation * s->ranks.n));
}

/* Targets of the micro-batch that begins. Early updates need W, so ranks sum it before the last micro-batch's forward
 * pass, while no collective of parameters is in flight; all ranks do where early updates are permitted, whatever each
 * has planned. Otherwise W is summed with the norm: share_sums. */
static ps_status count_targets(ps_engine *e, const ps_batch *batch, ps_target_counts *micro_batch)
{
    const ps_settings *s = &e->settings;
    *micro_batch = ps_program_count_targets(e->shape->program, batch);
    e->own_targets.weight += micro_batch->weight;
    e->own_targets.n += micro_batch->n;
    e->step_targets = e->own_targets;
    const bool is_last = ps_runner_micro(e->runner) + 1 == s->accumulation;
    if (!is_last || !ps_settings_updates_in_backward(s) || !weighs_targets(e) || s->ranks.comm == NULL) return PS_OK;
    return ps_comm_all_reduce(s->ranks.comm, &e->step_targets.weight, 1, PS_COMM_SUM);
}

ps_status ps_forward(ps_engine *e, const ps_batch *batch, float *loss)
{
    PS_TRY(PS_NEED("engine batch", e, batch));
    if (loss != NULL) *loss = 0;
    if (!e->settings.training) return PS_FAIL(PS_ESTATE, "ps_forward: this engine is for inference");
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, "ps_forward"));
    PS_TRY(ps_engine_expect_values(e, "ps_forward"));
    ps_batch own;
    PS_TRY(take_batch(e, batch, true, &own));
    const bool begins = ps_runner_micro(e->runner) == 0;
    if (begins) {
        e->loss_scale = (double)e->scaler.scale / e->settings.gradient_predivide;
        e->own_targets = (ps_step_targets){0};
        ps_profiling_begin_step(e, ps_runner_steps(e->runner) + 1);
    }
    ps_target_counts targets;
    PS_TRY(ps_engine_check(e, count_targets(e, &own, &targets)));
    const ps_pass pass = {.kind = PS_PASS_TRAIN, .batch = own, .loss_scale = backward_scale(e, targets.weight)};
    ps_recompute_note(e, &pass);
    PS_TRY(ps_engine_check(e, ps_runner_forward(e->runner, &pass)));
    if (loss != NULL) {
        ps_eval_info seen;
        PS_TRY(ps_engine_check(e, ps_runner_eval(e->runner, &seen)));
        *loss = (float)seen.loss;
    }
    e->state = PS_ENGINE_FORWARD;
    return PS_OK;
}

/* S R W / (n A R): stored gradients are so many times the step's. */
static double grad_scale(const ps_engine *e)
{
    return e->loss_scale * e->settings.ranks.n * weight_ratio(e);
}

ps_status ps_backward(ps_engine *e)
{
    PS_TRY(PS_NEED("engine", e));
    PS_TRY(ps_engine_expect(e, PS_ENGINE_FORWARD, "ps_backward"));
    /* before the norm is known: early updates are for steps without clipping, or taken back */
    e->unclipped_scale = ps_step_grad_scale(0, 0, grad_scale(e));
    ps_param_groups_decide(&e->groups, e->n_updates, false, e->unclipped_scale);
    PS_TRY(ps_engine_check(e, ps_runner_backward(e->runner, &e->groups)));
    ps_store_release_non_model(e->tiers.store);
    e->state = PS_ENGINE_BACKWARD;
    return PS_OK;
}

/* The addend of a micro-batch to loss_sum: its sum of w l, from the mean that ps_forward returns. */
static double weigh_losses(const ps_engine *e, const ps_loss_sums *losses)
{
    const double mean = (double)(float)ps_loss_sums_mean(losses);
    if (!weighs_targets(e)) return mean;
    return losses->weight > 0 ? losses->weight * mean : losses->loss;
}

/* Sums over the step's micro-batches and gradients, on this rank. */
static ps_status take_results(ps_engine *e, ps_grad_sums *sums)
{
    PS_TRY(ps_runner_grad_sums(e->runner, sums));
    if (e->has_new_gradients) PS_TRY(ps_engine_sum_gradients(e, sums));
    e->has_new_gradients = false;
    e->loss_sum = 0;
    for (int64_t m = 0; m < e->settings.accumulation; m++) {
        ps_loss_sums losses;
        PS_TRY(ps_runner_loss_sums(e->runner, m, &losses));
        if (m == 0 || isfinite(e->step_loss)) e->step_loss = ps_loss_sums_mean(&losses);
        e->loss_sum += weigh_losses(e, &losses);
    }
    return PS_OK;
}

/* Has some rank made updates within the backward pass? */
typedef struct early_updates {
    bool are_final;       /* they cannot be taken back */
    bool are_unvalidated; /* they can */
} early_updates;

/* Sums over all ranks, losses and targets too. */
static ps_status share_sums(ps_engine *e, ps_grad_sums *sums, early_updates *early)
{
    const ps_exec_plan *b = ps_runner_exec_plan(e->runner);
    double also[] = {e->loss_sum, b->candidate.n_early > 0 && !b->speculates, e->own_targets.weight,
                     (double)e->own_targets.n, ps_runner_count_unvalidated(e->runner)};
    PS_TRY(ps_sums_of_ranks(e->settings.ranks.comm, sums, also, PS_ARRAY_LEN(also)));
    e->loss_sum = also[0];
    *early = (early_updates){.are_final = also[1] > 0, .are_unvalidated = also[4] > 0};
    e->step_targets = (ps_step_targets){.weight = also[2], .n = (int64_t)also[3]};
    return PS_OK;
}

static double mean_loss(const ps_engine *e)
{
    const double micro_batches = (double)(e->settings.accumulation * e->settings.ranks.n);
    const double weight = weighs_targets(e) ? e->step_targets.weight : micro_batches;
    return weight > 0 ? e->loss_sum / weight : 0;
}

/* What this rank has found in the step. tensor: whose gradient was not finite; -1: none of this rank's. */
static const char *seen_text(const ps_engine *e, int32_t tensor, char text[PS_NONFINITE_TEXT_MAX])
{
    if (!isfinite(e->step_loss))
        snprintf(text, PS_NONFINITE_TEXT_MAX, "a loss of %g", e->step_loss);
    else if (tensor >= 0)
        snprintf(text, PS_NONFINITE_TEXT_MAX, "the gradient of %.200s, at a loss of %g",
                 e->program->params[tensor].name, e->step_loss);
    else
        snprintf(text, PS_NONFINITE_TEXT_MAX, "gradients that another rank has, or their sum");
    return text;
}

/* It cannot be skipped any more: weights of some chunks have changed, on some rank at least, and the earlier values are
 * gone. All ranks come to this together. A checkpoint that is being saved has what early updates have replaced; what no
 * update has come to is as it was, and is passed on now. */
static ps_status end_incomplete_step(ps_engine *e, int32_t first_tensor)
{
    char seen[PS_NONFINITE_TEXT_MAX];
    if (ps_runner_finish_snapshot(e->runner) != PS_OK)
        ps_log(PS_LOG_WARNING, "the checkpoint that was being saved is incomplete: %s", ps_last_error());
    const ps_status st = PS_FAIL(
        PS_ENUMERIC,
        "step %lld has gradients that are not finite; first seen: %s. Updates run within the backward pass here "
        "(memory.update_in_backward), so some weights have changed already: continue from the last checkpoint. Try a "
        "lower learning rate, and look at the data and the weights that training began with; "
        "memory.update_in_backward = never leaves the weights of such a step as they were",
        (long long)ps_runner_steps(e->runner) + 1, seen_text(e, first_tensor, seen));
    return ps_engine_check_agreed(e, st);
}

ps_status ps_step(ps_engine *e)
{
    PS_TRY(PS_NEED("engine", e));
    PS_TRY(ps_engine_expect(e, PS_ENGINE_BACKWARD, "ps_step"));
    e->state = PS_ENGINE_READY;
    if (!ps_runner_end_micro(e->runner)) return PS_OK;

    const ps_settings *s = &e->settings;
    char seen[PS_NONFINITE_TEXT_MAX];
    ps_grad_sums sums;
    early_updates early = {.are_final = false};
    PS_TRY(ps_engine_check(e, take_results(e, &sums)));
    const int32_t first_nonfinite = sums.n_nonfinite > 0 ? sums.first_nonfinite : -1; /* on this rank */
    const ps_grad_sums own_sums = sums;
    PS_TRY(ps_engine_check(e, share_sums(e, &sums, &early)));
    const ps_step_decision decided = ps_step_decide(&sums, s->clip_norm, grad_scale(e));
    if (decided.overflow && early.are_final) return end_incomplete_step(e, first_nonfinite);
    const bool skip = ps_loss_scaler_update(&e->scaler, decided.overflow);
    const double lr = ps_param_groups_learning_rate(&e->groups, 0, e->n_updates);
    const bool are_right = !skip && decided.grad_scale == e->unclipped_scale;
    const bool was_paused = ps_runner_pauses_speculation(e->runner);
    int32_t n_speculated;
    const bool again =
        !skip && !are_right && early.are_unvalidated && ps_runner_exec_plan(e->runner)->recompute != NULL;
    PS_TRY(ps_engine_check(e, ps_runner_validate(e->runner, are_right, &n_speculated)));
    if (again) PS_TRY(ps_engine_check(e, ps_recompute_run(e, &own_sums)));
    ps_param_groups_decide(&e->groups, e->n_updates, skip, decided.grad_scale);
    PS_TRY(ps_engine_check(e, ps_runner_update(e->runner, &e->groups)));
    if (!skip) e->n_updates++;
    e->last_step = (ps_step_info){.step = e->n_updates,
                                  .is_skipped = skip,
                                  .learning_rate = lr,
                                  .grad_norm = decided.overflow ? INFINITY : decided.norm,
                                  .loss_scale = e->loss_scale * s->gradient_predivide,
                                  .loss = mean_loss(e),
                                  .n_targets = e->step_targets.n,
                                  .n_speculated = n_speculated,
                                  .n_taken_back = are_right ? 0 : n_speculated,
                                  .speculation_paused = was_paused,
                                  .recomputed = again};
    ps_profiling_end_step(e);
    if (skip)
        ps_log(PS_LOG_WARNING, "a step was skipped: gradients are not finite (loss scale %g)", e->last_step.loss_scale);
    ps_nonfinite_count(&e->nonfinite, &e->scaler, skip, ps_runner_steps(e->runner),
                       seen_text(e, first_nonfinite, seen));
    e->last_step.nonfinite_steps = e->nonfinite.n_steps;
    return ps_nonfinite_check(&e->nonfinite, s->max_nonfinite_steps);
}

/* Each moment tells the store its number in the schedule (ps_store_go_to), so the next step finds its own. */
ps_status ps_engine_run_outside_step(ps_engine *e, const ps_pass *pass)
{
    PS_ASSERT(e->is_filled == NULL);
    PS_TRY(ps_engine_check(e, ps_runner_flush(e->runner)));
    PS_TRY(ps_engine_check(e, ps_runner_forward(e->runner, pass)));
    ps_store_release_non_model(e->tiers.store);
    return PS_OK;
}

static ps_status expect_whole_sequences(const ps_engine *e, const char *call)
{
    if (e->settings.cache_positions == 0) return PS_OK;
    return PS_FAIL(PS_ESTATE, "%s: this engine is for ps_decode; ps_initialize_inference_engine makes one for this",
                   call);
}

ps_status ps_evaluate(ps_engine *e, const ps_batch *batch, float *loss)
{
    PS_TRY(PS_NEED("engine batch", e, batch));
    if (loss != NULL) *loss = 0;
    PS_TRY(expect_whole_sequences(e, "ps_evaluate"));
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, "ps_evaluate"));
    PS_TRY(ps_engine_expect_values(e, "ps_evaluate"));
    ps_batch own;
    PS_TRY(take_batch(e, batch, true, &own));
    PS_TRY(ps_engine_run_outside_step(e, &(ps_pass){.kind = PS_PASS_EVALUATE, .batch = own}));
    ps_eval_info seen;
    PS_TRY(ps_engine_check(e, ps_runner_eval(e->runner, &seen)));
    if (loss != NULL) *loss = (float)seen.loss;
    return PS_OK;
}

ps_status ps_infer(ps_engine *e, const ps_batch *batch, int64_t row, float *output)
{
    PS_TRY(PS_NEED("engine batch output", e, batch, output));
    ps_batch own;
    PS_TRY(expect_whole_sequences(e, "ps_infer"));
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, "ps_infer"));
    PS_TRY(ps_engine_expect_values(e, "ps_infer"));
    const int64_t n_rows = e->shape->program->n_rows;
    if (row < PS_ALL_ROWS || row >= n_rows)
        return PS_FAIL(PS_EINVAL, "ps_infer: row %lld of %lld", (long long)row, (long long)n_rows);
    if (e->settings.training && row == PS_ALL_ROWS)
        return PS_FAIL(PS_EINVAL, "ps_infer: an engine for training has room for one row of the output");
    PS_TRY(take_batch(e, batch, false, &own));
    return ps_engine_run_outside_step(
        e, &(ps_pass){.kind = PS_PASS_INFER, .batch = own, .output = output, .output_row = row});
}

ps_status ps_engine_get_eval_info(const ps_engine *e, ps_eval_info *out)
{
    PS_TRY(PS_NEED("engine out", e, out));
    ps_eval_info seen;
    if (ps_runner_eval(e->runner, &seen) != PS_OK) seen = (ps_eval_info){0};
    return PS_SIZED_GIVE(ps_eval_info, &seen, out);
}
