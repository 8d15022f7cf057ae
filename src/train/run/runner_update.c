/* runner_update.c - the optimizer, chunk by chunk: early, within the backward pass; right after it; or deferred into
 * the next forward pass. */
#include "train/run/moment.h"

static ps_status update_piece(ps_runner *r, const ps_piece *p)
{
    const ps_exec_plan *b = r->plan;
    ps_piece_update u = ps_param_groups_update(r->groups, b->program->params[p->tensor].group, b->decays[p->tensor]);
    u.gradients = ps_exec_plan_sum_list(b, p->tensor);
    return ps_state_update_piece(&r->state, b->update_tier[p->chunk], p, &u);
}

static ps_status update_chunk(ps_runner *r, int32_t chunk)
{
    const ps_exec_plan *b = r->plan;
    const int32_t moment = b->update_moment[chunk];
    ps_status st = PS_OK;
    PS_TRY(ps_moment_begin(r, moment));
    const ps_work_time begin = ps_work_now(r->tiers, b->update_tier[chunk]);
    st = ps_snapshot_visit(&r->snapshot, &r->state, chunk, b->update_tier[chunk], PS_SNAPSHOT_BEFORE);
    for (int32_t i = b->pieces.first[chunk]; i < b->pieces.first[chunk + 1] && st == PS_OK; i++) {
        const ps_piece *piece = &b->pieces.all[i];
        if (r->o.compute) st = update_piece(r, piece);
        if (st == PS_OK)
            r->is_overwritten[piece->tensor] =
                piece->tensor_offset + piece->n < b->layout->places[piece->tensor].elements;
    }
    if (st == PS_OK) st = ps_snapshot_visit(&r->snapshot, &r->state, chunk, b->update_tier[chunk], PS_SNAPSHOT_AFTER);
    ps_moment_record(r, moment, b->update_tier[chunk], ps_store_chunk(b->layout, PS_LIST_PARAM16, chunk), &begin);
    ps_moment_end(r, moment);
    if (b->uses_grad_list[chunk])
        ps_store_discard(r->tiers->store, ps_store_chunk(b->layout, ps_exec_plan_sums(b), chunk));
    return st;
}

ps_status ps_runner_flush(ps_runner *r)
{
    if (!r->update_pending) return PS_OK;
    for (int32_t i = 0; i < r->plan->n_ordered; i++) {
        const int32_t c = r->plan->update_order[i];
        if (!r->chunk_pending[c]) continue;
        PS_TRY(update_chunk(r, c));
        r->chunk_pending[c] = false;
    }
    r->update_pending = false;
    return PS_OK;
}

static void decide(ps_runner *r, const ps_param_groups *g)
{
    r->groups = g;
    for (int32_t c = 0; c < r->plan->layout->n_mirrored; c++) r->chunk_pending[c] = true;
}

ps_status ps_runner_update(ps_runner *r, const ps_param_groups *g)
{
    if (r->plan->candidate.update_time != PS_UPDATE_EARLY) decide(r, g);
    r->update_pending = true;
    if (r->plan->candidate.update_time != PS_UPDATE_DEFERRED) PS_TRY(ps_runner_flush(r));
    r->step++;
    return PS_OK;
}

void ps_runner_begin_early(ps_runner *r, const ps_param_groups *g)
{
    PS_ASSERT(!r->update_pending && (g == NULL || !g->skips));
    decide(r, g);
}

ps_status ps_runner_update_after(ps_runner *r, int32_t index, int32_t *next)
{
    const ps_exec_plan *b = r->plan;
    for (; *next < b->n_ordered && b->ready_after[b->update_order[*next]] == index; (*next)++) {
        const int32_t c = b->update_order[*next];
        PS_TRY(update_chunk(r, c));
        r->chunk_pending[c] = false;
    }
    return PS_OK;
}

ps_status ps_runner_update_before(ps_runner *r, int32_t index, int32_t *next)
{
    const ps_exec_plan *b = r->plan;
    for (; *next < b->n_ordered && b->update_moment[b->update_order[*next]] < b->instr_moment[index]; (*next)++) {
        const int32_t c = b->update_order[*next];
        if (!r->chunk_pending[c]) continue;
        PS_TRY(update_chunk(r, c));
        r->chunk_pending[c] = false;
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
