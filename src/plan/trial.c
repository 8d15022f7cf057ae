#include "plan/trial.h"

/* Steps until all is known: the state after a step is one that was there before, so from then on the steps go round in
 * a circle; or this many, for runs that settle late. */
#define TRIAL_STEPS_MAX 16

/* Simulated tiers, and a runner on them that does not compute. */
typedef struct trial {
    ps_tiers tiers;
    ps_runner *runner;
} trial;

static void tear_down(trial *t)
{
    ps_runner_destroy(t->runner);
    ps_tiers_close(&t->tiers);
}

static ps_status set_up(const ps_blueprint *b, const ps_budgets *budgets, bool keeps_dump, ps_profile *profile,
                        trial *t)
{
    *t = (trial){.runner = NULL};
    ps_tiers_options o = ps_blueprint_tiers(b, budgets);
    o.simulated = true;
    o.profile = profile;
    PS_TRY(ps_tiers_open(&o, &t->tiers));
    const ps_status st = ps_runner_create(b, &t->tiers, &(ps_runner_options){.keeps_dump = keeps_dump}, &t->runner);
    if (st != PS_OK) tear_down(t);
    return st;
}

static ps_status run_step(ps_runner *r)
{
    const bool training = ps_runner_blueprint(r)->settings->training;
    do {
        PS_TRY(ps_runner_forward(r, &(ps_pass){.kind = PS_PASS_TRAIN}));
        if (training) PS_TRY(ps_runner_backward(r));
    } while (!ps_runner_end_micro(r));
    return training ? ps_runner_update(r, &(ps_update){0}) : PS_OK;
}

static ps_step_time time_between(const ps_timeline *a, const ps_timeline *b)
{
    ps_step_time t = {.all_ns = b->now_ns - a->now_ns,
                      .compute_ns = b->compute_ns - a->compute_ns,
                      .lost_ns = b->lost_ns - a->lost_ns};
    for (int l = 0; l < PS_LINK_COUNT; l++) {
        t.busy_ns[l] = b->busy_ns[l] - a->busy_ns[l];
        t.wait_ns[l] = b->wait_ns[l] - a->wait_ns[l];
    }
    return t;
}

static void add_time(ps_step_time *sum, const ps_step_time *t)
{
    sum->all_ns += t->all_ns;
    sum->compute_ns += t->compute_ns;
    sum->lost_ns += t->lost_ns;
    for (int l = 0; l < PS_LINK_COUNT; l++) {
        sum->busy_ns[l] += t->busy_ns[l];
        sum->wait_ns[l] += t->wait_ns[l];
    }
}

static ps_step_time average_time(const ps_step_time *steps, int64_t n)
{
    ps_step_time t = {0};
    for (int64_t i = 0; i < n; i++) add_time(&t, &steps[i]);
    t.all_ns /= n;
    t.compute_ns /= n;
    t.lost_ns /= n;
    for (int l = 0; l < PS_LINK_COUNT; l++) {
        t.busy_ns[l] /= n;
        t.wait_ns[l] /= n;
    }
    return t;
}

/* Steps since the state was last what it is after step `last`; 0: it never was. The first step begins without a
 * past. */
static int64_t steps_since(const uint64_t *seen, int64_t last)
{
    for (int64_t step = last - 1; step >= 1; step--)
        if (seen[step] == seen[last]) return last - step;
    return 0;
}

ps_status ps_trial_run(const ps_blueprint *b, const ps_budgets *budgets, bool keeps_dump, ps_forecast *f)
{
    ps_status st = PS_OK;
    trial t;
    *f = (ps_forecast){0};
    PS_TRY(set_up(b, budgets, keeps_dump, NULL, &t));
    PS_TRY_GOTO(ps_runner_create_params(t.runner, false));
    ps_store *store = t.tiers.store;
    ps_store_stats after = ps_store_get_stats(store);
    uint64_t seen[TRIAL_STEPS_MAX];
    ps_step_time times[TRIAL_STEPS_MAX];
    for (; f->cycle == 0 && f->steps < TRIAL_STEPS_MAX; f->steps++) {
        const ps_store_stats before = after;
        const ps_timeline begin = *ps_store_timeline(store);
        PS_TRY_GOTO(run_step(t.runner));
        after = ps_store_get_stats(store);
        for (int l = 0; l < PS_LINK_COUNT; l++) f->moved_bytes[l] = after.moved_bytes[l] - before.moved_bytes[l];
        times[f->steps] = time_between(&begin, ps_store_timeline(store));
        seen[f->steps] = ps_store_residency(store);
        f->cycle = steps_since(seen, f->steps);
    }
    if (f->cycle == 0) f->cycle = f->steps / 2;
    f->step = average_time(&times[f->steps - f->cycle], f->cycle);
    for (int i = 0; i < PS_RAM_TIER_COUNT; i++) f->peak_bytes[i] = ps_device_get_stats(t.tiers.ram[i]).peak_bytes;
    f->peak_bytes[PS_TIER_DISK] = after.disk_bytes;
    for (int i = 0; i < PS_RAM_TIER_COUNT; i++) f->peak[i] = ps_store_peak(store, (ps_tier)i);
out:
    tear_down(&t);
    return st;
}

/* Change to b, and run steps until the state is one that was there before: more would show nothing new. */
static ps_status change_and_step(const trial *t, const ps_blueprint *b)
{
    uint64_t seen[TRIAL_STEPS_MAX];
    if (!ps_runner_carries(t->runner, b)) PS_TRY(ps_runner_flush(t->runner));
    PS_TRY(ps_runner_change(t->runner, b));
    for (int steps = 0; steps < TRIAL_STEPS_MAX; steps++) {
        PS_TRY(run_step(t->runner));
        seen[steps] = ps_store_residency(t->tiers.store);
        for (int step = 0; step < steps; step++)
            if (seen[step] == seen[steps]) return PS_OK;
    }
    return PS_OK;
}

ps_status ps_trial_change(const ps_runner *from, const ps_blueprint *b)
{
    ps_status st = PS_OK;
    trial t;
    PS_TRY(set_up(ps_runner_blueprint(from), &b->settings->budgets, false, NULL, &t));
    PS_TRY_GOTO(ps_runner_imitate(t.runner, from));
    PS_TRY_GOTO(change_and_step(&t, b));
out:
    tear_down(&t);
    return st;
}

ps_status ps_trial_record(const ps_blueprint *b, const ps_budgets *budgets, int64_t first, int64_t last,
                          ps_profile *profile)
{
    ps_status st = PS_OK;
    trial t;
    PS_TRY(set_up(b, budgets, false, profile, &t));
    const int64_t *now_ns = &ps_store_timeline(t.tiers.store)->now_ns;
    ps_profile_use_clock(profile, now_ns);
    PS_TRY_GOTO(ps_runner_create_params(t.runner, false));
    for (int64_t step = 1; step <= last; step++) {
        const int64_t begin_ns = *now_ns;
        if (step == first) {
            ps_profile_start(profile);
            ps_store_profile_start(t.tiers.store);
        }
        PS_TRY_GOTO(run_step(t.runner));
        ps_profile_add(
            profile, &(ps_profile_record){
                         .kind = PS_PROFILE_STEP, .chunk = -1, .begin_ns = begin_ns, .end_ns = *now_ns, .step = step});
    }
    ps_profile_stop(profile);
out:
    tear_down(&t);
    ps_profile_use_clock(profile, NULL);
    return st;
}
