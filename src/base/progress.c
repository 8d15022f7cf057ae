#include "base/progress.h"

#include <stddef.h>

static _Thread_local struct {
    ps_progress_func func;
    void *user;
    int64_t n_trials;
} listener;

void ps_set_progress(ps_progress_func func, void *user)
{
    listener.func = func;
    listener.user = user;
    listener.n_trials = 0;
}

ps_status ps_progress_report(ps_progress_kind what, int64_t done, int64_t total)
{
    static const char *const names[] = {
        [PS_PROGRESS_PLAN] = "planning", [PS_PROGRESS_LOAD] = "loading", [PS_PROGRESS_SAVE] = "saving"};
    if (listener.func == NULL) return PS_OK;
    const ps_progress p = {.struct_size = sizeof p, .what = what, .done = done, .total = total};
    if (listener.func(listener.user, &p) == 0) return PS_OK;
    if (total == 0)
        return PS_FAIL(PS_ECANCELED, "%s was ended by the program's progress function, at %lld", names[what],
                       (long long)done);
    return PS_FAIL(PS_ECANCELED, "%s was ended by the program's progress function, at %lld of %lld", names[what],
                   (long long)done, (long long)total);
}

void ps_progress_begin_plan(void)
{
    listener.n_trials = 0;
}

ps_status ps_progress_report_trial(void)
{
    return ps_progress_report(PS_PROGRESS_PLAN, listener.n_trials++, 0);
}
