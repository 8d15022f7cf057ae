/* update.c - the optimizer's step: norm and overflow first, then chunk by chunk, each a moment of its own: at once, or
 * when the next forward pass asks for the chunk, so that optimizer data moves while the framework computes. With
 * memory.update_in_backward = always, where neither matters, already in the last backward pass, as soon as the recorded
 * step has not used the chunk any more. */
#include <math.h>

#include "base/sized.h"
#include "external/client_impl.h"
#include "state/sums_of_ranks.h"

/* ---- a tensor, or what of it lies in a chunk ---- */

/* What the updates of a tensor compute with. Its count has this one in it, but for early ones: the step counts them. */
static ps_piece_update update_of(const ps_client *c, const ps_client_tensor_state *t)
{
    ps_piece_update u = ps_groups_update(&c->groups, t->group, true);
    u.step.t = t->steps + c->updates.are_early;
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

/* ---- within the backward pass ---- */

ps_status ps_client_expect_no_early_update(ps_client *c, int32_t tensor, const char *what)
{
    const ps_client_tensor_state *t = &c->tensors[tensor];
    bool is_early = false;
    for (int32_t k = 0; k < t->n_pieces && c->updates.n_early > 0; k++)
        is_early = is_early || ps_client_gradient_of(c, ps_client_piece_of(c, t, k))->is_used_up;
    if (!is_early) return PS_OK;
    const ps_moment *now = ps_client_present_moment(c);
    const ps_status st = PS_FAIL(
        PS_ESTATE,
        "%.200s: %s%s%.100s, but it has been updated within the backward pass of this step already, as the step before "
        "did not use it any more (memory.update_in_backward = always); set memory.update_in_backward = auto, and all "
        "updates come after the backward pass",
        t->name, what, now != NULL ? " in " : "", now != NULL ? now->label : "");
    return c->comm != NULL ? ps_client_break(c, st) : st;
}

ps_status ps_client_expect_gradients_whole(const ps_client *c, const char *what)
{
    if (!c->updates.are_early) return PS_OK;
    return PS_FAIL(
        PS_ESTATE,
        "%s is not allowed between the beginning of a step's last backward pass and the step, as updates may "
        "have used gradients up by then (memory.update_in_backward = always); set memory.update_in_backward "
        "= auto, and all updates come after the backward pass",
        what);
}

/* All that is trained there has a gradient, with several ranks the sum of all, that is as it came. */
static bool can_be_early(ps_client *c, int32_t chunk)
{
    if (!ps_client_owns(c, chunk) || !ps_client_chunk_has_any_gradient(c, chunk) || is_held(c, chunk)) return false;
    for (int32_t i = c->pieces.first[chunk]; i < c->pieces.first[chunk + 1]; i++) {
        const int32_t tensor = c->pieces.all[i].tensor;
        ps_client_tensor_state *t = &c->tensors[tensor];
        if (c->gradients[i].place == PS_GRADIENT_NONE ? !t->is_frozen : c->gradients[i].is_fresh) return false;
        if (t->is_gradient_changed || ps_client_is_written(t, c->pin_counts[tensor])) return false;
    }
    return true;
}

/* Where there is no room after all it comes at the step's end. */
static ps_status update_early(ps_client *c, int32_t chunk, int64_t framework_bytes)
{
    const ps_status st = update_chunk(c, chunk, framework_bytes);
    if (st == PS_EBUDGET) (void)ps_client_stop_following(c);
    if (st == PS_EBUDGET) return PS_OK;
    PS_TRY(ps_client_break(c, st));
    for (int32_t i = c->pieces.first[chunk]; i < c->pieces.first[chunk + 1]; i++)
        c->gradients[i].is_used_up = c->gradients[i].is_used_up || c->gradients[i].place != PS_GRADIENT_NONE;
    end_gradients(c, chunk);
    c->updates.n_early++;
    return PS_OK;
}

static void end_early_updates(ps_client *c)
{
    for (int32_t i = 0; i < c->pieces.n && c->updates.n_early > 0; i++) c->gradients[i].is_used_up = false;
    c->updates.are_early = false;
    c->updates.n_early = 0;
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
    const ps_client_updates *u = &c->updates;
    if (u->n_waiting > 0 && ps_client_takes_more_than_foretold(c, framework_bytes))
        return carry_out_all(c, framework_bytes);
    while (u->n_waiting > 0 || u->are_early) {
        const int32_t chunk = ps_client_foretold_update(c);
        if (chunk < 0 || (!u->is_waiting[chunk] && !can_be_early(c, chunk))) return PS_OK;
        PS_TRY(u->is_waiting[chunk] ? carry_out(c, chunk, framework_bytes) : update_early(c, chunk, framework_bytes));
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
    end_early_updates(c);
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

/* Some updates may have been made with the numbers of then. */
static ps_status expect_same_numbers(const ps_client *c)
{
    const int32_t group = c->updates.are_early ? ps_groups_find_changed(&c->groups, c->n_updates) : -1;
    if (group < 0) return PS_OK;
    return PS_FAIL(PS_ESTATE,
                   "ps_client_step: the rate or other numbers of group %d were changed after the last backward pass of "
                   "the step had begun, within which updates run (memory.update_in_backward = always): change them "
                   "before it, or set memory.update_in_backward = auto; nothing has changed, and with the numbers of "
                   "before the step can be made",
                   group);
}

/* Gradients are sums over the ranks, not means. */
static double scale_of_sums(const ps_client *c)
{
    return (double)c->scaler.scale * c->settings.ranks.n;
}

static ps_status begin_last_backward(ps_client *c)
{
    ps_client_updates *u = &c->updates;
    if (!c->settings.always_updates_early) return PS_OK;
    if (u->are_early)
        return PS_FAIL(PS_ESTATE,
                       "ps_client_begin_last_backward: the last backward pass of this step has begun already. With "
                       "memory.update_in_backward = always gradients are accumulated by the configuration alone: set "
                       "gradient_accumulation_steps to the number of backward passes of a step, or "
                       "memory.update_in_backward = auto");
    PS_TRY(ps_client_tell_ranks(c, ps_client_flush(c)));
    ps_groups_decide(&c->groups, c->n_updates, false, ps_step_grad_scale(0, c->settings.clip_norm, scale_of_sums(c)));
    u->first_moment = c->steps.trace != NULL ? c->steps.trace->n_moments : 0;
    u->are_early = true;
    return PS_OK;
}

ps_status ps_client_begin_last_backward(ps_client *c)
{
    PS_TRY(PS_NEED("client", c));
    PS_TRY(ps_client_enter(c, "ps_client_begin_last_backward", PS_CLIENT_IS_READY));
    const ps_status st = begin_last_backward(c);
    ps_client_leave(c);
    return st;
}

/* Which updates could have come early. They do in the next step, in whose forward pass they must not wait therefore. */
static void look_for_early(ps_client *c)
{
    ps_client_updates *u = &c->updates;
    for (int32_t k = 0; k < c->layout->n_chunks; k++)
        u->could_follow[k] = u->are_early && can_be_early(c, k) ? ps_client_last_use(c, k) : -1;
}

/* What the program has in use is updated under its hands. */
static ps_status update_chunks(ps_client *c)
{
    const bool defers = ps_client_may_defer(c);
    for (int32_t k = 0; k < c->layout->n_chunks; k++) {
        if (!ps_client_owns(c, k) || !ps_client_chunk_has_any_gradient(c, k)) continue;
        c->updates.is_waiting[k] = defers && !is_held(c, k) && c->updates.could_follow[k] < 0;
        c->updates.n_waiting += c->updates.is_waiting[k];
        if (!c->updates.is_waiting[k]) PS_TRY(use_up(c, k, c->steps.step_bytes));
    }
    return PS_OK;
}

static ps_status update_all(ps_client *c)
{
    PS_TRY(settle_written(c));
    look_for_early(c);
    end_early_updates(c);
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

/* Nobody has the values of before of what was updated early, on some rank at least. All ranks come to this together. */
static ps_status end_half_made_step(ps_client *c, const char *seen)
{
    const ps_status st = PS_FAIL(
        PS_ENUMERIC,
        "step %lld has gradients that are not finite; first seen: %s. Updates run within the backward pass here "
        "(memory.update_in_backward = always), so some weights have changed already: go on from the last checkpoint. "
        "Try a lower learning rate, and look at the data and the weights that training began with; "
        "memory.update_in_backward = auto leaves the weights of such a step as they were",
        (long long)c->n_steps, seen);
    c->is_half_made = true;
    return ps_client_break(c, st);
}

static ps_status run_step(ps_client *c, ps_client_step_info *info)
{
    char seen[PS_NONFINITE_TEXT_MAX];
    ps_grad_sums sums;
    bool was_watched;
    const int32_t n_early = c->updates.n_early;
    double n_early_of_all = n_early;
    PS_TRY(ps_client_expect_gradients_free(c, "ps_client_step"));
    PS_TRY(expect_same_numbers(c));
    PS_TRY(ps_client_finish_ahead(c));                   /* gathered ahead, and not used */
    PS_TRY(ps_client_tell_ranks(c, ps_client_flush(c))); /* of the step before, what no pass has asked for */
    PS_TRY(ps_client_tell_ranks(c, ps_client_check_update_room(c)));
    const double scale = (double)c->scaler.scale, grad_scale = scale_of_sums(c);
    PS_TRY(ps_client_break(c, ps_client_reduce_rest(c)));
    const bool is_update = has_gradients(c); /* else the rates and the loss scale stay too */
    PS_TRY(ps_client_break(c, ps_client_sum_gradients(c, &sums)));
    (void)seen_text(c, &sums, seen);
    PS_TRY(ps_client_break(c, ps_sums_of_ranks(c->comm, &sums, &n_early_of_all, 1)));
    const ps_step_decision decided = ps_step_decide(&sums, c->settings.clip_norm, grad_scale);
    const bool skips = is_update && ps_loss_scaler_update(&c->scaler, decided.overflow);
    const bool is_half_made = skips && n_early_of_all > 0;
    ps_groups_decide(&c->groups, c->n_updates, skips, decided.grad_scale);
    PS_TRY(ps_client_break(c, update_all(c)));
    if (is_update && !skips) c->n_updates++;
    PS_TRY(ps_client_break(c, expect_order(c)));
    ps_client_end_step(c, &was_watched);
    c->n_steps++;
    c->n_watched_steps += was_watched;
    *info = (ps_client_step_info){.step = c->n_updates,
                                  .is_skipped = skips && !is_half_made,
                                  .grad_norm = decided.overflow ? INFINITY : decided.norm,
                                  .loss_scale = scale,
                                  .is_watched = was_watched,
                                  .n_restored = c->n_restored,
                                  .n_beside = c->n_beside,
                                  .n_deferred = c->updates.n_waiting,
                                  .n_gathered = c->sharing.n_gathered,
                                  .n_gathered_ahead = c->sharing.n_gathered_ahead,
                                  .n_early = n_early};
    c->n_restored = c->n_beside = c->sharing.n_gathered = c->sharing.n_gathered_ahead = 0;
    if (is_half_made) return end_half_made_step(c, seen);
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
