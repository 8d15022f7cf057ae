#include "checkpoint/checkpoint_match.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

typedef struct match {
    const ps_engine *engine;
    const ps_checkpoint_state *state;
    const char *folder;
} match;

static ps_status check_same(const char *folder, const char *what, int64_t saved, int64_t now)
{
    if (saved == now) return PS_OK;
    return PS_FAIL(
        PS_EINVAL,
        "%s: saved with %s = %lld, but it is %lld now, so training could not go on with the same bits; set it "
        "back, or begin a new run from the weights alone (train.init_from)",
        folder, what, (long long)saved, (long long)now);
}

/* As many micro-batches a step: other ranks take them in other turns. */
static ps_status check_accumulation(const match *m)
{
    const ps_settings *s = &m->engine->settings;
    if (m->state->n_ranks == s->ranks.n)
        return check_same(m->folder, "gradient_accumulation_steps", m->state->accumulation, s->accumulation);
    if (m->state->accumulation * m->state->n_ranks == s->accumulation * s->ranks.n) return PS_OK;
    return PS_FAIL(
        PS_EINVAL,
        "%s: saved by %d ranks with gradient_accumulation_steps = %lld, which is %lld micro-batches a step; now %d "
        "ranks with %lld have %lld. Set gradient_accumulation_steps so that they agree, or begin a new run from the "
        "weights alone (train.init_from)",
        m->folder, m->state->n_ranks, (long long)m->state->accumulation,
        (long long)(m->state->accumulation * m->state->n_ranks), s->ranks.n, (long long)s->accumulation,
        (long long)(s->accumulation * s->ranks.n));
}

/* What the shapes of tensors do not show: heads, activation, epsilon. Rates of dropout may change. */
static ps_status check_model_options(const match *m)
{
    static const char *const may_differ[] = {"preset", "embd_pdrop", "resid_pdrop", "attn_pdrop", "initializer_range"};
    if (m->state->config_json == NULL) return PS_OK;
    json_t *saved = json_loads(m->state->config_json, 0, NULL), *now = json_loads(m->engine->config_json, 0, NULL);
    const json_t *model = json_object_get(now, "model");
    const char *key;
    json_t *value;
    ps_status st = saved != NULL && now != NULL ? PS_OK : PS_FAIL(PS_ENOMEM_HOST, "no memory for a configuration");
    json_object_foreach(json_object_get(saved, "model"), key, value)
    {
        bool may = json_object_get(model, key) == NULL;
        for (size_t i = 0; i < PS_ARRAY_LEN(may_differ); i++) may |= strcmp(key, may_differ[i]) == 0;
        if (st != PS_OK || may || json_equal(value, json_object_get(model, key))) continue;
        char *a = json_dumps(value, JSON_ENCODE_ANY), *b = json_dumps(json_object_get(model, key), JSON_ENCODE_ANY);
        st = PS_FAIL(PS_EINVAL, "%s: saved with model.%s = %.64s, but it is %.64s now: another model", m->folder, key,
                     a != NULL ? a : "?", b != NULL ? b : "?");
        free(a);
        free(b);
    }
    json_decref(saved);
    json_decref(now);
    return st;
}

ps_status ps_checkpoint_match(const ps_engine *e, const ps_checkpoint_state *state, const char *folder)
{
    const match matching = {e, state, folder}, *const m = &matching;
    const ps_settings *s = &m->engine->settings;
    PS_TRY(check_model_options(m));
    if (!s->training) return PS_OK;
    PS_TRY(check_same(m->folder, "train.seed", m->state->seed, (int64_t)s->seed));
    PS_TRY(check_same(m->folder, "train_micro_batch_size_per_gpu", m->state->B, s->B));
    PS_TRY(check_accumulation(m));
    return check_same(m->folder, "data.sequence_length", m->state->T, s->T);
}

/* A static scale is the configuration's. A dynamic one goes on, within the bounds that are configured now. */
static void restore_scaler(ps_loss_scaler *scaler, const ps_checkpoint_state *state)
{
    const ps_loss_scaler_options *o = &scaler->options;
    scaler->n_skipped_steps = state->n_skipped_steps;
    if (o->loss_scale != 0 || !state->scale_is_dynamic) return;
    const double scale = state->scale < (double)o->min_loss_scale   ? (double)o->min_loss_scale
                         : state->scale > (double)o->max_loss_scale ? (double)o->max_loss_scale
                                                                    : state->scale;
    scaler->scale = (float)scale;
    scaler->n_clean_steps = ps_min_i64(state->n_clean_steps, o->loss_scale_window - 1);
    scaler->hysteresis_left = (int)ps_max_i64(1, ps_min_i64(state->hysteresis_left, o->hysteresis));
}

ps_status ps_checkpoint_restore(ps_engine *e, const ps_checkpoint_state *state)
{
    if (!e->settings.training) return PS_OK;
    restore_scaler(&e->scaler, state);
    e->adam_steps = state->optimizer_steps;
    e->runner.step = state->steps;
    e->last_step = (ps_step_info){
        .step = e->adam_steps, .learning_rate = state->learning_rate, .loss_scale = (double)e->scaler.scale};
    return ps_loss_scaler_check(&e->scaler);
}
