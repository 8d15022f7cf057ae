#include "api/engine/checkpoint_match.h"

#include <stdio.h>

#include "base/base.h"
#include "config/config.h"

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
        "%s: saved with %s = %lld, but it is %lld now, so training could not continue with the same bits; set it "
        "back, or begin a new run from the weights alone (train.init_from)",
        folder, what, (long long)saved, (long long)now);
}

/* The number of micro-batches of a step must be the same; their distribution over ranks may differ. */
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

ps_status ps_checkpoint_match(const ps_engine *e, const ps_checkpoint_state *state, const char *folder)
{
    const match matching = {e, state, folder}, *const m = &matching;
    const ps_settings *s = &m->engine->settings;
    /* differences that shapes of tensors do not show: heads, activation, epsilon */
    if (state->config_json != NULL) PS_TRY(ps_config_match_model(state->config_json, e->config_json, folder));
    if (!s->training) return PS_OK;
    PS_TRY(check_same(m->folder, "train.seed", m->state->seed, (int64_t)s->seed));
    PS_TRY(check_same(m->folder, "train_micro_batch_size_per_gpu", m->state->B, s->B));
    PS_TRY(check_accumulation(m));
    return check_same(m->folder, "data.sequence_length", m->state->T, s->T);
}

/* A run keeps one rule, so that its steps stay the same. */
static void restore_loss_average(ps_engine *e, const ps_checkpoint_state *state)
{
    const char *saved = ps_config_loss_average_names[state->loss_average];
    const char *configured = ps_config_loss_average_names[e->settings.loss_average];
    char text[320];
    if (!state->has_loss_average)
        snprintf(
            text, sizeof text,
            "the checkpoint is of a version before train.loss_average, so training continues with the rule of that "
            "time, train.loss_average = %s, by which each micro-batch counts equally, however many targets it "
            "has; train.init_from begins a new run from its weights by the rule that is configured",
            saved);
    else
        snprintf(text, sizeof text,
                 "training continues with the checkpoint's train.loss_average = %s, not the configured %s", saved,
                 configured);
    if (!state->has_loss_average || state->loss_average != e->settings.loss_average) ps_engine_report(e, text);
    e->loss_average = state->loss_average;
}

ps_status ps_checkpoint_restore(ps_engine *e, const ps_checkpoint_state *state)
{
    if (!e->settings.training) return PS_OK;
    PS_TRY(ps_checkpoint_state_restore_scaler(state, &e->scaler));
    restore_loss_average(e, state);
    e->n_updates = state->optimizer_steps;
    ps_runner_resume(e->runner, state->steps);
    e->last_step = (ps_step_info){
        .step = e->n_updates, .learning_rate = state->learning_rate, .loss_scale = (double)e->scaler.scale};
    return PS_OK;
}
