/* runner_create.c - the beginning of a run: parameters in their chunks, and the schedule; or another execution plan
 * over the same chunks. */
#include <string.h>
#include <xxhash.h>

#include "train/run/moment.h"
#include "train/run/window_collectives.h"

/* A function of seed, name and position alone. */
static ps_status draw(const ps_runner *r, ps_backend *backend, ps_queue *queue, int32_t tensor, int64_t first,
                      int64_t n, float *out)
{
    const ps_param *p = &r->plan->program->params[tensor];
    const ps_rng_key key = {.seed = r->plan->settings->seed,
                            .stream = PS_STREAMS_PARAMS + (XXH3_64bits(p->name, strlen(p->name)) >> 1)};
    return ps_run_fill(backend, queue,
                       &(ps_fill_args){.dst = out,
                                       .n = n,
                                       .first_index = first,
                                       .mean = (float)p->init_mean,
                                       .std = (float)p->init_std,
                                       .key = key,
                                       .is_uniform = p->init_is_uniform},
                       0);
}

ps_status ps_runner_draw(const ps_runner *r, int32_t tensor, int64_t first, int64_t n, float *out)
{
    return draw(r, ps_backend_host(r->plan->settings->backend), NULL, tensor, first, n, out);
}

/* Without a whole master, as in inference and for frozen parameters, a small buffer on the host is used instead, so that
 * both draw the same numbers. */
static ps_status create_without_master(ps_runner *r, int32_t chunk, const ps_piece *piece)
{
    enum { AT_ONCE = 16384 };
    _Alignas(64) float values[AT_ONCE];
    const ps_tier tier = r->plan->update_tier[chunk];
    const bool is_quantized = ps_state_quant(&r->state, piece->tensor) != PS_QUANT_NONE;
    for (int64_t done = 0; done < piece->n; done += AT_ONCE) {
        const int64_t n = ps_min_i64(AT_ONCE, piece->n - done);
        PS_TRY(ps_runner_draw(r, piece->tensor, piece->tensor_offset + done, n, values));
        PS_TRY(is_quantized ? ps_state_put_quantized(&r->state, tier, piece, done, values, n)
                            : ps_state_put_values(&r->state, tier, chunk, piece->chunk_offset + done, values, n));
    }
    return PS_OK;
}

static ps_status create_piece(ps_runner *r, int32_t chunk, const ps_piece *piece)
{
    if (!ps_exec_plan_has_chunk(r->plan, PS_LIST_MASTER, chunk) || ps_state_is_split(&r->state, PS_LIST_MASTER))
        return create_without_master(r, chunk, piece);
    float *master = ps_state_element(&r->state, PS_LIST_MASTER, chunk, piece->chunk_offset);
    const ps_tier tier = r->plan->update_tier[chunk];
    PS_TRY(draw(r, ps_state_backend(&r->state, tier), r->tiers->compute[tier], piece->tensor, piece->tensor_offset,
                piece->n, master));
    return ps_state_round_master(&r->state, tier, piece);
}

static ps_status create_chunk(ps_runner *r, int32_t c, bool draws)
{
    const ps_exec_plan *b = r->plan;
    ps_store *s = r->tiers->store;
    const ps_chunk_id param = ps_store_chunk(b->layout, PS_LIST_PARAM16, c);
    const ps_chunk_id master = ps_store_chunk(b->layout, PS_LIST_MASTER, c);
    const ps_tier tier = b->update_tier[c];
    ps_status st = PS_OK;
    const bool has_master = ps_exec_plan_has_chunk(b, PS_LIST_MASTER, c);
    if (has_master) PS_TRY(ps_store_pin(s, master, tier, PS_ACCESS_WRITE, NULL));
    st = ps_store_pin(s, param, tier, PS_ACCESS_WRITE, NULL);
    if (st == PS_OK) {
        for (int32_t i = b->pieces.first[c]; draws && i < b->pieces.first[c + 1] && st == PS_OK; i++)
            st = create_piece(r, c, &b->pieces.all[i]);
        ps_store_unpin(s, param);
    }
    if (has_master) ps_store_unpin(s, master);
    return st;
}

/* Device bytes for chunks while there is no schedule, and only the first n_lists are used. */
static int64_t unscheduled_limit(const ps_runner *r, ps_list n_lists)
{
    const ps_exec_plan *b = r->plan;
    return ps_unscheduled_bytes(b->settings, ps_device_get_stats(r->tiers->ram[PS_TIER_DEVICE]).budget_bytes,
                                ps_working_set_bytes(b->settings, b->layout, &b->lists, n_lists));
}

/* The largest chunk memory of one moment on the device. */
static int64_t largest_moment(const ps_runner *r)
{
    const ps_exec_plan *b = r->plan;
    int64_t most = 0;
    for (int32_t m = 0; m < b->trace->n_moments; m++)
        most = ps_max_i64(most, ps_exec_plan_wanted_bytes(b, m, PS_TIER_DEVICE));
    return most;
}

static void install_schedule(ps_runner *r)
{
    const ps_store_options options = ps_exec_plan_store_options(r->plan);
    int64_t limit = INT64_MAX;
    if (r->plan->settings->static_partition)
        limit = ps_max_i64(largest_moment(r), unscheduled_limit(r, r->plan->lists.n));
    ps_store_limit_chunks(r->tiers->store, PS_TIER_DEVICE, limit);
    ps_store_set_schedule(r->tiers->store, r->plan->schedule);
    ps_store_set_options(r->tiers->store, &options);
}

ps_status ps_runner_create_params(ps_runner *r, bool draws)
{
    ps_store *s = r->tiers->store;
    ps_store_limit_chunks(s, PS_TIER_DEVICE, unscheduled_limit(r, PS_LIST_MASTER + 1));
    for (int32_t c = 0; c < r->plan->layout->n_chunks; c++) {
        if (!ps_exec_plan_owns(r->plan, c)) continue;
        const ps_status st = create_chunk(r, c, draws);
        if (st != PS_OK) return ps_moment_dump(r, -1, st);
    }
    install_schedule(r);
    return PS_OK;
}

/* ---- another shape ---- */

bool ps_runner_can_execute(const ps_runner *r, const ps_exec_plan *plan)
{
    const size_t n = (size_t)plan->program->n_params;
    if (r->plan->usual != NULL) return false; /* early updates are pending, or speculation is paused */
    for (int32_t c = 0; c < plan->layout->n_chunks; c++)
        if (r->chunk_pending[c] && plan->is_early[c]) return false;
    return plan->candidate.update_time == PS_UPDATE_DEFERRED && r->plan->candidate.update_time == PS_UPDATE_DEFERRED &&
           memcmp(plan->code->grad_overwrites_param, r->plan->code->grad_overwrites_param, n * sizeof(bool)) == 0;
}

void ps_runner_set_plan(ps_runner *r, const ps_exec_plan *plan)
{
    r->plan = plan;
    r->state = ps_exec_plan_state(plan, r->tiers);
    install_schedule(r);
}

ps_status ps_runner_change(ps_runner *r, const ps_exec_plan *plan)
{
    PS_ASSERT(r->micro == 0 && plan->layout->n_chunks == r->plan->layout->n_chunks &&
              plan->lists.n_standalone == r->plan->lists.n_standalone);
    PS_ASSERT(!r->update_pending || ps_runner_can_execute(r, plan));
    void *non_model;
    PS_TRY(ps_window_collectives_fit(r, plan));
    PS_TRY(ps_store_reserve_non_model(r->tiers->store, plan->code->non_model_bytes, &non_model));
    ps_store_resize_standalone(r->tiers->store, plan->lists.standalone_bytes);
    r->non_model = non_model;
    ps_runner_set_plan(r, plan);
    return PS_OK;
}

ps_status ps_runner_simulate(ps_runner *r, const ps_runner *from)
{
    PS_ASSERT(ps_runner_exec_plan(r) == ps_runner_exec_plan(from) && from->micro == 0);
    PS_TRY(ps_store_copy_residency(r->tiers->store, from->tiers->store));
    memcpy(r->chunk_pending, from->chunk_pending, (size_t)r->plan->layout->n_chunks * sizeof *r->chunk_pending);
    memcpy(r->is_overwritten, from->is_overwritten, (size_t)r->plan->program->n_params * sizeof *r->is_overwritten);
    memcpy(r->is_grad_kept, from->is_grad_kept, (size_t)r->plan->layout->n_chunks * sizeof *r->is_grad_kept);
    r->update_pending = from->update_pending;
    r->is_paused = from->is_paused;
    ps_runner_set_plan(r, from->plan);
    return PS_OK;
}
