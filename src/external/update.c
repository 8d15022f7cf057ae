/* update.c - the optimizer's step: norm and overflow first, then chunk by chunk, each a moment of its own: at once, or
 * when the next forward pass asks for the chunk, so that optimizer data moves while the framework computes. */
#include <math.h>

#include "base/sized.h"
#include "external/client_impl.h"
#include "state/sums_of_ranks.h"

/* ---- a tensor, or what of it lies in a chunk ---- */

/* What the updates of a tensor compute with; its count has this one in it. */
static ps_piece_update update_of(const ps_client *c, const ps_client_tensor_state *t)
{
    ps_piece_update u = ps_groups_update(&c->groups, t->group, true);
    u.step.t = t->steps;
    return u;
}

static ps_status update_piece(ps_client *c, const ps_piece *p, ps_tier tier)
{
    ps_piece_update u = update_of(c, &c->tensors[p->tensor]);
    u.gradients = ps_client_gradient_list(c, p);
    return ps_state_update_piece(&c->state, tier, p, &u);
}

/* ---- a chunk ---- */

/* How the update of a chunk uses a list; false: not at all. */
static bool uses_list(const ps_client *c, int32_t chunk, ps_list list, ps_access_mode *mode)
{
    const bool skips = c->groups.skips;
    *mode = skips && list != PS_LIST_PARAM16 ? PS_ACCESS_READ : PS_ACCESS_WRITE;
    if (list <= PS_LIST_MASTER) return true;
    if (skips) return false;
    if (list < PS_LIST_STATES + c->settings.optimizer.n_states) return true;
    *mode = PS_ACCESS_READ;
    return list == ps_lists_grad(&c->lists) && ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_BESIDE);
}

/* Nothing is read of a step that is skipped, and nothing to be saved changes. */
static ps_status update_pieces(ps_client *c, int32_t chunk, ps_tier tier)
{
    const bool skips = c->groups.skips;
    if (!skips) PS_TRY(ps_snapshot_visit(&c->snapshot, &c->state, chunk, tier, PS_SNAPSHOT_BEFORE));
    for (int32_t i = c->pieces.first[chunk]; i < c->pieces.first[chunk + 1]; i++)
        if (c->gradients[i].place != PS_GRADIENT_NONE) PS_TRY(update_piece(c, &c->pieces.all[i], tier));
    return skips ? PS_OK : ps_snapshot_visit(&c->snapshot, &c->state, chunk, tier, PS_SNAPSHOT_AFTER);
}

static ps_status update_on(ps_client *c, int32_t chunk, ps_tier tier)
{
    ps_access_mode mode;
    ps_status st = PS_OK;
    ps_list held = 0;
    for (; held < c->lists.n && st == PS_OK; held++)
        if (uses_list(c, chunk, held, &mode)) st = ps_client_hold(c, held, chunk, tier, mode);
    if (st == PS_OK)
        st = update_pieces(c, chunk, tier);
    else
        held--; /* the one that could not be held */
    for (ps_list list = 0; list < held; list++)
        if (uses_list(c, chunk, list, &mode)) ps_client_let_go(c, list, chunk);
    return st;
}

/* Fp32 values, states and gradients of their own come one by one, so that they are too many may show late. */
static ps_status tell_update_room(const ps_client *c, ps_status st)
{
    const int64_t *b = c->settings.budgets.bytes;
    char advice[PS_CLIENT_ADVICE_TEXT_MAX];
    if (st != PS_EBUDGET) return st;
    return PS_FAIL(st,
                   "the update of a chunk finds no room in a device tier of %lld bytes, a host tier of %lld and a disk "
                   "tier of %lld beside other chunks, gradients of their own and the framework's %lld bytes: give one "
                   "of them more, memory.disk first, or %s: %s",
                   (long long)b[PS_TIER_DEVICE], (long long)b[PS_TIER_HOST], (long long)b[PS_TIER_DISK],
                   (long long)c->steps.step_bytes,
                   ps_client_step_advice(c, c->steps.step_bytes, ps_client_update_bytes(c), 0, advice),
                   ps_last_error());
}

static bool is_held(const ps_client *c, int32_t chunk)
{
    for (ps_list list = 0; list < c->lists.n; list++)
        if (c->held.count[ps_store_chunk(c->layout, list, chunk)] > 0) return true;
    return false;
}

/* Between steps an update is no moment, and nothing is learnt of it. */
enum { UNRECORDED = -1 };

static ps_status begin_update(ps_client *c, const char *label, int64_t framework_bytes)
{
    return framework_bytes == UNRECORDED ? PS_OK : ps_client_begin_moment(c, PS_PHASE_UPDATE, label, framework_bytes);
}

/* Where there is no room beside what the framework has, the other tier may have it. */
static ps_status update_chunk(ps_client *c, int32_t chunk, int64_t framework_bytes)
{
    const ps_tier tier = ps_client_update_tier(c, chunk), other = tier == PS_TIER_HOST ? PS_TIER_DEVICE : PS_TIER_HOST;
    PS_TRY(begin_update(c, "update", framework_bytes));
    const ps_status st = update_on(c, chunk, tier);
    if (st != PS_EBUDGET || c->settings.budgets.bytes[other] == 0 || is_held(c, chunk)) return tell_update_room(c, st);
    PS_TRY(begin_update(c, "update elsewhere", framework_bytes));
    return tell_update_room(c, update_on(c, chunk, other));
}

static void end_gradients(ps_client *c, int32_t chunk)
{
    if (ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_BESIDE))
        ps_store_discard(c->tiers.store, ps_store_chunk(c->layout, ps_lists_grad(&c->lists), chunk));
    for (int32_t i = c->pieces.first[chunk]; i < c->pieces.first[chunk + 1]; i++)
        c->gradients[i].place = PS_GRADIENT_NONE;
}

/* Update a chunk whose gradients are not used up yet. */
static ps_status use_up(ps_client *c, int32_t chunk, int64_t framework_bytes)
{
    PS_TRY(update_chunk(c, chunk, framework_bytes));
    end_gradients(c, chunk);
    return PS_OK;
}

/* ---- those that wait ---- */

static ps_status carry_out(ps_client *c, int32_t chunk, int64_t framework_bytes)
{
    ps_client_updates *u = &c->updates;
    const ps_status st = use_up(c, chunk, framework_bytes);
    if (st == PS_EBUDGET) return st;
    PS_TRY(ps_client_break(c, st));
    u->is_waiting[chunk] = false;
    u->n_waiting--;
    return PS_OK;
}

static ps_status carry_out_all(ps_client *c, int64_t framework_bytes)
{
    for (int32_t k = 0; k < c->layout->n_chunks; k++)
        if (c->updates.is_waiting[k]) PS_TRY(carry_out(c, k, framework_bytes));
    return PS_OK;
}

/* In a larger step than the recorded one, room that there is now may be gone later. */
ps_status ps_client_update_as_foretold(ps_client *c, int64_t framework_bytes)
{
    if (c->updates.n_waiting > 0 && ps_client_takes_more_than_foretold(c, framework_bytes))
        return carry_out_all(c, framework_bytes);
    while (c->updates.n_waiting > 0) {
        const int32_t chunk = ps_client_foretold_update(c);
        if (chunk < 0 || !c->updates.is_waiting[chunk]) return PS_OK;
        PS_TRY(carry_out(c, chunk, framework_bytes));
    }
    return PS_OK;
}

/* Within a moment that has accesses already it goes on in another one of that name. */
ps_status ps_client_flush_chunk(ps_client *c, int32_t chunk)
{
    if (c->updates.n_waiting == 0 || !c->updates.is_waiting[chunk]) return PS_OK;
    const ps_moment *now = ps_client_present_moment(c);
    if (now == NULL) return carry_out(c, chunk, UNRECORDED);
    const ps_phase phase = now->phase;
    const char *label = now->label; /* kept as long as the client */
    if (now->n_accesses == 0) ps_client_retract_moment(c);
    PS_TRY(carry_out(c, chunk, c->steps.step_bytes));
    return ps_client_begin_moment(c, phase, label, c->steps.step_bytes);
}

ps_status ps_client_flush_group(ps_client *c, int32_t group)
{
    const ps_chunk_group g = ps_client_chunks_of(c, group);
    for (int32_t k = g.chunk; k < g.chunk + g.n_chunks; k++) PS_TRY(ps_client_flush_chunk(c, k));
    return PS_OK;
}

ps_status ps_client_flush_tensor(ps_client *c, int32_t tensor)
{
    if (c->updates.n_waiting == 0 || c->tensors[tensor].in_layout < 0) return PS_OK;
    const ps_place p = ps_client_place_of(c, tensor);
    const int32_t first = ps_client_group_of(c, p.chunk), last = ps_client_group_of(c, p.chunk + p.n_chunks - 1);
    for (int32_t g = first; g <= last; g++) PS_TRY(ps_client_flush_group(c, g));
    return PS_OK;
}

void ps_client_drop_updates(ps_client *c)
{
    for (int32_t k = 0; k < c->layout->n_chunks; k++) {
        if (!c->updates.is_waiting[k]) continue;
        c->updates.is_waiting[k] = false;
        end_gradients(c, k);
    }
    c->updates.n_waiting = 0;
}

ps_status ps_client_flush(ps_client *c)
{
    for (int32_t k = 0; k < c->layout->n_chunks; k++) PS_TRY(ps_client_flush_chunk(c, k));
    return PS_OK;
}

/* What has been issued in the wrong order. */
static ps_status expect_order(const ps_client *c)
{
    if (c->order == NULL || ps_order_get_stats(c->order).n_reports == 0) return PS_OK;
    return PS_FAIL(PS_EDEVICE, "check_order: %s", ps_order_text(c->order, 0));
}

/* ---- all ---- */

static ps_status update_apart(ps_client *c, ps_client_tensor_state *t)
{
    if (c->groups.skips) return PS_OK;
    float *value = ps_client_apart(t, PS_LIST_MASTER);
    ps_optimizer_piece p = {.param = value,
                            .grad = ps_client_apart(t, ps_lists_grad(&c->lists)),
                            .master = value,
                            .n = t->elements,
                            .param_dtype = PS_DTYPE_F32,
                            .grad_dtype = PS_DTYPE_F32};
    for (int32_t i = 0; i < c->settings.optimizer.n_states; i++) p.state[i] = ps_client_apart(t, PS_LIST_STATES + i);
    const ps_piece_update u = update_of(c, t);
    p.weight_decay = u.weight_decay;
    return ps_optimizer_update(c->settings.backend, c->tiers.compute[PS_TIER_DEVICE], u.optimizer, &u.step, &p);
}

/* What the program has written to a parameter or its master since its gradient came. */
static ps_status settle_written(ps_client *c)
{
    for (int32_t i = 0; i < c->n_tensors; i++) {
        ps_client_tensor_state *t = &c->tensors[i];
        if (!t->has_gradient || t->is_apart) continue;
        if (ps_client_is_written(t, c->pin_counts[i])) PS_TRY(ps_client_settle(c, i));
    }
    return PS_OK;
}

/* What the program has in use is updated under its hands. */
static ps_status update_chunks(ps_client *c)
{
    const bool defers = ps_client_may_defer(c);
    for (int32_t k = 0; k < c->layout->n_chunks; k++) {
        if (!ps_client_owns(c, k) || !ps_client_chunk_has_any_gradient(c, k)) continue;
        c->updates.is_waiting[k] = defers && !is_held(c, k);
        c->updates.n_waiting += c->updates.is_waiting[k];
        if (!c->updates.is_waiting[k]) PS_TRY(use_up(c, k, c->steps.step_bytes));
    }
    return PS_OK;
}

static ps_status update_all(ps_client *c)
{
    PS_TRY(settle_written(c));
    for (int32_t i = 0; i < c->n_tensors; i++) {
        ps_client_tensor_state *t = &c->tensors[i];
        t->is_given = false;
        if (!t->has_gradient) continue;
        t->steps += !c->groups.skips;
        if (t->is_apart) PS_TRY(update_apart(c, t));
        t->has_gradient = t->is_master_newer = t->is_gradient_changed = false;
    }
    PS_TRY(update_chunks(c));
    return ps_client_forget_others(c);
}

/* What this rank has seen of a step that is skipped. */
static const char *seen_text(const ps_client *c, const ps_grad_sums *sums, char text[PS_NONFINITE_TEXT_MAX])
{
    if (sums->n_nonfinite > 0)
        snprintf(text, PS_NONFINITE_TEXT_MAX, "the gradient of %.200s", c->tensors[sums->first_nonfinite].name);
    else
        snprintf(text, PS_NONFINITE_TEXT_MAX, "gradients that another rank has, or their sum");
    return text;
}

/* On any rank, once what the ranks have has been added up. */
static bool has_gradients(const ps_client *c)
{
    for (int32_t i = 0; i < c->n_tensors; i++)
        if (c->tensors[i].has_gradient) return true;
    return false;
}

static ps_status run_step(ps_client *c, ps_client_step_info *info)
{
    char seen[PS_NONFINITE_TEXT_MAX];
    ps_grad_sums sums;
    bool was_watched;
    PS_TRY(ps_client_expect_gradients_free(c, "ps_client_step"));
    PS_TRY(ps_client_finish_ahead(c));                   /* gathered ahead, and not used */
    PS_TRY(ps_client_tell_ranks(c, ps_client_flush(c))); /* of the step before, what no pass has asked for */
    PS_TRY(ps_client_tell_ranks(c, ps_client_check_update_room(c)));
    const double scale = (double)c->scaler.scale, grad_scale = scale * c->settings.ranks.n; /* sums, not means */
    PS_TRY(ps_client_break(c, ps_client_reduce_rest(c)));
    const bool is_update = has_gradients(c); /* else the rates and the loss scale stay too */
    PS_TRY(ps_client_break(c, ps_client_sum_gradients(c, &sums)));
    (void)seen_text(c, &sums, seen);
    PS_TRY(ps_client_break(c, ps_sums_of_ranks(c->comm, &sums, NULL, 0)));
    const ps_step_decision decided = ps_step_decide(&sums, c->settings.clip_norm, grad_scale);
    const bool skips = is_update && ps_loss_scaler_update(&c->scaler, decided.overflow);
    ps_groups_decide(&c->groups, c->n_updates, skips, decided.grad_scale);
    PS_TRY(ps_client_break(c, update_all(c)));
    if (is_update && !skips) c->n_updates++;
    PS_TRY(ps_client_break(c, expect_order(c)));
    ps_client_end_step(c, &was_watched);
    c->n_steps++;
    c->n_watched_steps += was_watched;
    *info = (ps_client_step_info){.step = c->n_updates,
                                  .is_skipped = skips,
                                  .grad_norm = decided.overflow ? INFINITY : decided.norm,
                                  .loss_scale = scale,
                                  .is_watched = was_watched,
                                  .n_restored = c->n_restored,
                                  .n_beside = c->n_beside,
                                  .n_deferred = c->updates.n_waiting,
                                  .n_gathered = c->sharing.n_gathered,
                                  .n_gathered_ahead = c->sharing.n_gathered_ahead};
    c->n_restored = c->n_beside = c->sharing.n_gathered = c->sharing.n_gathered_ahead = 0;
    if (!is_update) return PS_OK;
    ps_nonfinite_count(&c->nonfinite, &c->scaler, skips, c->n_steps, seen);
    return ps_nonfinite_check(&c->nonfinite, c->settings.max_nonfinite_steps);
}

ps_status ps_client_step(ps_client *c, ps_client_step_info *info)
{
    PS_TRY(PS_NEED("client", c));
    ps_client_step_info own = {0};
    if (info != NULL) PS_TRY(PS_SIZED_GIVE(ps_client_step_info, &own, info)); /* before anything has happened */
    PS_TRY(ps_client_enter(c, "ps_client_step", PS_CLIENT_IS_READY));
    ps_status st = run_step(c, &own);
    ps_client_leave(c);
    if (info != NULL && (st == PS_OK || st == PS_ENUMERIC)) (void)PS_SIZED_GIVE(ps_client_step_info, &own, info);
    return st;
}
