#include "train/plan/trial.h"

#include <math.h>
#include <string.h>

#include "base/progress.h"
#include "chunk/sim_lanes.h"
#include "chunk/store_stats.h"

/* Steps until the result is known: the state after a step equals an earlier one, so from then on the steps repeat in a
 * cycle; or this many, for runs that converge late. */
#define TRIAL_STEPS_MAX 16

/* Simulated tiers, and a runner on them that does not compute. */
typedef struct trial {
    ps_tiers tiers;
    ps_runner *runner;
    ps_deadline *deadline; /* NULL: none */
} trial;

static void tear_down(trial *t)
{
    ps_runner_destroy(t->runner);
    ps_tiers_close(&t->tiers);
}

static ps_status set_up(const ps_exec_plan *b, const ps_budgets *budgets, bool keeps_dump, ps_profile *profile,
                        trial *t)
{
    *t = (trial){.runner = NULL};
    ps_tiers_desc o = ps_exec_plan_tiers(b, budgets);
    o.simulated = true;
    o.profile = profile;
    PS_TRY(ps_tiers_open(&o, &t->tiers));
    const ps_status st = ps_runner_create(b, &t->tiers, &(ps_runner_options){.keeps_dump = keeps_dump}, &t->runner);
    if (st != PS_OK) tear_down(t);
    return st;
}

/* All passes of a step. At the end of training ones the host reads back norm and overflow. */
static ps_status run_passes(const trial *t)
{
    ps_runner *r = t->runner;
    const ps_settings *s = ps_runner_exec_plan(r)->settings;
    do {
        PS_TRY(ps_deadline_check(t->deadline));
        PS_TRY(ps_runner_forward(r, &(ps_pass){.kind = PS_PASS_TRAIN}));
        if (s->training) PS_TRY(ps_runner_backward(r, NULL));
    } while (!ps_runner_end_micro(r));
    if (s->training)
        ps_sim_queue_read_back(t->tiers.compute[PS_TIER_DEVICE],
                               s->throughput.links.link[PS_LINK_DEVICE_TO_HOST].latency_ns);
    return PS_OK;
}

static ps_status run_step(const trial *t)
{
    int32_t n;
    PS_TRY(run_passes(t));
    if (!ps_runner_exec_plan(t->runner)->settings->training) return PS_OK;
    PS_TRY(ps_runner_validate(t->runner, true, &n));
    return ps_runner_update(t->runner, NULL);
}

/* ---- time ---- */

/* Sums so far. */
static ps_step_time time_so_far(const trial *t)
{
    const ps_sim_sums sums = ps_tiers_sums(&t->tiers);
    ps_step_time so_far = {.all_ns = *ps_tiers_clock(&t->tiers),
                           .compute_ns = sums.compute_ns,
                           .lost_ns = sums.lost_ns,
                           .host_ns = sums.busy_ns[PS_SIM_HOST],
                           .host_wait_ns = sums.waits_ns[PS_SIM_HOST],
                           .idle_ns = sums.host_waits_ns};
    for (int l = 0; l < PS_LINK_COUNT; l++) {
        so_far.busy_ns[l] = sums.busy_ns[l];
        so_far.wait_ns[l] = sums.waits_ns[l];
    }
    return so_far;
}

/* A ps_step_time is numbers of one type. */
enum { TIMES = sizeof(ps_step_time) / sizeof(int64_t) };

/* *sum += factor t */
static void add_time(ps_step_time *sum, const ps_step_time *t, int64_t factor)
{
    for (int i = 0; i < TIMES; i++) ((int64_t *)sum)[i] += factor * ((const int64_t *)t)[i];
}

static ps_step_time time_since(const trial *t, const ps_step_time *begin)
{
    ps_step_time now = time_so_far(t);
    add_time(&now, begin, -1);
    return now;
}

static ps_step_time average_time(const ps_step_time *steps, int64_t n)
{
    ps_step_time t = {0};
    for (int64_t i = 0; i < n; i++) add_time(&t, &steps[i], 1);
    for (int i = 0; i < TIMES; i++) ((int64_t *)&t)[i] /= n;
    return t;
}

/* Steps since the state was last the same as after step `last`; 0: never. The first step begins without a past. */
static int64_t steps_since(const uint64_t *seen, int64_t last)
{
    for (int64_t step = last - 1; step >= 1; step--)
        if (seen[step] == seen[last]) return last - step;
    return 0;
}

/* Where two steps begin in the same state, they are the same. */
static uint64_t state_of(const trial *t)
{
    return ps_store_residency(t->tiers.store) ^ ps_runner_pending_hash(t->runner);
}

/* Bytes moved since then. */
static void set_moved(const trial *t, const ps_store_stats *before, int64_t moved_bytes[PS_LINK_COUNT])
{
    const ps_store_stats now = ps_store_get_stats(t->tiers.store);
    for (int l = 0; l < PS_LINK_COUNT; l++) moved_bytes[l] = now.moved_bytes[l] - before->moved_bytes[l];
}

/* A step whose early updates are clipped, and so taken back. *again: its second passes. */
static ps_status run_wrong_step(const trial *t, ps_step_time *again)
{
    ps_runner *r = t->runner;
    int32_t n;
    *again = (ps_step_time){0};
    PS_TRY(run_passes(t));
    PS_TRY(ps_runner_validate(r, false, &n));
    const bool of_others = ps_runner_exec_plan(r)->settings->ranks.n > 1; /* may have updates to take back */
    if (ps_runner_exec_plan(r)->recompute != NULL && (n > 0 || of_others)) {
        const ps_step_time begin = time_so_far(t);
        ps_runner_begin_recompute(r, NULL);
        PS_TRY(run_passes(t));
        *again = time_since(t, &begin);
    }
    return ps_runner_update(r, NULL);
}

/* One more step, which is taken back, and then the one that makes its updates again. */
static ps_status take_back_step(const trial *t, ps_forecast *f)
{
    ps_store_stats before = ps_store_get_stats(t->tiers.store);
    PS_TRY(run_wrong_step(t, &f->recompute_step));
    set_moved(t, &before, f->wrong_moved_bytes);
    before = ps_store_get_stats(t->tiers.store);
    const ps_step_time begin = time_so_far(t);
    PS_TRY(run_step(t));
    f->taken_back_step = time_since(t, &begin);
    set_moved(t, &before, f->taken_back_moved_bytes);
    return PS_OK;
}

/* A wrong step, with which pausing begins; paused ones, until they repeat; and two that speculate again. */
static ps_status pause_steps(const trial *t, ps_forecast *f)
{
    uint64_t seen[TRIAL_STEPS_MAX];
    bool repeats = false;
    ps_step_time again;
    ps_runner_set_max_wrong_share(t->runner, -1);
    PS_TRY(run_wrong_step(t, &again));
    for (; f->paused_steps < TRIAL_STEPS_MAX && !repeats; f->paused_steps++) {
        const ps_store_stats before = ps_store_get_stats(t->tiers.store);
        const ps_step_time begin = time_so_far(t);
        PS_TRY(run_step(t));
        f->paused_step = time_since(t, &begin);
        set_moved(t, &before, f->paused_moved_bytes);
        seen[f->paused_steps] = state_of(t);
        repeats = steps_since(seen, f->paused_steps) > 0;
    }
    ps_runner_set_max_wrong_share(t->runner, INFINITY);
    PS_TRY(run_step(t));
    return run_step(t);
}

ps_status ps_trial_run(const ps_exec_plan *b, const ps_budgets *budgets, bool keeps_dump, ps_deadline *deadline,
                       ps_forecast *f)
{
    ps_status st = PS_OK;
    trial t;
    *f = (ps_forecast){0};
    PS_TRY(ps_deadline_check(deadline));
    PS_TRY(ps_progress_report_trial());
    PS_TRY(set_up(b, budgets, keeps_dump, NULL, &t));
    t.deadline = deadline;
    PS_TRY_GOTO(ps_runner_create_params(t.runner, false));
    ps_store *store = t.tiers.store;
    ps_store_stats after = ps_store_get_stats(store);
    uint64_t seen[TRIAL_STEPS_MAX];
    ps_step_time times[TRIAL_STEPS_MAX];
    int64_t moved[TRIAL_STEPS_MAX + 1][PS_LINK_COUNT]; /* before each step, and after the last */
    memcpy(moved[0], after.moved_bytes, sizeof moved[0]);
    for (; f->cycle == 0 && f->steps < TRIAL_STEPS_MAX; f->steps++) {
        const ps_step_time begin = time_so_far(&t);
        PS_TRY_GOTO(run_step(&t));
        after = ps_store_get_stats(store);
        memcpy(moved[f->steps + 1], after.moved_bytes, sizeof moved[0]);
        times[f->steps] = time_since(&t, &begin);
        seen[f->steps] = state_of(&t);
        f->cycle = steps_since(seen, f->steps);
    }
    f->goes_round = f->cycle > 0;
    if (!f->goes_round) f->cycle = f->steps / 2;
    f->step = average_time(&times[f->steps - f->cycle], f->cycle);
    const int64_t *const last = moved[f->steps - 1], *const cycle = moved[f->steps - f->cycle];
    for (int l = 0; l < PS_LINK_COUNT; l++) {
        f->moved_bytes[l] = after.moved_bytes[l] - last[l];
        f->mean_bytes[l] = (after.moved_bytes[l] - cycle[l]) / f->cycle;
    }
    for (int i = 0; i < PS_RAM_TIER_COUNT; i++) f->peak_bytes[i] = ps_device_get_stats(t.tiers.ram[i]).peak_bytes;
    f->peak_bytes[PS_TIER_DISK] = after.disk_peak_bytes;
    memcpy(f->peak, after.peak, sizeof f->peak);
    f->n_not_kept = ps_runner_count_early_pending(t.runner);
    f->max_wrong_share = INFINITY;
    if (b->speculates) PS_TRY_GOTO(take_back_step(&t, f));
    if (b->paused != NULL) PS_TRY_GOTO(pause_steps(&t, f));
out:
    tear_down(&t);
    return st;
}

/* Change to b, and run steps until the state repeats: more steps would show nothing new. */
static ps_status change_and_step(const trial *t, const ps_exec_plan *b)
{
    uint64_t seen[TRIAL_STEPS_MAX];
    if (!ps_runner_can_execute(t->runner, b)) PS_TRY(ps_runner_flush(t->runner));
    PS_TRY(ps_runner_change(t->runner, b));
    for (int steps = 0; steps < TRIAL_STEPS_MAX; steps++) {
        PS_TRY(run_step(t));
        seen[steps] = state_of(t);
        for (int step = 0; step < steps; step++)
            if (seen[step] == seen[steps]) return PS_OK;
    }
    return PS_OK;
}

ps_status ps_trial_change(const ps_runner *from, const ps_exec_plan *b)
{
    ps_status st = PS_OK;
    trial t;
    PS_TRY(set_up(ps_runner_exec_plan(from), &b->settings->budgets, false, NULL, &t));
    PS_TRY_GOTO(ps_runner_simulate(t.runner, from));
    PS_TRY_GOTO(change_and_step(&t, b));
out:
    tear_down(&t);
    return st;
}

ps_status ps_trial_record(const ps_exec_plan *b, const ps_budgets *budgets, int64_t first, int64_t last,
                          ps_profile *profile)
{
    ps_status st = PS_OK;
    trial t;
    PS_TRY(set_up(b, budgets, false, profile, &t));
    const int64_t *now_ns = ps_tiers_clock(&t.tiers);
    ps_profile_use_clock(profile, now_ns);
    PS_TRY_GOTO(ps_runner_create_params(t.runner, false));
    for (int64_t step = 1; step <= last; step++) {
        const int64_t begin_ns = *now_ns;
        if (step == first) {
            ps_profile_start(profile);
            ps_store_profile_start(t.tiers.store);
        }
        PS_TRY_GOTO(run_step(&t));
        ps_profile_add(profile, &(ps_profile_record){.kind = PS_PROFILE_STEP,
                                                     .chunk = -1,
                                                     .begin_ns = begin_ns,
                                                     .end_ns = *now_ns,
                                                     .step = {.number = step}});
    }
    ps_profile_stop(profile);
out:
    tear_down(&t);
    ps_profile_use_clock(profile, NULL);
    return st;
}
