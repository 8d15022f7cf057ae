#include "train/run/speculation.h"

#include <math.h>
#include <xxhash.h>

#include "train/run/moment.h"

ps_status ps_speculation_keep_states(ps_runner *r, int32_t chunk, bool *is_possible)
{
    const ps_exec_plan *b = r->plan;
    ps_store *s = r->tiers->store;
    const ps_list end = ps_lists_grad(&b->lists);
    *is_possible = true;
    for (ps_list l = ps_lists_first_kept(b->settings); l < end; l++)
        if (ps_exec_plan_has_chunk(b, l, chunk))
            *is_possible = *is_possible && ps_store_can_keep(s, ps_store_chunk(b->layout, l, chunk));
    for (ps_list l = ps_lists_first_kept(b->settings); l < end && *is_possible; l++)
        if (ps_exec_plan_has_chunk(b, l, chunk)) PS_TRY(ps_store_keep(s, ps_store_chunk(b->layout, l, chunk)));
    r->is_unvalidated[chunk] = *is_possible;
    return PS_OK;
}

ps_status ps_speculation_keep_grad(ps_runner *r, int32_t chunk)
{
    const ps_exec_plan *b = r->plan;
    const ps_list kept = ps_lists_kept_grad(&b->lists);
    if (!r->o.compute || !ps_exec_plan_keeps_grad(b, chunk)) return PS_OK;
    return ps_queue_copy(r->tiers->compute[b->update_tier[chunk]], ps_state_element(&r->state, kept, chunk, 0),
                         ps_state_element(&r->state, PS_LIST_PARAM16, chunk, 0),
                         ps_item_bytes(b->lists.list[kept].item, b->layout->used_elements[chunk]));
}

ps_status ps_speculation_write_states(ps_runner *r, int32_t chunk)
{
    const ps_exec_plan *b = r->plan;
    for (ps_list l = ps_lists_first_kept(b->settings);
         l < ps_lists_grad(&b->lists) && b->speculates && b->is_early[chunk]; l++)
        if (ps_exec_plan_has_chunk(b, l, chunk))
            PS_TRY(ps_store_write_ahead(r->tiers->store, ps_store_chunk(b->layout, l, chunk)));
    return PS_OK;
}

static ps_status accept(ps_runner *r, int32_t chunk)
{
    const ps_exec_plan *b = r->plan;
    for (ps_list l = ps_lists_first_kept(b->settings); l < ps_lists_grad(&b->lists); l++)
        if (ps_exec_plan_has_chunk(b, l, chunk))
            ps_store_forget_kept(r->tiers->store, ps_store_chunk(b->layout, l, chunk));
    ps_runner_discard_grad(r, chunk);
    return ps_speculation_write_states(r, chunk);
}

/* Until its next update no operator may read the parameters of the chunk. */
static void discard_params(ps_runner *r, int32_t chunk)
{
    const ps_exec_plan *b = r->plan;
    ps_store_discard(r->tiers->store, ps_store_chunk(b->layout, PS_LIST_PARAM16, chunk));
    for (int32_t i = b->pieces.first[chunk]; i < b->pieces.first[chunk + 1]; i++)
        r->is_overwritten[b->pieces.all[i].tensor] = true;
}

/* The parameters are of the wrong update: discarded, or of before again. */
static ps_status take_back(ps_runner *r, int32_t chunk)
{
    const ps_exec_plan *b = r->plan;
    ps_store *s = r->tiers->store;
    for (ps_list l = ps_lists_first_kept(b->settings); l < ps_lists_grad(&b->lists); l++)
        if (ps_exec_plan_has_chunk(b, l, chunk)) ps_store_restore_kept(s, ps_store_chunk(b->layout, l, chunk));
    if (ps_lists_first_kept(b->settings) != PS_LIST_PARAM16) discard_params(r, chunk);
    r->chunk_pending[chunk] = true;
    r->is_grad_kept[chunk] = ps_exec_plan_keeps_grad(b, chunk);
    return PS_OK;
}

static void weigh_step(ps_runner *r, bool is_right)
{
    r->wrong_steps = r->wrong_steps << 1 | !is_right;
    r->n_weighed_steps = (int32_t)ps_min_i64(r->n_weighed_steps + 1, PS_WRONG_STEPS);
    const double limit = r->max_wrong_share * (double)ps_max_i64(r->n_weighed_steps, PS_WRONG_STEPS_LEAST);
    const double n_wrong = __builtin_popcount(r->wrong_steps);
    r->is_paused = limit < 0 || n_wrong > (r->is_paused ? fmax(0, limit - PS_WRONG_STEPS_SPAN) : limit);
}

ps_status ps_runner_validate(ps_runner *r, bool are_right, int32_t *n)
{
    *n = 0;
    weigh_step(r, are_right);
    for (int32_t c = 0; c < r->plan->layout->n_mirrored; c++) {
        if (!r->is_unvalidated[c]) continue;
        PS_TRY((are_right ? accept : take_back)(r, c));
        r->is_unvalidated[c] = false;
        ++*n;
    }
    return PS_OK;
}

int32_t ps_runner_count_unvalidated(const ps_runner *r)
{
    int32_t n = 0;
    for (int32_t c = 0; c < r->plan->layout->n_mirrored; c++) n += r->is_unvalidated[c];
    return n;
}

/* Gradients of the first passes are discarded, also where they overwrite parameters. The masters are of before, and so
 * are parameters that have not been overwritten. */
void ps_runner_begin_recompute(ps_runner *r, const ps_param_groups *g)
{
    const ps_exec_plan *b = r->plan;
    const bool rounds = !ps_settings_separates_gradients(b->settings);
    PS_ASSERT(r->micro == 0 && ps_runner_exec_plan(r)->recompute != NULL);
    for (int32_t c = 0; c < b->layout->n_mirrored; c++) {
        if (!ps_exec_plan_owns(b, c)) continue;
        ps_runner_discard_grad(r, c);
        if (rounds) discard_params(r, c);
    }
    for (int32_t t = 0; t < b->program->n_params && !rounds; t++) r->is_overwritten[t] = false;
    ps_runner_decide(r, g);
    r->update_pending = rounds;
    ps_runner_set_plan(r, ps_runner_exec_plan(r)->recompute);
}

int32_t ps_runner_count_early_pending(const ps_runner *r)
{
    const ps_exec_plan *b = ps_runner_exec_plan(r);
    int32_t n = 0;
    for (int32_t c = 0; c < b->layout->n_mirrored; c++)
        n += r->update_pending && r->chunk_pending[c] && b->is_early[c] && ps_exec_plan_owns(b, c);
    return n;
}

void ps_runner_set_max_wrong_share(ps_runner *r, double share)
{
    r->max_wrong_share = share;
}

uint64_t ps_runner_pending_hash(const ps_runner *r)
{
    const size_t n = (size_t)r->plan->layout->n_chunks;
    return r->update_pending ? XXH3_64bits(r->chunk_pending, n) ^ XXH3_64bits_withSeed(r->is_grad_kept, n, 1) : 0;
}

/* Pending updates whose gradients the execution plan `paused` would not find. */
static bool has_kept_grad_pending(const ps_runner *r)
{
    bool has = false;
    for (int32_t c = 0; c < r->plan->layout->n_mirrored; c++) has = has || (r->chunk_pending[c] && r->is_grad_kept[c]);
    return r->update_pending && has;
}

bool ps_runner_pauses_speculation(const ps_runner *r)
{
    return r->is_paused && ps_runner_exec_plan(r)->paused != NULL;
}

void ps_speculation_choose_plan(ps_runner *r)
{
    const ps_exec_plan *usual = ps_runner_exec_plan(r), *b = usual;
    if (!usual->speculates) return;
    if (ps_runner_pauses_speculation(r) && !has_kept_grad_pending(r))
        b = usual->paused;
    else if (ps_runner_count_early_pending(r) > 0)
        b = usual->taking_back;
    if (b != r->plan) ps_runner_set_plan(r, b);
}
