/* candidate_fixture.h - an engine that goes on with the execution plan of a candidate of the test's choice, instead of
 * the one that the search has found. */
#ifndef CANDIDATE_FIXTURE_H
#define CANDIDATE_FIXTURE_H

#include "api/engine/engine.h"
#include "train/plan/search.h"

/* Between steps. *former: the execution plan of before, to be destroyed after the engine. PS_EBUDGET when the candidate
 * does not fit; then nothing has changed, and *former is NULL. */
static inline ps_status use_candidate(ps_engine *e, ps_candidate v, ps_exec_plan **former)
{
    ps_shape *shape = (ps_shape *)(uintptr_t)e->shape;
    ps_exec_plan *plan;
    ps_forecast forecast;
    *former = NULL;
    PS_TRY(ps_search_try(&e->settings, shape->program, shape->code, &e->settings.budgets,
                         e->exec_plan->layout->chunk_elements, v, NULL, NULL, &plan, &forecast));
    ps_status st = ps_runner_can_execute(e->runner, plan) ? PS_OK : ps_runner_flush(e->runner);
    if (st == PS_OK) st = ps_runner_change(e->runner, plan);
    if (st != PS_OK) {
        ps_exec_plan_destroy(plan);
        return st;
    }
    *former = shape->exec_plan;
    shape->exec_plan = plan;
    shape->forecast = forecast;
    e->exec_plan = plan;
    return PS_OK;
}

/* The candidate in use, but with so many sixths of the chunks updated early, and the others at this time. */
static inline ps_candidate share_of(const ps_engine *e, int sixths, ps_update_time others)
{
    ps_candidate v = e->exec_plan->candidate;
    v.n_early = (int32_t)ps_ceil_div((int64_t)sixths * e->exec_plan->n_ordered, 6);
    v.update_time = others;
    v.update_lead_chunks = others == PS_UPDATE_DEFERRED ? sixths % 2 : 0;
    v.recomputes = e->settings.wrong_steps == PS_WRONG_STEPS_RECOMPUTE;
    return v;
}

#endif
