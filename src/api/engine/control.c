/* control.c - numbers that a program may set during training: learning rate and weight decay of parameter groups, the
 * loss scale. */
#include <math.h>

#include "api/engine/engine.h"
#include "base/sized.h"
#include "chunk/comm/agree.h"

int64_t ps_engine_get_group_count(const ps_engine *e)
{
    return e->groups.n;
}

static ps_status check_group(const ps_engine *e, const char *call, int64_t group)
{
    if (!e->settings.training) return PS_FAIL(PS_ESTATE, "%s: this engine is for inference", call);
    if (group >= 0 && group < e->groups.n) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s: group %lld of %d (optimizer.param_groups)", call, (long long)group, e->groups.n);
}

ps_status ps_engine_get_group_info(const ps_engine *e, int64_t group, ps_group_info *out)
{
    PS_TRY(PS_NEED("engine out", e, out));
    PS_TRY(check_group(e, "ps_engine_get_group_info", group));
    const int32_t g = (int32_t)group;
    ps_group_info info = {.params = e->settings.group_patterns + e->settings.groups[g].patterns,
                          .learning_rate = ps_param_groups_learning_rate(&e->groups, g, e->n_updates),
                          .weight_decay = e->groups.all[g].optimizer.weight_decay};
    for (int32_t t = 0; t < e->program->n_params; t++) {
        const ps_param *p = &e->program->params[t];
        if (p->group != g) continue;
        info.n_tensors++;
        if (!p->is_frozen) info.trained_parameters += p->elements;
    }
    return PS_SIZED_GIVE(ps_group_info, &info, out);
}

/* All ranks set the same, or none does. */
static ps_status agree(const ps_engine *e, const char *call, ps_status st, double group, double value)
{
    return ps_comm_agree_alike(e->settings.ranks.comm, st, call, (const double[]){group, value}, 2);
}

/* Updates may have begun to use it. */
static ps_status check_time(const ps_engine *e, const char *call)
{
    if (e->state == PS_ENGINE_FAILED) return ps_engine_expect(e, PS_ENGINE_READY, call);
    if (e->state != PS_ENGINE_BACKWARD || !ps_settings_updates_in_backward(&e->settings)) return PS_OK;
    return PS_FAIL(
        PS_ESTATE,
        "%s is not allowed between ps_backward and ps_step, as updates may run within the backward pass; call it "
        "before, or set memory.update_in_backward = never",
        call);
}

static ps_status check_value(const char *call, double value)
{
    if (isfinite((float)value)) return PS_OK; /* updates compute in float */
    return PS_FAIL(PS_EINVAL, "%s: %g is not a valid number; below 0 resets to the configuration", call, value);
}

/* Is the call permitted now? */
static ps_status check(const ps_engine *e, const char *call, int64_t group, double value)
{
    ps_status st = check_group(e, call, group);
    if (st == PS_OK) st = check_time(e, call);
    if (st == PS_OK) st = check_value(call, value);
    return agree(e, call, st, (double)group, value);
}

ps_status ps_engine_set_learning_rate(ps_engine *e, int64_t group, double rate)
{
    PS_TRY(PS_NEED("engine", e));
    PS_TRY(check(e, "ps_engine_set_learning_rate", group, rate));
    e->groups.all[group].lr = ps_param_group_number(rate, NAN);
    return PS_OK;
}

ps_status ps_engine_set_weight_decay(ps_engine *e, int64_t group, double decay)
{
    PS_TRY(PS_NEED("engine", e));
    PS_TRY(check(e, "ps_engine_set_weight_decay", group, decay));
    ps_param_group *g = &e->groups.all[group];
    g->optimizer.weight_decay = ps_param_group_number(decay, g->configured->optimizer.weight_decay);
    return PS_OK;
}

static ps_status check_scale(const ps_engine *e, double scale)
{
    static const char call[] = "ps_engine_set_loss_scale";
    if (!e->settings.training) return PS_FAIL(PS_ESTATE, "%s: this engine is for inference", call);
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, call));
    if (ps_runner_micro(e->runner) > 0)
        return PS_FAIL(PS_ESTATE, "%s: micro-batch %lld of %lld of a step is done; finish the step first", call,
                       (long long)ps_runner_micro(e->runner), (long long)e->settings.accumulation);
    if (isfinite(scale)) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s: %g is no loss scale", call, scale);
}

ps_status ps_engine_set_loss_scale(ps_engine *e, double scale)
{
    PS_TRY(PS_NEED("engine", e));
    ps_loss_scaler changed = e->scaler;
    ps_status st = check_scale(e, scale);
    if (st == PS_OK) st = ps_loss_scaler_set(&changed, (float)scale);
    PS_TRY(agree(e, "ps_engine_set_loss_scale", st, 0, scale));
    e->scaler = changed;
    return PS_OK;
}
