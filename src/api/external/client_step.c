/* client_step.c - the optimizer's step: norm and overflow first, then chunk by chunk, each a separate moment:
 * immediately, or when the next forward pass uses the chunk, so that optimizer data moves while the framework computes.
 * With memory.update_in_backward = always, if updates depend on neither, already in the last backward pass, after the
 * recorded step's last use of the chunk; with speculate also otherwise, and the step validates them or takes them
 * back (early_validation.c). */
#include <math.h>

#include "api/external/client_calls.h"
#include "base/sized.h"
#include "train/state/sums_of_ranks.h"

/* Calls in the wrong order. */
static ps_status expect_order(const ps_client *c)
{
    if (c->order == NULL || ps_order_get_stats(c->order).n_reports == 0) return PS_OK;
    return PS_FAIL(PS_EDEVICE, "check_order: %s", ps_order_text(c->order, 0));
}

/* Their states are floats in any case: there are few of them. A matrix is one in chunks or not. */
static ps_status update_unmanaged(ps_client *c, ps_client_tensor_state *t)
{
    if (c->groups.skips) return PS_OK;
    float *value = ps_client_unmanaged(t, PS_LIST_MASTER);
    ps_optimizer_piece p = {.param = value,
                            .grad = ps_client_unmanaged(t, ps_lists_grad(&c->lists)),
                            .master = value,
                            .n = t->elements,
                            .param_dtype = PS_DTYPE_F32,
                            .grad_dtype = PS_DTYPE_F32};
    const uint32_t states = ps_optimizer_states_of(&c->settings.optimizer, t->is_whole);
    ps_queue *queue = c->tiers.compute[PS_TIER_DEVICE];
    for (int32_t i = 0; i < c->settings.optimizer.n_states; i++)
        if (states >> i & 1) p.state[i] = ps_client_unmanaged(t, PS_LIST_STATES + i);
    const ps_piece_update u = ps_client_update_of(c, t);
    ps_optimizer_setup of_floats = *u.optimizer;
    of_floats.is_compact = of_floats.is_split = of_floats.is_stochastic = false;
    p.weight_decay = u.weight_decay;
    if (!t->is_whole) return ps_optimizer_update(c->settings.backend, queue, &of_floats, &u.step, &p);
    const ps_optimizer_matrix m = {
        .all = p, .rows = t->shape[0], .cols = t->shape[1], .scratch = c->tiers.update_scratch[PS_TIER_DEVICE]};
    return ps_optimizer_update_whole(c->settings.backend, queue, &of_floats, &u.step, &m);
}

/* Writes of the program to a parameter or its master since its gradient came. */
static ps_status sync_written(ps_client *c)
{
    for (int32_t i = 0; i < c->n_tensors; i++) {
        if (c->tensors[i].has_gradient && !c->tensors[i].is_unmanaged) PS_TRY(ps_client_sync_value(c, i));
    }
    return PS_OK;
}

/* A matrix has its gradient in one list. */
static ps_status join_torn(ps_client *c)
{
    for (int32_t i = 0; i < c->n_tensors; i++)
        if (c->tensors[i].is_whole && ps_client_is_torn(c, &c->tensors[i])) PS_TRY(ps_client_restore_param(c, i));
    return PS_OK;
}

/* Some updates may have been made with the earlier numbers. */
static ps_status expect_unchanged_groups(const ps_client *c)
{
    const int32_t group = c->updates.are_early ? ps_param_groups_find_changed(&c->groups, c->n_updates) : -1;
    if (group < 0) return PS_OK;
    return PS_FAIL(PS_ESTATE,
                   "ps_client_step: the rate or other numbers of group %d were changed after the last backward pass of "
                   "the step had begun, within which updates run (%s): change them before it, or set "
                   "memory.update_in_backward = auto; nothing has changed, and with the numbers of before the step can "
                   "be made",
                   group, ps_client_early_option(c));
}

/* Gradients are sums over the ranks, not means. */
static double scale_of_sums(const ps_client *c)
{
    return (double)c->scaler.scale * c->settings.ranks.n;
}

static ps_status begin_last_backward(ps_client *c)
{
    ps_client_updates *u = &c->updates;
    if (!c->settings.always_updates_early && !c->settings.may_speculate) return PS_OK;
    if (u->are_early)
        return PS_FAIL(PS_ESTATE,
                       "ps_client_begin_last_backward: the last backward pass of this step has begun already. With %s "
                       "gradients are accumulated by the configuration alone: set gradient_accumulation_steps to the "
                       "number of backward passes of a step, or memory.update_in_backward = auto",
                       ps_client_early_option(c));
    PS_TRY(ps_client_break_ranks(c, ps_client_flush(c)));
    u->unclipped_scale = ps_step_grad_scale(0, 0, scale_of_sums(c));
    ps_param_groups_decide(&c->groups, c->n_updates, false, u->unclipped_scale);
    u->first_moment = c->steps.trace != NULL ? c->steps.trace->n_moments : 0;
    u->are_early = true;
    return PS_OK;
}

ps_status ps_client_begin_last_backward(ps_client *c)
{
    PS_TRY(PS_NEED("client", c));
    PS_TRY(ps_client_enter(c, "ps_client_begin_last_backward", PS_CLIENT_IS_READY));
    return ps_client_leave(c, begin_last_backward(c));
}

/* Updates that could have been made early. They will be in the next step, so they must not be deferred into its forward
 * pass. */
static void look_for_early(ps_client *c)
{
    ps_client_updates *u = &c->updates;
    for (int32_t k = 0; k < c->layout->n_chunks; k++) {
        const bool may_be = u->are_early && ps_client_can_be_early(c, k) &&
                            (!c->settings.may_speculate || ps_client_can_keep_next(c, k));
        u->could_follow[k] = may_be ? ps_client_last_use(c, k) : -1;
        u->writes_ahead[k] = u->writes_ahead[k] || (c->settings.may_speculate && u->could_follow[k] >= 0);
    }
}

static bool may_be_late(const ps_client *c, ps_run chunks)
{
    for (int32_t k = chunks.first; k < chunks.first + chunks.n_chunks; k++)
        if (ps_client_is_any_list_pinned(c, k) || c->updates.could_follow[k] >= 0) return false;
    return true;
}

/* Chunks that the program has in use are updated in place. */
static ps_status update_chunks(ps_client *c)
{
    const bool defers = ps_client_may_defer(c);
    for (int32_t k = 0; k < c->layout->n_chunks; k++) {
        if (!ps_client_owns(c, k) || !ps_client_chunk_has_any_gradient(c, k)) continue;
        const ps_run chunks = ps_client_updated_with(c, k);
        /* a later one follows the first, which has been updated then */
        const bool is_late = k > chunks.first || (defers && may_be_late(c, chunks));
        c->updates.is_waiting[k] = is_late || c->updates.is_unvalidated[k]; /* the latter: taken back */
        c->updates.n_waiting += c->updates.is_waiting[k];
        if (!c->updates.is_waiting[k]) PS_TRY(ps_client_update_chunk(c, k, c->steps.step_bytes));
    }
    return PS_OK;
}

static ps_status update_all(ps_client *c)
{
    PS_TRY(sync_written(c));
    look_for_early(c);
    ps_client_end_early_updates(c);
    for (int32_t i = 0; i < c->n_tensors; i++) {
        ps_client_tensor_state *t = &c->tensors[i];
        t->is_given = false;
        if (!t->has_gradient) continue;
        t->steps += !c->groups.skips;
        if (t->is_unmanaged) PS_TRY(update_unmanaged(c, t));
        t->has_gradient = t->is_master_newer = t->is_gradient_changed = false;
    }
    PS_TRY(update_chunks(c));
    return ps_client_reshard_all(c);
}

/* What this rank has found in a step that is skipped. */
static const char *seen_text(const ps_client *c, const ps_grad_sums *sums, char text[PS_NONFINITE_TEXT_MAX])
{
    if (sums->n_nonfinite > 0)
        snprintf(text, PS_NONFINITE_TEXT_MAX, "the gradient of %.200s", c->tensors[sums->first_nonfinite].name);
    else
        snprintf(text, PS_NONFINITE_TEXT_MAX, "gradients that another rank has, or their sum");
    return text;
}

/* On any rank, once the ranks' results have been added up. */
static bool has_gradients(const ps_client *c)
{
    for (int32_t i = 0; i < c->n_tensors; i++)
        if (c->tensors[i].has_gradient) return true;
    return false;
}

/* The earlier values of early updates are gone, on some rank at least. All ranks come to this together. */
static ps_status end_incomplete_step(ps_client *c, const char *seen)
{
    const ps_status st = PS_FAIL(
        PS_ENUMERIC,
        "step %lld has gradients that are not finite; first seen: %s. Updates run within the backward pass here "
        "(memory.update_in_backward = always), so some weights have changed already: continue from the last "
        "checkpoint. "
        "Try a lower learning rate, and look at the data and the weights that training began with; "
        "memory.update_in_backward = auto leaves the weights of such a step as they were",
        (long long)c->n_steps, seen);
    c->is_incomplete = true;
    return ps_client_break(c, st);
}

static ps_status run_step(ps_client *c, ps_client_step_info *info)
{
    char seen[PS_NONFINITE_TEXT_MAX];
    ps_grad_sums sums;
    bool was_recorded;
    const int32_t n_early = c->updates.n_early;
    int32_t n_speculated;
    double n_early_of_all = c->settings.may_speculate ? 0 : n_early; /* that cannot be taken back */
    PS_TRY(ps_client_check_gradient_unpinned(c, -1, "ps_client_step"));
    PS_TRY(expect_unchanged_groups(c));
    PS_TRY(ps_client_finish_prefetch(c));                 /* prefetched, and not used */
    PS_TRY(ps_client_break_ranks(c, ps_client_flush(c))); /* of the step before, unused by any pass */
    PS_TRY(ps_client_break_ranks(c, ps_client_check_update_room(c)));
    PS_TRY(ps_client_break_ranks(c, join_torn(c)));
    const double scale = (double)c->scaler.scale, grad_scale = scale_of_sums(c);
    PS_TRY(ps_client_break(c, ps_client_reduce_remaining(c)));
    const bool is_update = has_gradients(c); /* otherwise learning rates and the loss scale stay too */
    PS_TRY(ps_client_break(c, ps_client_sum_gradients(c, &sums)));
    (void)seen_text(c, &sums, seen);
    PS_TRY(ps_client_break(c, ps_sums_of_ranks(c->comm, &sums, &n_early_of_all, 1)));
    const ps_step_decision decided = ps_step_decide(&sums, c->clip_norm, grad_scale);
    const bool skips = is_update && ps_loss_scaler_update(&c->scaler, decided.overflow);
    const bool is_incomplete = skips && n_early_of_all > 0;
    const bool are_right = !skips && decided.grad_scale == c->updates.unclipped_scale;
    ps_param_groups_decide(&c->groups, c->n_updates, skips, decided.grad_scale);
    PS_TRY(ps_client_break(c, ps_client_validate(c, are_right, &n_speculated)));
    PS_TRY(ps_client_break(c, update_all(c)));
    if (is_update && !skips) c->n_updates++;
    PS_TRY(ps_client_break(c, expect_order(c)));
    ps_client_end_step(c, &was_recorded);
    PS_TRY(ps_client_break(c, ps_client_update_taken_back(c)));
    c->n_steps++;
    c->n_recorded_steps += was_recorded;
    *info = (ps_client_step_info){.step = c->n_updates,
                                  .is_skipped = skips && !is_incomplete,
                                  .grad_norm = decided.overflow ? INFINITY : decided.norm,
                                  .loss_scale = scale,
                                  .is_recorded = was_recorded,
                                  .n_restored = c->n_restored,
                                  .n_separate = c->n_separate,
                                  .n_deferred = c->updates.n_waiting,
                                  .n_gathered = c->sharding.n_gathered,
                                  .n_gathered_ahead = c->sharding.n_prefetched,
                                  .n_early = n_early,
                                  .n_speculated = n_speculated,
                                  .n_taken_back = are_right ? 0 : n_speculated};
    c->n_restored = c->n_separate = c->sharding.n_gathered = c->sharding.n_prefetched = 0;
    if (is_incomplete) return end_incomplete_step(c, seen);
    if (!is_update) return PS_OK;
    ps_nonfinite_count(&c->nonfinite, &c->scaler, skips, c->n_steps, seen);
    return ps_nonfinite_check(&c->nonfinite, c->settings.max_nonfinite_steps);
}

ps_status ps_client_step(ps_client *c, ps_client_step_info *info)
{
    PS_TRY(PS_NEED("client", c));
    ps_client_step_info own = {0};
    if (info != NULL) PS_TRY(PS_SIZED_GIVE(ps_client_step_info, &own, info)); /* before any effect */
    PS_TRY(ps_client_enter(c, "ps_client_step", PS_CLIENT_IS_READY));
    ps_status st = run_step(c, &own);
    (void)ps_client_leave(c, PS_OK);
    if (info != NULL && (st == PS_OK || st == PS_ENUMERIC)) (void)PS_SIZED_GIVE(ps_client_step_info, &own, info);
    return st;
}
