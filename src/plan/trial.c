#include "plan/trial.h"

#include <string.h>

#include "base/mem.h"

/* Steps until all is known: the state after a step is one that was there before, so from then on the steps go round in a
 * circle; or this many, for runs that settle late. */
#define TRIAL_STEPS_MAX 16

static ps_tiers_options simulated(const ps_settings *s, const ps_blueprint *b, const ps_budgets *budgets)
{
    ps_tiers_options o = {.simulated = true,
                          .budgets = *budgets,
                          .disk_folder = "",
                          .queue_depth = s->queue_depth,
                          .keep_freed_memory = s->keep_freed_memory,
                          .layout = b->layout,
                          .policy = s->policy,
                          .prefetch = s->prefetch,
                          .wait_at_once = s->wait_at_once,
                          .rates = &s->rates.links,
                          .staging_bytes = s->staging_bytes,
                          .comm_staging_bytes = ps_settings_comm_bytes(s),
                          .cache_bytes = b->code->cache_bytes};
    memcpy(o.item_bytes, b->item_bytes, sizeof o.item_bytes);
    return o;
}

static ps_status trial_step(ps_runner *r)
{
    const ps_settings *s = r->bp->settings;
    for (r->micro = 0; r->micro < s->accumulation; r->micro++) {
        PS_TRY(ps_runner_forward(r, NULL));
        if (s->training) PS_TRY(ps_runner_backward(r));
    }
    r->micro = 0;
    return s->training ? ps_runner_update(r, &(ps_update){0}) : PS_OK;
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

/* Steps since the state was last what it is after step `last`; 0: it never was. The first step begins without a past. */
static int64_t steps_since(const uint64_t *seen, int64_t last)
{
    for (int64_t step = last - 1; step >= 1; step--)
        if (seen[step] == seen[last]) return last - step;
    return 0;
}

ps_status ps_trial_run(const ps_blueprint *b, const ps_budgets *budgets, bool keeps_dump, ps_forecast *f)
{
    ps_status st = PS_OK;
    ps_tiers tiers = {0};
    ps_runner runner = {0};
    *f = (ps_forecast){0};
    const ps_tiers_options o = simulated(b->settings, b, budgets);
    PS_TRY(ps_tiers_open(&o, &tiers));
    PS_TRY_GOTO(ps_runner_init(&runner, b, &tiers, false));
    runner.keeps_dump = keeps_dump;
    PS_TRY_GOTO(ps_runner_create_params(&runner, false));
    ps_store_stats after = ps_store_get_stats(tiers.store);
    uint64_t seen[TRIAL_STEPS_MAX];
    ps_step_time times[TRIAL_STEPS_MAX];
    for (; f->cycle == 0 && f->steps < TRIAL_STEPS_MAX; f->steps++) {
        const ps_store_stats before = after;
        const ps_timeline begin = *ps_store_timeline(tiers.store);
        PS_TRY_GOTO(trial_step(&runner));
        after = ps_store_get_stats(tiers.store);
        for (int l = 0; l < PS_LINK_COUNT; l++) f->moved_bytes[l] = after.moved_bytes[l] - before.moved_bytes[l];
        times[f->steps] = time_between(&begin, ps_store_timeline(tiers.store));
        seen[f->steps] = ps_store_residency(tiers.store);
        f->cycle = steps_since(seen, f->steps);
    }
    if (f->cycle == 0) f->cycle = f->steps / 2;
    f->step = average_time(&times[f->steps - f->cycle], f->cycle);
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) f->peak_bytes[t] = ps_device_get_stats(tiers.ram[t]).peak_bytes;
    f->peak_bytes[PS_TIER_DISK] = after.disk_bytes;
    for (int t = 0; t < PS_RAM_TIER_COUNT; t++) f->peak[t] = ps_store_peak(tiers.store, (ps_tier)t);
out:
    ps_runner_deinit(&runner);
    ps_tiers_close(&tiers);
    return st;
}

static ps_status change_and_step(ps_runner *r, const ps_blueprint *b)
{
    uint64_t seen[TRIAL_STEPS_MAX];
    if (!ps_runner_carries(r, b)) PS_TRY(ps_runner_flush(r));
    PS_TRY(ps_runner_change(r, b));
    for (int steps = 0; steps < TRIAL_STEPS_MAX; steps++) {
        PS_TRY(trial_step(r));
        seen[steps] = ps_store_residency(r->tiers->store);
        for (int step = 0; step < steps; step++)
            if (seen[step] == seen[steps]) return PS_OK;
    }
    return PS_OK;
}

ps_status ps_trial_change(const ps_runner *from, const ps_blueprint *b)
{
    ps_status st = PS_OK;
    ps_tiers tiers = {0};
    ps_runner r = {0};
    const ps_tiers_options o = simulated(b->settings, from->bp, &b->settings->budgets);
    PS_TRY(ps_tiers_open(&o, &tiers));
    PS_TRY_GOTO(ps_runner_init(&r, from->bp, &tiers, false));
    PS_TRY_GOTO(ps_runner_imitate(&r, from));
    PS_TRY_GOTO(change_and_step(&r, b));
out:
    ps_runner_deinit(&r);
    ps_tiers_close(&tiers);
    return st;
}

ps_status ps_trial_record(const ps_blueprint *b, const ps_budgets *budgets, int64_t first, int64_t last,
                          ps_profile *profile)
{
    ps_status st = PS_OK;
    ps_tiers tiers = {0};
    ps_runner r = {0};
    ps_tiers_options o = simulated(b->settings, b, budgets);
    o.profile = profile;
    PS_TRY(ps_tiers_open(&o, &tiers));
    const int64_t *now_ns = &ps_store_timeline(tiers.store)->now_ns;
    ps_profile_use_clock(profile, now_ns);
    PS_TRY_GOTO(ps_runner_init(&r, b, &tiers, false));
    PS_TRY_GOTO(ps_runner_create_params(&r, false));
    for (int64_t step = 1; step <= last; step++) {
        const int64_t begin_ns = *now_ns;
        if (step == first) {
            ps_profile_start(profile);
            ps_store_profile_start(tiers.store);
        }
        PS_TRY_GOTO(trial_step(&r));
        r.step++;
        ps_profile_add(
            profile, &(ps_profile_record){
                         .kind = PS_PROFILE_STEP, .chunk = -1, .begin_ns = begin_ns, .end_ns = *now_ns, .step = step});
    }
    ps_profile_stop(profile);
out:
    ps_runner_deinit(&r);
    ps_tiers_close(&tiers);
    ps_profile_use_clock(profile, NULL);
    return st;
}
