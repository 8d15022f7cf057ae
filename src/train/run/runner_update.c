/* runner_update.c - the optimizer, chunk by chunk: early, within the backward pass; right after it; or deferred into
 * the next forward pass. speculation.c decides what becomes of early updates that may be wrong. */
#include "device/stall.h"
#include "train/run/moment.h"
#include "train/run/speculation.h"

static ps_status update_piece(ps_runner *r, const ps_piece *p)
{
    const ps_exec_plan *b = r->plan;
    ps_piece_update u = ps_param_groups_update(r->groups, b->program->params[p->tensor].group, b->decays[p->tensor]);
    u.gradients = ps_exec_plan_sum_list(b, p->tensor);
    const ps_param *param = &b->program->params[p->tensor];
    ps_piece whole = *p;
    if (b->settings->optimizer.is_stochastic) u.rounding = ps_state_rounding_key(b->settings, u.step.t, param->name);
    if (param->is_whole && !u.skips) {
        if (p->tensor_offset > 0) return PS_OK; /* updated with its first piece; its run is adjacent */
        whole.n = param->elements;
        u.rows = param->shape[0];
        u.cols = param->shape[1];
    }
    if (u.gradients == PS_LIST_PARAM16 && r->is_grad_kept[p->chunk]) u.gradients = ps_lists_kept_grad(&b->lists);
    return ps_state_update_piece(&r->state, b->update_tier[p->chunk], &whole, &u);
}

/* Does another of this rank's chunks, with elements of the same tensor, wait for its update? */
static bool has_others_pending(const ps_runner *r, int32_t tensor, int32_t chunk)
{
    const ps_place *p = &r->plan->layout->places[tensor];
    for (int32_t c = p->chunk; c < p->chunk + p->n_chunks; c++)
        if (c != chunk && r->chunk_pending[c] && ps_exec_plan_owns(r->plan, c)) return true;
    return false;
}

void ps_runner_discard_grad(ps_runner *r, int32_t chunk)
{
    const ps_exec_plan *b = r->plan;
    ps_store *s = r->tiers->store;
    if (b->uses_grad_list[chunk]) ps_store_discard(s, ps_store_chunk(b->layout, ps_exec_plan_sums(b), chunk));
    if (ps_exec_plan_keeps_grad(b, chunk) || ps_exec_plan_has_grad16(b, chunk))
        ps_store_discard(s, ps_store_chunk(b->layout, ps_lists_kept_grad(&b->lists), chunk));
    r->is_grad_kept[chunk] = false;
}

static ps_status update_pieces(ps_runner *r, int32_t chunk)
{
    const ps_exec_plan *b = r->plan;
    for (int32_t i = b->pieces.first[chunk]; i < b->pieces.first[chunk + 1]; i++) {
        const ps_piece *piece = &b->pieces.all[i];
        if (r->o.compute) PS_TRY(update_piece(r, piece));
        r->is_overwritten[piece->tensor] = has_others_pending(r, piece->tensor, chunk);
    }
    return PS_OK;
}

/* Updates between a step's passes and its second ones only round parameters: a snapshot takes what is before the right
 * update. */
static ps_status visit(ps_runner *r, ps_run chunks, ps_snapshot_when when)
{
    if (r->plan->is_recompute) return PS_OK;
    for (int32_t c = chunks.first; c < chunks.first + chunks.n_chunks; c++)
        PS_TRY(ps_snapshot_visit(&r->snapshot, &r->state, c, r->plan->update_tier[c], when));
    return PS_OK;
}

/* Of a chunk, with all that are updated with it, in one moment. */
static ps_status update_one(ps_runner *r, int32_t chunk, bool is_early)
{
    const ps_exec_plan *b = r->plan;
    const int32_t moment = is_early ? b->early_moment[chunk] : b->update_moment[chunk];
    const bool may_be_wrong = is_early && b->speculates;
    const ps_run all = b->updated_with[chunk];
    ps_status st = PS_OK;
    PS_TRY(ps_moment_begin(r, moment));
    const ps_work_time begin = ps_work_now(r->tiers, b->update_tier[chunk]);
    st = visit(r, all, PS_SNAPSHOT_BEFORE);
    if (st == PS_OK && may_be_wrong) st = ps_speculation_keep_grad(r, chunk);
    for (int32_t c = all.first; c < all.first + all.n_chunks && st == PS_OK; c++) {
        st = update_pieces(r, c);
        if (st == PS_OK) r->chunk_pending[c] = false;
    }
    if (st == PS_OK) st = visit(r, all, PS_SNAPSHOT_AFTER);
    ps_moment_record(r, moment, b->update_tier[chunk], ps_store_chunk(b->layout, PS_LIST_PARAM16, chunk), &begin);
    ps_moment_end(r, moment);
    for (int32_t c = all.first; c < all.first + all.n_chunks; c++) {
        if (!may_be_wrong || b->candidate.recomputes) ps_runner_discard_grad(r, c);
        if (!may_be_wrong && st == PS_OK) st = ps_speculation_write_states(r, c);
    }
    return st;
}

static ps_status update_chunk(ps_runner *r, int32_t chunk, bool is_early)
{
    ps_stall_entry s;
    if (r->o.compute) ps_stall_begin(&s, "updates", "chunk", chunk);
    const ps_status st = update_one(r, chunk, is_early);
    if (r->o.compute) ps_stall_end(&s);
    return st;
}

ps_status ps_runner_update_pending(ps_runner *r)
{
    if (!r->update_pending) return PS_OK;
    for (int32_t i = 0; i < r->plan->n_ordered; i++)
        if (r->chunk_pending[r->plan->update_order[i]]) PS_TRY(update_chunk(r, r->plan->update_order[i], false));
    r->update_pending = false;
    return PS_OK;
}

ps_status ps_runner_flush(ps_runner *r)
{
    PS_TRY(ps_runner_update_pending(r));
    if (r->micro == 0) ps_speculation_choose_plan(r);
    return PS_OK;
}

void ps_runner_decide(ps_runner *r, const ps_param_groups *g)
{
    r->groups = g;
    for (int32_t c = 0; c < r->plan->layout->n_mirrored; c++) r->chunk_pending[c] = true;
}

ps_status ps_runner_update(ps_runner *r, const ps_param_groups *g)
{
    if (r->plan->candidate.n_early == 0) ps_runner_decide(r, g);
    r->update_pending = true;
    if (r->plan->candidate.update_time != PS_UPDATE_DEFERRED) PS_TRY(ps_runner_flush(r));
    ps_speculation_choose_plan(r);
    r->step++;
    return PS_OK;
}

void ps_runner_begin_early(ps_runner *r, const ps_param_groups *g)
{
    PS_ASSERT(!r->update_pending && (g == NULL || !g->skips));
    ps_runner_decide(r, g);
}

ps_status ps_runner_update_after(ps_runner *r, int32_t index, int32_t *next)
{
    const ps_exec_plan *b = r->plan;
    if (ps_runner_pauses_speculation(r)) return PS_OK;
    for (; *next < b->n_deferred + b->candidate.n_early; (*next)++) {
        const int32_t c = b->update_order[*next];
        bool is_possible = true;
        if (b->ready_after[c] != index) return PS_OK;
        if (b->speculates) PS_TRY(ps_speculation_keep_states(r, c, &is_possible));
        if (is_possible) PS_TRY(update_chunk(r, c, true));
    }
    return PS_OK;
}

ps_status ps_runner_update_before(ps_runner *r, int32_t index, int32_t *next)
{
    const ps_exec_plan *b = r->plan;
    for (; *next < b->n_deferred && b->update_moment[b->update_order[*next]] < b->instr_moment[index]; (*next)++) {
        const int32_t c = b->update_order[*next];
        if (r->chunk_pending[c]) PS_TRY(update_chunk(r, c, false));
    }
    return PS_OK;
}

/* ---- a snapshot ---- */

ps_snapshot *ps_runner_snapshot(ps_runner *r)
{
    return &r->snapshot;
}

const bool *ps_runner_pending(const ps_runner *r)
{
    PS_ASSERT(r->micro == 0);
    return r->update_pending ? r->chunk_pending : NULL;
}

ps_status ps_runner_finish_snapshot(ps_runner *r)
{
    if (!ps_snapshot_is_under_way(&r->snapshot)) return PS_OK;
    PS_TRY(ps_runner_flush(r));
    return ps_snapshot_finish(&r->snapshot, &r->state, r->plan->update_order, r->plan->n_ordered);
}
