/* engine_shape.c - changes the size of micro-batches, between steps. */
#include "api/engine/engine.h"
#include "chunk/comm/agree.h"

static ps_status expect_changeable(const ps_engine *e, ps_model_func model)
{
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, "ps_engine_set_shape"));
    const int64_t micro = ps_runner_micro(e->runner);
    if (micro > 0)
        return PS_FAIL(PS_ESTATE,
                       "ps_engine_set_shape: micro-batch %lld of %lld of a step is done; finish the step first",
                       (long long)micro, (long long)e->settings.accumulation);
    if (e->settings.cache_positions > 0)
        return PS_FAIL(PS_ESTATE, "ps_engine_set_shape: this engine is for ps_decode, which needs no shape");
    return model != NULL ? PS_OK : PS_FAIL(PS_EINVAL, "ps_engine_set_shape: a model function is needed");
}

/* The tiers have the scratch of the first shape's execution plan. */
static bool has_update_scratch(const ps_engine *e, const ps_exec_plan *plan)
{
    if (e->tiers.update_scratch_bytes[PS_TIER_HOST] >= plan->update_scratch.bytes) return true;
    for (int32_t c = 0; c < plan->layout->n_chunks; c++)
        if (plan->update_tier[c] == PS_TIER_HOST) return false;
    return true;
}

/* Does the change fit from the present residency of chunks? All ranks get the same answer. */
static ps_status try_change(ps_engine *e, const ps_shape *shape)
{
    ps_status st = PS_OK;
    /* slots allocated by a larger shape without homes (slot.c) may be larger than their chunk, so the disk may hold
     * fewer */
    const bool has_uneven_slots = e->settings.offloads_inputs && e->tiers.disk != NULL;
    if (!has_update_scratch(e, shape->exec_plan))
        st =
            PS_FAIL(PS_EBUDGET,
                    "ps_engine_set_shape: in this shape optimizer.type = %s updates matrices on the host, where the "
                    "shape that the engine began with had no room for its scratch: initialize the engine with this one",
                    e->settings.optimizer.optimizer->name);
    else if (has_uneven_slots || !ps_exec_plan_fits_from_anywhere(shape->exec_plan, &e->settings.budgets)) {
        PS_TRY(ps_engine_check(e, ps_store_synchronize(e->tiers.store)));
        st = ps_trial_change(e->runner, shape->exec_plan);
    }
    return ps_comm_agree(e->settings.ranks.comm, st);
}

static ps_status use_shape(ps_engine *e, const ps_shape *shape)
{
    ps_runner *r = e->runner;
    PS_TRY(try_change(e, shape));
    if (!ps_runner_can_execute(r, shape->exec_plan)) PS_TRY(ps_engine_check(e, ps_runner_flush(r)));
    const ps_status st = ps_runner_change(r, shape->exec_plan);
    if (e->settings.ranks.comm != NULL) (void)ps_engine_check(e, st); /* the others have changed */
    PS_TRY(st);
    e->shape = shape;
    e->exec_plan = shape->exec_plan;
    ps_runner_set_max_wrong_share(r, shape->forecast.max_wrong_share);
    return PS_OK;
}

ps_status ps_engine_set_shape(ps_engine *e, ps_model_func model, void *user, int64_t batch, int64_t sequence)
{
    PS_TRY(PS_NEED("engine", e));
    const ps_shape *shape;
    PS_TRY(ps_comm_agree_alike(e->settings.ranks.comm, expect_changeable(e, model), "ps_engine_set_shape",
                               (const double[]){(double)batch, (double)sequence}, 2));
    PS_TRY(ps_shapes_get(&e->shapes, &e->settings, model, user, batch, sequence, e->shape, ps_profiling_holds_text(e),
                         &shape));
    return shape == e->shape ? PS_OK : use_shape(e, shape);
}
