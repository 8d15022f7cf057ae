#include "train/plan/shape.h"

#include <string.h>

#include "base/mem.h"
#include "base/progress.h"
#include "chunk/comm/agree.h"
#include "train/plan/refusal.h"
#include "train/plan/search.h"
#include "train/plan/staging.h"
#include "train/settings/params.h"

static void destroy_shape(ps_shape *s)
{
    if (s == NULL) return;
    ps_exec_plan_destroy(s->exec_plan);
    ps_code_destroy(s->code);
    ps_program_destroy(s->program);
    ps_mem_free(s);
}

void ps_shapes_close(ps_shapes *s)
{
    for (size_t i = 0; i < s->n; i++) destroy_shape(s->all[i]);
    ps_mem_free(s->all);
    ps_variation_deinit(&s->configured);
    *s = (ps_shapes){0};
}

/* A shape with its program and code, without an execution plan yet. */
static ps_status describe(const ps_settings *settings, ps_model_func model, void *user, int64_t B, int64_t T,
                          ps_shape **out)
{
    *out = NULL;
    ps_status st = PS_OK;
    ps_shape *s = NULL;
    const ps_code_options o = ps_settings_code_options(settings);
    PS_TRY(ps_mem_alloc(1, sizeof *s, &s));
    s->model = model;
    s->user = user;
    PS_TRY_GOTO(ps_settings_build_program(settings, model, user, B, T, &s->program));
    if (settings->training && !s->program->has_loss) {
        st = PS_FAIL(PS_EINVAL, "the model ends with hidden states: without a loss it cannot be trained");
        goto out;
    }
    PS_TRY_GOTO(ps_code_create(s->program, &o, &s->code));
    *out = s;
    s = NULL;
out:
    destroy_shape(s);
    return st;
}

/* The model does not fit: the reason, and a configuration that fits. Of several ranks all report the first one on which
 * it does not fit. */
static ps_status refuse(const ps_settings *s, const ps_config *config, const ps_shape *shape)
{
    ps_comm *comm = s->ranks.comm;
    if (comm == NULL) return ps_refusal_explain(s, config, shape->model, shape->user, shape->program, shape->code);
    bool fits;
    ps_status st = ps_search_fits(s, shape->program, shape->code, &s->budgets, NULL, &fits, NULL);
    if (st == PS_OK && !fits)
        st = ps_refusal_explain(s, config, shape->model, shape->user, shape->program, shape->code);
    PS_TRY(ps_comm_agree(comm, st));
    return PS_FAIL(PS_EBUDGET, PS_REFUSAL_VERDICT
                   "the model fits on each rank, but not in chunks of one size on all: give the ranks equal budgets");
}

static ps_status plan_first(ps_settings *settings, const ps_config *config, ps_shape *first)
{
    const ps_status st =
        ps_staging_find_exec_plan(settings, first->program, first->code, NULL, &first->exec_plan, &first->forecast);
    return st == PS_EBUDGET ? refuse(settings, config, first) : st;
}

ps_status ps_shapes_open(ps_shapes *s, ps_settings *settings, const ps_config *config, ps_model_func model, void *user)
{
    ps_shape *first = NULL;
    ps_progress_begin_plan();
    ps_status st = ps_mem_reserve(&s->all, s->n + 1, sizeof *s->all);
    if (st == PS_OK) st = ps_variation_init(&s->configured, config, NULL);
    if (st == PS_OK) st = describe(settings, model, user, settings->B, settings->T, &first);
    st = ps_comm_agree(settings->ranks.comm, st);
    if (st == PS_OK) st = plan_first(settings, config, first);
    if (st != PS_OK) {
        destroy_shape(first);
        return st;
    }
    settings->chunk_elements = first->exec_plan->layout->chunk_elements;
    if (settings->wrong_steps == PS_WRONG_STEPS_AUTO)
        settings->wrong_steps =
            first->exec_plan->recompute != NULL ? PS_WRONG_STEPS_RECOMPUTE : PS_WRONG_STEPS_KEEP_GRADS;
    if (first->exec_plan->n_keeping == 0) settings->batch_copies_bytes = 0; /* the tiers have no block */
    s->all[s->n++] = first;
    return PS_OK;
}

static ps_status check_same_parameters(const ps_program *now, const ps_program *first)
{
    for (int32_t t = 0; t < now->n_params && t < first->n_params; t++) {
        const ps_param *a = &first->params[t], *b = &now->params[t];
        if (strcmp(a->name, b->name) != 0)
            return PS_FAIL(PS_EINVAL, "parameter %d of the model is %s, but %s in the shape that it began with", t,
                           b->name, a->name);
        if (a->n_dims != b->n_dims || memcmp(a->shape, b->shape, (size_t)a->n_dims * sizeof a->shape[0]) != 0)
            return PS_FAIL(PS_EINVAL, "%s has %lld elements, but %lld or other dimensions in the shape it began with",
                           b->name, (long long)b->elements, (long long)a->elements);
    }
    for (int32_t t = 0; t < now->n_params && t < first->n_params; t++)
        if (first->params[t].is_frozen != now->params[t].is_frozen)
            return PS_FAIL(PS_EINVAL, "%s is %s, but it was %s in the shape that it began with", now->params[t].name,
                           now->params[t].is_frozen ? "frozen" : "trained",
                           first->params[t].is_frozen ? "frozen" : "trained");
    if (now->n_params == first->n_params) return PS_OK;
    return PS_FAIL(PS_EINVAL, "the model has %d parameters, but %d in the shape that it began with", now->n_params,
                   first->n_params);
}

static ps_status check_same_segments(const ps_code *now, const ps_code *first)
{
    if (now->n_offloaded == first->n_offloaded) return PS_OK;
    return PS_FAIL(PS_EINVAL,
                   "%d values enter the model's checkpoint segments, but %d in the shape that it began with: with "
                   "client.opts.with_activation_offload they must be as many",
                   now->n_offloaded, first->n_offloaded);
}

static ps_status plan_shape(const ps_settings *settings, const ps_config *config, ps_shape *shape)
{
    const ps_status st = ps_search_exec_plan(settings, shape->program, shape->code, &settings->budgets, NULL,
                                             &shape->exec_plan, &shape->forecast);
    if (st != PS_EBUDGET) return st;
    ps_settings refused = *settings;
    refused.B = shape->program->B;
    refused.T = shape->program->T;
    return refuse(&refused, config, shape);
}

/* Drop the least recently used shape. */
static void forget_one(ps_shapes *s, const ps_shape *present)
{
    size_t oldest = 0;
    for (size_t i = 1; i < s->n; i++)
        if (s->all[i] != present && (oldest == 0 || s->all[i]->last_use < s->all[oldest]->last_use)) oldest = i;
    destroy_shape(s->all[oldest]);
    s->all[oldest] = s->all[--s->n];
}

ps_status ps_shapes_get(ps_shapes *s, const ps_settings *settings, ps_model_func model, void *user, int64_t B,
                        int64_t T, const ps_shape *present, bool keep_all, const ps_shape **out)
{
    *out = NULL;
    s->n_changes++;
    for (size_t i = 0; i < s->n; i++) {
        ps_shape *known = s->all[i];
        if (known->model != model || known->user != user || known->program->B != B || known->program->T != T) continue;
        known->last_use = s->n_changes;
        *out = known;
        return PS_OK;
    }
    ps_shape *shape = NULL;
    ps_progress_begin_plan();
    ps_status st = ps_mem_reserve(&s->all, s->n + 1, sizeof *s->all);
    if (st == PS_OK) st = describe(settings, model, user, B, T, &shape);
    if (st == PS_OK) st = check_same_parameters(shape->program, s->all[0]->program);
    if (st == PS_OK) st = check_same_segments(shape->code, s->all[0]->code);
    st = ps_comm_agree(settings->ranks.comm, st);
    if (st == PS_OK) st = plan_shape(settings, s->configured.config, shape);
    if (st != PS_OK) {
        destroy_shape(shape);
        return st;
    }
    shape->last_use = s->n_changes;
    if (s->n >= PS_SHAPES_MAX && !keep_all) forget_one(s, present);
    *out = s->all[s->n++] = shape;
    return PS_OK;
}
