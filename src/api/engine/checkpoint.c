/* checkpoint.c - checkpoints of an engine: saving state other than tensors, and resuming. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/checkpoint/loader.h"
#include "api/checkpoint/saver.h"
#include "api/engine/checkpoint_match.h"
#include "api/engine/engine.h"
#include "api/engine/tensors.h"
#include "base/mem.h"
#include "base/sized.h"
#include "chunk/comm/agree.h"
#include "train/state/values.h"

/* Adapters of the configuration: checkpoints have only what is trained. */
static bool has_base(const ps_engine *e)
{
    return e->settings.adapters.r > 0;
}

/* ---- saving ---- */

static ps_status take_state(const ps_engine *e, const char *caller_json, ps_checkpoint_state *state)
{
    const ps_settings *o = &e->settings;
    PS_TRY(ps_checkpoint_state_take(state, o, &e->scaler, caller_json));
    state->steps = ps_runner_steps(e->runner);
    state->optimizer_steps = e->n_updates;
    state->micro_batches = ps_runner_steps(e->runner) * o->accumulation;
    state->B = o->B;
    state->T = o->T;
    state->accumulation = o->accumulation;
    state->learning_rate = e->last_step.learning_rate;
    state->has_loss_average = true;
    state->loss_average = e->loss_average;
    return ps_mem_strdup(e->config_json, &state->config_json);
}

static ps_status expect_between_steps(const ps_engine *e, const char *call)
{
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, call));
    PS_TRY(ps_engine_expect_values(e, call));
    if (!e->settings.training) return PS_FAIL(PS_ESTATE, "%s: this engine is for inference", call);
    if (ps_runner_micro(e->runner) > 0)
        return PS_FAIL(PS_ESTATE, "%s: micro-batch %lld of %lld of a step is done; finish the step first", call,
                       (long long)ps_runner_micro(e->runner), (long long)e->settings.accumulation);
    return PS_OK;
}

ps_status ps_engine_begin_checkpoint(ps_engine *e, const char *folder, const char *caller_json)
{
    PS_TRY(PS_NEED("engine folder", e, folder));
    PS_TRY(expect_between_steps(e, "ps_engine_begin_checkpoint"));
    if (e->saver != NULL)
        return PS_FAIL(PS_ESTATE, "ps_engine_begin_checkpoint: one is in progress; call ps_engine_finish_checkpoint");
    uint64_t base_xxh3 = 0;
    if (has_base(e)) PS_TRY(ps_engine_hash_base(e, &base_xxh3));
    const ps_model_state model = ps_engine_model_state(e);
    ps_checkpoint_state state = {0};
    const ps_saver_desc d = {.model = &model,
                             .snapshot = ps_runner_snapshot(e->runner),
                             .pending = ps_runner_pending(e->runner),
                             .order = e->exec_plan->update_order,
                             .n = e->exec_plan->n_ordered,
                             .folder = folder,
                             .keep_last = e->settings.keep_checkpoints,
                             .state = &state,
                             .status = take_state(e, caller_json, &state)};
    state.has_base = has_base(e);
    state.base_xxh3 = base_xxh3;
    return ps_saver_create(&d, &e->saver);
}

int ps_engine_checkpoint_is_done(const ps_engine *e)
{
    return e->saver == NULL || ps_saver_is_done(e->saver);
}

/* Passes on the pieces that no update has passed on. */
static ps_status finish_snapshot(ps_engine *e)
{
    if (!ps_snapshot_is_under_way(ps_runner_snapshot(e->runner))) return PS_OK;
    PS_TRY(expect_between_steps(e, "ps_engine_finish_checkpoint"));
    return ps_engine_check_device(e, ps_runner_finish_snapshot(e->runner));
}

ps_status ps_engine_finish_checkpoint(ps_engine *e, ps_checkpoint_info *info)
{
    PS_TRY(PS_NEED("engine", e));
    if (info != NULL) PS_TRY(PS_SIZED_GIVE(ps_checkpoint_info, &(ps_checkpoint_info){0}, info));
    if (e->saver == NULL) return PS_FAIL(PS_ESTATE, "ps_engine_finish_checkpoint: none was begun");
    ps_saver_begin_finish(e->saver);
    return ps_saver_finish(&e->saver, finish_snapshot(e), info);
}

ps_status ps_engine_save_checkpoint(ps_engine *e, const char *folder, const char *caller_json, ps_checkpoint_info *info)
{
    PS_TRY(PS_NEED("engine folder", e, folder));
    if (info != NULL) PS_TRY(PS_SIZED_GIVE(ps_checkpoint_info, &(ps_checkpoint_info){0}, info));
    PS_TRY(ps_engine_begin_checkpoint(e, folder, caller_json));
    return ps_engine_finish_checkpoint(e, info);
}

/* ---- resuming ---- */

static ps_status expect_ready(const ps_engine *e)
{
    PS_TRY(ps_engine_expect(e, PS_ENGINE_READY, "ps_engine_load_checkpoint"));
    if (ps_runner_micro(e->runner) > 0 || e->saver != NULL)
        return PS_FAIL(PS_ESTATE, "ps_engine_load_checkpoint: %s first",
                       e->saver != NULL ? "call ps_engine_finish_checkpoint" : "finish the current step");
    return PS_OK;
}

/* The files lack the base, which the engine has from elsewhere. */
static ps_status expect_base(const ps_engine *e)
{
    if (!has_base(e)) return PS_OK;
    return ps_engine_expect_values(e, "ps_engine_load_checkpoint: with adapters (lora.r) a checkpoint lacks the base");
}

/* Values of another format have another hash. */
static ps_status check_base(ps_engine *e, const ps_loader *l)
{
    uint64_t is;
    const ps_checkpoint_state *s = ps_loader_state(l);
    if (!s->has_base) return PS_OK;
    if (strcmp(s->dtype, ps_dtype_name(e->settings.dtype)) != 0) {
        ps_engine_report(e,
                         "the base is not checked against that of the checkpoint, as its numbers have another format "
                         "now");
        return PS_OK;
    }
    PS_TRY(ps_engine_hash_base(e, &is));
    if (is == s->base_xxh3) return PS_OK;
    return PS_FAIL(PS_EINVAL,
                   "%s: its adapters were trained on a base whose weights have the xxh3 %016" PRIx64
                   ", but those of the base now have %016" PRIx64
                   ": give the same model.from_pretrained, or without one "
                   "the same train.seed",
                   ps_loader_folder(l), s->base_xxh3, is);
}

static ps_status open_checkpoint(const ps_engine *e, const ps_model_state *model, const char *folder, ps_loader **out)
{
    PS_TRY(expect_base(e));
    PS_TRY(ps_loader_open(model, folder, out));
    PS_TRY(ps_checkpoint_match(e, ps_loader_state(*out), ps_loader_folder(*out)));
    return ps_loader_check(*out);
}

static ps_status put_values(void *user, int32_t tensor, ps_list list, int64_t first, int64_t n, const float *in)
{
    ps_engine *e = user;
    return ps_engine_put_values(e, list == PS_VALUE_LIST ? ps_engine_value_list(e, tensor) : list, tensor, first, n,
                                in);
}

static ps_status load_all(ps_engine *e, ps_loader *l)
{
    PS_TRY(ps_loader_load(l, put_values, e));
    ps_engine_end_filling(e);
    return ps_checkpoint_restore(e, ps_loader_state(l));
}

/* For training only: evaluation on other hardware may have other bits. */
static void tell_differences(ps_engine *e, const ps_loader *l)
{
    ps_arithmetic is;
    char text[768], conversion[PS_LOADER_CONVERSION_MAX];
    if (!e->settings.training) return;
    if (ps_loader_describe_conversion(l, conversion) != NULL) ps_engine_report(e, conversion);
    ps_arithmetic_of(&e->settings, &is);
    ps_arithmetic_compare(&ps_loader_state(l)->arithmetic, &is, ps_loader_folder(l), text, sizeof text);
    if (text[0] != '\0') ps_engine_report(e, text);
}

ps_status ps_engine_load_checkpoint(ps_engine *e, const char *folder, char **caller_json)
{
    if (caller_json != NULL) *caller_json = NULL;
    PS_TRY(PS_NEED("engine folder", e, folder));
    PS_TRY(expect_ready(e));
    ps_comm *comm = e->settings.ranks.comm;
    const ps_model_state model = ps_engine_model_state(e);
    ps_loader *l = NULL;
    ps_status st = PS_OK;
    PS_TRY_GOTO(ps_comm_agree(comm, open_checkpoint(e, &model, folder, &l)));
    PS_TRY_GOTO(ps_loader_check_same(l));
    PS_TRY_GOTO(check_base(e, l));
    PS_TRY_GOTO(ps_engine_check_agreed(e, ps_comm_agree(comm, load_all(e, l))));
    tell_differences(e, l);
    if (caller_json != NULL) *caller_json = ps_loader_take_caller_json(l);
out:
    ps_loader_close(l);
    return st;
}
