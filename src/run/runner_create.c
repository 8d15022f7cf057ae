/* runner_create.c - where a run begins: parameters in their chunks, and the schedule; or another blueprint over the
 * same chunks. */
#include <string.h>
#include <xxhash.h>

#include "run/groups.h"
#include "run/moment.h"

/* A function of seed, name and position alone. */
static ps_status draw(const ps_runner *r, ps_backend *backend, ps_queue *queue, int32_t tensor, int64_t first,
                      int64_t n, float *out)
{
    const ps_param *p = &r->bp->program->params[tensor];
    const ps_rng_key key = {.seed = r->bp->settings->seed, .stream = XXH3_64bits(p->name, strlen(p->name)) >> 1};
    return ps_run_fill(backend, queue,
                       &(ps_fill_args){.dst = out,
                                       .n = n,
                                       .first_index = first,
                                       .mean = (float)p->init_mean,
                                       .std = (float)p->init_std,
                                       .key = key},
                       0);
}

ps_status ps_runner_draw(const ps_runner *r, int32_t tensor, int64_t first, int64_t n, float *out)
{
    return draw(r, ps_backend_host(r->bp->settings->backend), NULL, tensor, first, n, out);
}

/* Without a master, as of inference and of what is not trained: a small buffer of the host's stands in, so that both draw the same numbers. */
static ps_status create_without_master(ps_runner *r, int32_t chunk, const ps_piece *piece)
{
    enum { AT_ONCE = 16384 };
    _Alignas(64) float values[AT_ONCE];
    for (int64_t done = 0; done < piece->n; done += AT_ONCE) {
        const int64_t n = ps_min_i64(AT_ONCE, piece->n - done);
        void *param = ps_state_element(&r->state, PS_LIST_PARAM16, chunk, piece->chunk_offset + done);
        PS_TRY(ps_runner_draw(r, piece->tensor, piece->tensor_offset + done, n, values));
        PS_TRY(
            ps_state_put(&r->state, r->bp->update_tier[chunk], param, r->bp->settings->dtype, values, PS_DTYPE_F32, n));
    }
    return PS_OK;
}

static ps_status create_piece(ps_runner *r, int32_t chunk, const ps_piece *piece)
{
    if (!ps_blueprint_has_chunk(r->bp, PS_LIST_MASTER, chunk)) return create_without_master(r, chunk, piece);
    float *master = ps_state_element(&r->state, PS_LIST_MASTER, chunk, piece->chunk_offset);
    const ps_tier tier = r->bp->update_tier[chunk];
    PS_TRY(draw(r, ps_state_backend(&r->state, tier), r->tiers->compute[tier], piece->tensor, piece->tensor_offset,
                piece->n, master));
    return ps_state_round_master(&r->state, tier, piece);
}

static ps_status create_chunk(ps_runner *r, int32_t c, bool draws)
{
    const ps_blueprint *b = r->bp;
    ps_store *s = r->tiers->store;
    const ps_chunk_id param = ps_store_chunk(b->layout, PS_LIST_PARAM16, c);
    const ps_chunk_id master = ps_store_chunk(b->layout, PS_LIST_MASTER, c);
    const ps_tier tier = b->update_tier[c];
    ps_status st = PS_OK;
    const bool has_master = ps_blueprint_has_chunk(b, PS_LIST_MASTER, c);
    if (has_master) PS_TRY(ps_store_pin(s, master, tier, PS_ACCESS_WRITE, NULL));
    st = ps_store_pin(s, param, tier, PS_ACCESS_WRITE, NULL);
    if (st == PS_OK) {
        for (int32_t i = b->pieces.first[c]; i < b->pieces.first[c + 1] && st == PS_OK; i++) {
            const ps_piece *piece = &b->pieces.all[i];
            st = ps_store_tensor_begin(s, piece->tensor);
            if (st == PS_OK && draws) st = create_piece(r, c, piece);
            if (st == PS_OK) st = ps_store_tensor_end(s, piece->tensor, PS_STATE_HOLD);
        }
        ps_store_unpin(s, param);
    }
    if (has_master) ps_store_unpin(s, master);
    return st;
}

/* Device bytes that chunks may take while there is no schedule, and nobody works on more than the first n_lists. */
static int64_t unscheduled_limit(const ps_runner *r, ps_list n_lists)
{
    const ps_blueprint *b = r->bp;
    return ps_unscheduled_bytes(b->settings, ps_device_get_stats(r->tiers->ram[PS_TIER_DEVICE]).budget_bytes,
                                ps_working_set_bytes(b->settings, b->layout, &b->lists, n_lists));
}

/* The largest that one moment wants on the device at once, as chunks. */
static int64_t largest_moment(const ps_runner *r)
{
    const ps_blueprint *b = r->bp;
    int64_t most = 0;
    for (int32_t m = 0; m < b->trace->n_moments; m++)
        most = ps_max_i64(most, ps_blueprint_wanted_bytes(b, m, PS_TIER_DEVICE));
    return most;
}

static void install_schedule(ps_runner *r)
{
    int64_t limit = INT64_MAX;
    if (r->bp->settings->static_partition) limit = ps_max_i64(largest_moment(r), unscheduled_limit(r, r->bp->lists.n));
    ps_store_limit_chunks(r->tiers->store, PS_TIER_DEVICE, limit);
    ps_store_set_schedule(r->tiers->store, r->bp->schedule);
    ps_store_set_look_ahead(r->tiers->store, ps_blueprint_prefetch(r->bp), !r->bp->variant.hurries);
}

ps_status ps_runner_create_params(ps_runner *r, bool draws)
{
    ps_store *s = r->tiers->store;
    ps_store_limit_chunks(s, PS_TIER_DEVICE, unscheduled_limit(r, PS_LIST_MASTER + 1));
    for (int32_t c = 0; c < r->bp->layout->n_chunks; c++) {
        if (!ps_blueprint_owns(r->bp, c)) continue;
        const ps_status st = create_chunk(r, c, draws);
        if (st != PS_OK) return ps_moment_dump(r, -1, st);
    }
    install_schedule(r);
    return PS_OK;
}

/* ---- another shape ---- */

bool ps_runner_carries(const ps_runner *r, const ps_blueprint *bp)
{
    const size_t n = (size_t)bp->program->n_params;
    return bp->variant.update_time == PS_UPDATE_DEFERRED && r->bp->variant.update_time == PS_UPDATE_DEFERRED &&
           memcmp(bp->code->grad_overwrites_param, r->bp->code->grad_overwrites_param, n * sizeof(bool)) == 0;
}

ps_status ps_runner_change(ps_runner *r, const ps_blueprint *bp)
{
    PS_ASSERT(r->micro == 0 && bp->layout->n_chunks == r->bp->layout->n_chunks &&
              bp->lists.n_apart == r->bp->lists.n_apart);
    PS_ASSERT(!r->update_pending || ps_runner_carries(r, bp));
    void *non_model;
    PS_TRY(ps_groups_fit(r, bp));
    PS_TRY(ps_store_reserve_non_model(r->tiers->store, bp->code->non_model_bytes, &non_model));
    ps_store_resize_apart(r->tiers->store, bp->lists.apart_bytes);
    r->non_model = non_model;
    r->bp = bp;
    r->state = ps_blueprint_state(bp, r->tiers);
    install_schedule(r);
    return PS_OK;
}

ps_status ps_runner_imitate(ps_runner *r, const ps_runner *from)
{
    PS_ASSERT(r->bp == from->bp && from->micro == 0);
    PS_TRY(ps_store_take_residency(r->tiers->store, from->tiers->store));
    memcpy(r->chunk_pending, from->chunk_pending, (size_t)r->bp->layout->n_chunks * sizeof *r->chunk_pending);
    r->update_pending = from->update_pending;
    install_schedule(r);
    return PS_OK;
}
