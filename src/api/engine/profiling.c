#include "api/engine/profiling.h"

#include <stdio.h>

#include "api/engine/engine.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sized.h"
#include "chunk/store_stats.h"
#include "train/record/profile_write.h"

static bool has_path(const ps_engine *e)
{
    return e->settings.profile_path[0] != '\0';
}

static ps_status try_path(const char *path)
{
    ps_file_writer *trial = NULL;
    const ps_status st = ps_file_writer_open(path, &trial);
    if (st != PS_OK) return PS_FAIL(st, "profile.path cannot be written: %s", ps_last_error());
    ps_file_writer_cancel(trial);
    return PS_OK;
}

bool ps_profiling_holds_text(const ps_engine *e)
{
    return ps_profile_is_on(e->profiling.recorder) || ps_profile_count(e->profiling.recorder) > 0;
}

ps_status ps_profiling_open(ps_engine *e)
{
    if (!e->settings.training) return PS_OK;
    if (has_path(e)) PS_TRY(try_path(e->settings.profile_path));
    PS_TRY(ps_profile_create(NULL, &e->profiling.recorder));
    if (e->settings.ranks.comm != NULL)
        ps_comm_set_profile(e->settings.ranks.comm, e->profiling.recorder, PS_LINK_COLLECTIVES);
    return PS_OK;
}

static ps_status write_file(ps_engine *e, const char *path)
{
    const ps_profile_facts facts = {.title = e->settings.config_name,
                                    .rank = e->settings.ranks.rank,
                                    .n_ranks = e->settings.ranks.n,
                                    .exec_plan = e->exec_plan,
                                    .budgets = e->settings.budgets,
                                    .forecast = &e->shape->forecast};
    return ps_profile_write(e->profiling.recorder, &facts, path);
}

/* The file is a by-product: a failure to write it must not end training. A recording of the program is not written
 * while that of the configuration, which has the same file, is still to come. */
static void end_recording(ps_engine *e)
{
    ps_profiling *p = &e->profiling;
    ps_store_profile_synchronize(e->tiers.store);
    ps_profile_stop(p->recorder);
    if (!p->is_asked || p->last >= e->settings.profile_steps[1]) p->is_past = true;
    p->is_asked = false;
    if (!has_path(e) || !p->is_past) return;
    p->is_written = write_file(e, e->settings.profile_path) == PS_OK;
    snprintf(p->error, sizeof p->error, "%s", p->is_written ? "" : ps_last_error());
    if (!p->is_written) ps_log(PS_LOG_WARNING, "the profile could not be written: %s", p->error);
}

static void forget(ps_profiling *p)
{
    ps_profile_clear(p->recorder);
    p->first = p->last = 0;
    p->is_written = false;
    p->error[0] = '\0';
}

/* Are all steps that the configuration records over, or were there none? */
static bool is_done(const ps_engine *e)
{
    return e->profiling.is_past || !has_path(e);
}

void ps_profiling_begin_step(ps_engine *e, int64_t step)
{
    ps_profiling *p = &e->profiling;
    if (p->recorder == NULL) return;
    if (!p->is_asked) {
        if (is_done(e) || step < e->settings.profile_steps[0]) return;
        if (step > e->settings.profile_steps[1]) {
            p->is_past = true; /* resumed after them */
            return;
        }
    }
    if (!ps_profile_is_on(p->recorder)) {
        forget(p); /* earlier records of the program */
        ps_profile_start(p->recorder);
        ps_store_profile_start(e->tiers.store);
    }
    p->step = step;
    p->begin = ps_work_now(&e->tiers, PS_TIER_DEVICE);
}

/* info: NULL when the step has not ended. */
static void record_step(ps_engine *e, const ps_step_info *info)
{
    ps_profiling *p = &e->profiling;
    ps_work_record(&e->tiers, PS_TIER_DEVICE, &p->begin,
                   &(ps_profile_record){.kind = PS_PROFILE_STEP,
                                        .chunk = -1,
                                        .step = {.number = p->step,
                                                 .n_speculated = info != NULL ? (int32_t)info->n_speculated : 0,
                                                 .n_taken_back = info != NULL ? (int32_t)info->n_taken_back : 0,
                                                 .recomputed = info != NULL && info->recomputed != 0}});
    p->last = p->step;
    if (p->first == 0) p->first = p->step;
    p->step = 0;
}

void ps_profiling_end_step(ps_engine *e)
{
    ps_profiling *p = &e->profiling;
    if (p->step == 0) return;
    record_step(e, &e->last_step);
    if ((!p->is_asked && p->last >= e->settings.profile_steps[1]) || ps_profile_is_full(p->recorder)) end_recording(e);
}

/* Records the current step as far as it came. */
static void stop_recording(ps_engine *e)
{
    ps_profiling *p = &e->profiling;
    if (!ps_profile_is_on(p->recorder)) return;
    if (p->step != 0) record_step(e, NULL);
    end_recording(e);
}

void ps_profiling_finish(ps_engine *e)
{
    e->profiling.is_past = true; /* no more steps */
    stop_recording(e);
}

void ps_profiling_close(ps_engine *e)
{
    if (e->profiling.recorder != NULL && e->settings.ranks.comm != NULL)
        ps_comm_set_profile(e->settings.ranks.comm, NULL, 0);
    ps_profile_destroy(e->profiling.recorder);
    e->profiling.recorder = NULL;
}

/* ---- public ---- */

ps_status ps_engine_get_profile_info(const ps_engine *e, ps_profile_info *out)
{
    PS_TRY(PS_NEED("engine out", e, out));
    const ps_profiling *p = &e->profiling;
    const ps_profile_info info = {.path = e->settings.profile_path,
                                  .first_step = p->first,
                                  .last_step = p->last,
                                  .is_written = p->is_written,
                                  .error = p->error};
    return PS_SIZED_GIVE(ps_profile_info, &info, out);
}

ps_status ps_engine_save_profile(ps_engine *e, const char *path)
{
    PS_TRY(PS_NEED("engine", e));
    if (path != NULL && path[0] == '\0')
        return PS_FAIL(PS_EINVAL, "ps_engine_save_profile: path is empty, expected the name of a file, or NULL");
    ps_profiling *p = &e->profiling;
    if (p->first == 0 && has_path(e) && !p->is_asked)
        return PS_FAIL(PS_ESTATE, "ps_engine_save_profile: no step was recorded; profile.steps = [%lld, %lld]",
                       (long long)e->settings.profile_steps[0], (long long)e->settings.profile_steps[1]);
    if (p->first == 0)
        return PS_FAIL(PS_ESTATE, "ps_engine_save_profile: no step was recorded: set profile.path, or call "
                                  "ps_engine_start_profile before a step");
    if (path == NULL && !has_path(e))
        return PS_FAIL(PS_EINVAL, "ps_engine_save_profile: a path is needed, as profile.path is not set");
    if (ps_profile_is_on(p->recorder)) ps_store_profile_synchronize(e->tiers.store);
    PS_TRY(write_file(e, path != NULL ? path : e->settings.profile_path));
    if (path == NULL) p->is_written = true, p->error[0] = '\0';
    return PS_OK;
}

ps_status ps_engine_start_profile(ps_engine *e)
{
    PS_TRY(PS_NEED("engine", e));
    ps_profiling *p = &e->profiling;
    if (p->recorder == NULL) return PS_FAIL(PS_ESTATE, "ps_engine_start_profile: this engine does not train");
    if (p->is_asked || ps_profile_is_on(p->recorder))
        return PS_FAIL(PS_ESTATE, "ps_engine_start_profile: a profile is being recorded; end it by "
                                  "ps_engine_stop_profile");
    forget(p);
    p->is_asked = true;
    return PS_OK;
}

ps_status ps_engine_stop_profile(ps_engine *e)
{
    PS_TRY(PS_NEED("engine", e));
    ps_profiling *p = &e->profiling;
    if (!p->is_asked && !ps_profile_is_on(p->recorder))
        return PS_FAIL(PS_ESTATE, "ps_engine_stop_profile: nothing is being recorded");
    stop_recording(e);
    p->is_asked = false; /* also when no step began */
    return PS_OK;
}
