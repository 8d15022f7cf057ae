/* update.c - the optimizer's step: norm and overflow first, then chunk by chunk, each a moment of its own. */
#include <math.h>

#include "base/sized.h"
#include "foreign/client_impl.h"
#include "state/sums_of_ranks.h"

/* What the updates of a step have in common. */
typedef struct step {
    bool skips;
    float grad_scale;
    int64_t framework_bytes;
} step;

/* ---- a tensor, or what of it lies in a chunk ---- */

/* What the updates of a tensor compute with. */
static ps_piece_update update_of(const ps_client *c, const step *s, const ps_client_tensor_state *t)
{
    const ps_client_group_state *g = &c->groups[t->group];
    return (ps_piece_update){
        .skips = s->skips,
        .optimizer = &g->optimizer,
        .step = {.t = t->steps + 1, .lr = (float)ps_client_learning_rate(c, t->group), .grad_scale = s->grad_scale},
        .weight_decay = (float)g->optimizer.weight_decay};
}

static ps_status update_piece(ps_client *c, const step *s, const ps_piece *p, ps_tier tier)
{
    ps_piece_update u = update_of(c, s, &c->tensors[p->tensor]);
    u.gradients = ps_client_gradient_list(c, p);
    return ps_state_update_piece(&c->state, tier, p, &u);
}

/* ---- a chunk ---- */

/* How the update of a chunk uses a list; false: not at all. */
static bool uses_list(const ps_client *c, const step *s, int32_t chunk, ps_list list, ps_access_mode *mode)
{
    *mode = s->skips && list != PS_LIST_PARAM16 ? PS_ACCESS_READ : PS_ACCESS_WRITE;
    if (list <= PS_LIST_MASTER) return true;
    if (s->skips) return false;
    if (list < PS_LIST_STATES + c->settings.optimizer.n_states) return true;
    *mode = PS_ACCESS_READ;
    return list == ps_lists_grad(&c->lists) && ps_client_chunk_has_gradient(c, chunk, PS_GRADIENT_BESIDE);
}

static ps_status update_pieces(ps_client *c, const step *s, int32_t chunk, ps_tier tier)
{
    for (int32_t i = c->pieces.first[chunk]; i < c->pieces.first[chunk + 1]; i++)
        if (c->gradients[i].place != PS_GRADIENT_NONE) PS_TRY(update_piece(c, s, &c->pieces.all[i], tier));
    return PS_OK;
}

static ps_status update_on(ps_client *c, const step *s, int32_t chunk, ps_tier tier)
{
    ps_access_mode mode;
    ps_status st = PS_OK;
    ps_list held = 0;
    for (; held < c->lists.n && st == PS_OK; held++)
        if (uses_list(c, s, chunk, held, &mode)) st = ps_client_hold(c, held, chunk, tier, mode);
    if (st != PS_OK) held--; /* the one that could not be held */
    if (st == PS_OK && !s->skips) st = ps_snapshot_visit(&c->snapshot, &c->state, chunk, tier, PS_SNAPSHOT_BEFORE);
    if (st == PS_OK) st = update_pieces(c, s, chunk, tier);
    for (ps_list list = 0; list < held; list++)
        if (uses_list(c, s, chunk, list, &mode)) ps_client_let_go(c, list, chunk);
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

/* Where there is no room beside what the framework has, the other tier may have it. */
static ps_status update_chunk(ps_client *c, const step *s, int32_t chunk)
{
    const ps_tier tier = ps_client_update_tier(c, chunk), other = tier == PS_TIER_HOST ? PS_TIER_DEVICE : PS_TIER_HOST;
    PS_TRY(ps_client_begin_moment(c, PS_PHASE_UPDATE, "update", s->framework_bytes));
    const ps_status st = update_on(c, s, chunk, tier);
    if (st != PS_EBUDGET || c->settings.budgets.bytes[other] == 0 || is_held(c, chunk)) return tell_update_room(c, st);
    PS_TRY(ps_client_begin_moment(c, PS_PHASE_UPDATE, "update elsewhere", s->framework_bytes));
    return tell_update_room(c, update_on(c, s, chunk, other));
}

/* What has been issued in the wrong order. */
static ps_status expect_order(const ps_client *c)
{
    if (c->order == NULL || ps_order_get_stats(c->order).n_reports == 0) return PS_OK;
    return PS_FAIL(PS_EDEVICE, "check_order: %s", ps_order_text(c->order, 0));
}

/* ---- all ---- */

static ps_status update_apart(ps_client *c, const step *s, ps_client_tensor_state *t)
{
    if (s->skips) return PS_OK;
    float *value = ps_client_apart(t, PS_LIST_MASTER);
    ps_optimizer_piece p = {.param = value,
                            .grad = ps_client_apart(t, ps_lists_grad(&c->lists)),
                            .master = value,
                            .n = t->elements,
                            .param_dtype = PS_DTYPE_F32,
                            .grad_dtype = PS_DTYPE_F32};
    for (int32_t i = 0; i < c->settings.optimizer.n_states; i++) p.state[i] = ps_client_apart(t, PS_LIST_STATES + i);
    const ps_piece_update u = update_of(c, s, t);
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

static ps_status update_all(ps_client *c, const step *s)
{
    PS_TRY(settle_written(c));
    for (int32_t k = 0; k < c->layout->n_chunks; k++) {
        const bool is_beside = ps_client_chunk_has_gradient(c, k, PS_GRADIENT_BESIDE);
        if (!ps_client_owns(c, k) || (!is_beside && !ps_client_chunk_has_gradient(c, k, PS_GRADIENT_OVER))) continue;
        PS_TRY(update_chunk(c, s, k));
        if (is_beside) ps_store_discard(c->tiers.store, ps_store_chunk(c->layout, ps_lists_grad(&c->lists), k));
    }
    for (int32_t i = 0; i < c->n_tensors; i++) {
        ps_client_tensor_state *t = &c->tensors[i];
        t->is_given = false;
        if (!t->has_gradient) continue;
        if (t->is_apart) PS_TRY(update_apart(c, s, t));
        t->has_gradient = t->is_master_newer = t->is_gradient_changed = false;
        t->steps += !s->skips;
    }
    for (int32_t i = 0; i < c->pieces.n; i++) c->gradients[i].place = PS_GRADIENT_NONE;
    ps_client_forget_others(c);
    return PS_OK;
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
    PS_TRY(ps_client_tell_ranks(c, ps_client_check_update_room(c)));
    const double scale = (double)c->scaler.scale, grad_scale = scale * c->settings.ranks.n; /* sums, not means */
    PS_TRY(ps_client_break(c, ps_client_reduce_rest(c)));
    const bool is_update = has_gradients(c); /* else the rates and the loss scale stay too */
    PS_TRY(ps_client_break(c, ps_client_sum_gradients(c, &sums)));
    (void)seen_text(c, &sums, seen);
    PS_TRY(ps_client_break(c, ps_sums_of_ranks(c->comm, &sums, NULL, 0)));
    const ps_step_decision decided = ps_step_decide(&sums, c->settings.clip_norm, grad_scale);
    const step s = {.skips = is_update && ps_loss_scaler_update(&c->scaler, decided.overflow),
                    .grad_scale = decided.grad_scale,
                    .framework_bytes = c->steps.step_bytes};
    PS_TRY(ps_client_break(c, update_all(c, &s)));
    if (is_update && !s.skips) c->n_updates++;
    PS_TRY(ps_client_break(c, expect_order(c)));
    ps_client_end_step(c, &was_watched);
    c->n_steps++;
    c->n_watched_steps += was_watched;
    *info = (ps_client_step_info){.step = c->n_updates,
                                  .is_skipped = s.skips,
                                  .grad_norm = decided.overflow ? INFINITY : decided.norm,
                                  .loss_scale = scale,
                                  .is_watched = was_watched,
                                  .n_restored = c->n_restored,
                                  .n_beside = c->n_beside};
    c->n_restored = c->n_beside = 0;
    if (!is_update) return PS_OK;
    ps_nonfinite_count(&c->nonfinite, &c->scaler, s.skips, c->n_steps, seen);
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
