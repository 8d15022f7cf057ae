/* step.c - one training step: forward, backward, update; evaluation and logits beside it. */
#include <math.h>

#include "engine/engine.h"
#include "optim/grad_clip.h"

static ps_status check_batch(const ps_engine *e, const int32_t *tokens, const int32_t *targets)
{
    const int64_t n = e->settings.B * e->settings.T, V = e->program->n_tokens;
    const int64_t V_in = e->program->n_input_tokens;
    if (tokens == NULL) return PS_FAIL(PS_EINVAL, "the batch has no tokens");
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= V_in)
            return PS_FAIL(PS_EINVAL, "token %lld of the batch is %d, the vocabulary has %lld", (long long)i, tokens[i],
                           (long long)V_in);
        if (targets != NULL && targets[i] != PS_IGNORE_INDEX && (targets[i] < 0 || targets[i] >= V))
            return PS_FAIL(PS_EINVAL, "target %lld of the batch is %d, the vocabulary has %lld", (long long)i,
                           targets[i], (long long)V);
    }
    return PS_OK;
}

ps_status ps_forward(ps_engine *e, const ps_batch *batch, float *loss)
{
    if (loss != NULL) *loss = 0;
    if (!e->settings.training) return PS_FAIL(PS_ESTATE, "ps_forward: this engine is for inference");
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, "ps_forward"));
    if (batch->targets == NULL) return PS_FAIL(PS_EINVAL, "the batch has no targets");
    PS_TRY(check_batch(e, batch->tokens, batch->targets));
    ps_engine_enter(e);
    ps_runner *r = &e->runner;
    r->pass = PS_PASS_TRAIN;
    r->loss_scale = (double)e->scaler.scale;
    if (r->micro == 0) r->n_nonfinite = 0;
    PS_TRY(ps_engine_check(e, ps_runner_forward(r, batch->tokens, batch->targets)));
    e->state = PS_ENGINE_FORWARD;
    if (loss != NULL) *loss = (float)r->loss;
    return PS_OK;
}

ps_status ps_backward(ps_engine *e)
{
    PS_TRY(ps_engine_expect(e, PS_ENGINE_FORWARD, "ps_backward"));
    ps_engine_enter(e);
    PS_TRY(ps_engine_check(e, ps_runner_backward(&e->runner)));
    e->state = PS_ENGINE_BACKWARD;
    return PS_OK;
}

ps_status ps_step(ps_engine *e)
{
    PS_TRY(ps_engine_expect(e, PS_ENGINE_BACKWARD, "ps_step"));
    ps_engine_enter(e);
    ps_runner *r = &e->runner;
    e->state = PS_ENGINE_READY;
    if (++r->micro < e->settings.accumulation) return PS_OK;
    r->micro = 0;

    const ps_settings *s = &e->settings;
    const double scale = r->loss_scale;
    const double norm = ps_grad_norm(r->sum_squares, e->program->n_params, scale);
    const bool overflow = r->n_nonfinite > 0 || !isfinite(norm);
    const bool skip = ps_loss_scaler_update(&e->scaler, overflow);
    const double t = (double)(e->adam_steps + 1);
    const double lr = ps_lr_schedule_get(&s->lr, e->adam_steps);
    const ps_update u = {.skip = skip,
                         .lr = (float)lr,
                         .grad_scale = (float)(ps_grad_clip_factor(norm, s->clip_norm) / scale),
                         .bias1 = (float)(1 - pow(s->beta1, t)),
                         .bias2 = (float)(1 - pow(s->beta2, t))};
    PS_TRY(ps_engine_check(e, ps_runner_update(r, &u)));
    r->step++;
    if (!skip) e->adam_steps++;
    e->last_step = (ps_step_info){.step = e->adam_steps,
                                  .skipped = skip,
                                  .learning_rate = lr,
                                  .grad_norm = overflow ? INFINITY : norm,
                                  .loss_scale = scale};
    return PS_OK;
}

/* A forward pass outside training. Each moment names its place in the schedule, so the next step finds its own. */
static ps_status run_aside(ps_engine *e, ps_pass pass, const int32_t *tokens, const int32_t *targets)
{
    ps_engine_enter(e);
    ps_runner *r = &e->runner;
    PS_TRY(ps_engine_check(e, ps_runner_flush(r)));
    r->pass = pass;
    return ps_engine_check(e, ps_runner_forward(r, tokens, targets));
}

ps_status ps_evaluate(ps_engine *e, const ps_batch *batch, float *loss)
{
    *loss = 0;
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, "ps_evaluate"));
    if (batch->targets == NULL) return PS_FAIL(PS_EINVAL, "the batch has no targets");
    PS_TRY(check_batch(e, batch->tokens, batch->targets));
    PS_TRY(run_aside(e, PS_PASS_EVALUATE, batch->tokens, batch->targets));
    *loss = (float)e->runner.loss;
    return PS_OK;
}

ps_status ps_logits(ps_engine *e, const int32_t *tokens, int64_t row, float *logits)
{
    if (e->settings.training) return PS_FAIL(PS_ESTATE, "ps_logits: this engine is for training");
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, "ps_logits"));
    if (row < 0 || row >= e->settings.B * e->settings.T)
        return PS_FAIL(PS_EINVAL, "ps_logits: row %lld of %lld", (long long)row,
                       (long long)(e->settings.B * e->settings.T));
    PS_TRY(check_batch(e, tokens, NULL));
    e->runner.logits = logits;
    e->runner.logits_row = row;
    return run_aside(e, PS_PASS_LOGITS, tokens, NULL);
}
