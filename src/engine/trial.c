#include "engine/trial.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/machine.h"
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
                          .staging_bytes = s->staging_bytes};
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

/* Computing that stands still for more than this share of a step is bound by what it waits for. */
#define CRITICAL_WAIT_SHARE 0.1

const char *ps_step_time_critical(const ps_step_time *t)
{
    int longest = 0;
    int64_t waits = 0;
    for (int l = 0; l < PS_LINK_COUNT; l++) {
        waits += t->wait_ns[l];
        if (t->wait_ns[l] > t->wait_ns[longest]) longest = l;
    }
    return (double)waits > CRITICAL_WAIT_SHARE * (double)t->all_ns ? ps_link_name((ps_link)longest) : "compute";
}

/* keeps_dump: where it fails, ps_last_memory_dump says what it had there. */
static ps_status try_blueprint(const ps_blueprint *b, const ps_budgets *budgets, bool keeps_dump, ps_forecast *f)
{
    ps_status st = PS_OK;
    ps_tiers tiers = {0};
    ps_runner runner = {0};
    *f = (ps_forecast){0};
    const ps_tiers_options o = simulated(b->settings, b, budgets);
    PS_TRY(ps_tiers_open(&o, &tiers));
    PS_TRY_GOTO(ps_runner_init(&runner, b, &tiers, false));
    runner.keeps_dump = keeps_dump;
    PS_TRY_GOTO(ps_runner_create_params(&runner));
    ps_store_stats after = ps_store_get_stats(tiers.store);
    uint64_t seen[TRIAL_STEPS_MAX];
    for (bool repeats = false; !repeats && f->steps < TRIAL_STEPS_MAX; f->steps++) {
        const ps_store_stats before = after;
        const ps_timeline begin = *ps_store_timeline(tiers.store);
        PS_TRY_GOTO(trial_step(&runner));
        after = ps_store_get_stats(tiers.store);
        for (int l = 0; l < PS_LINK_COUNT; l++) f->moved_bytes[l] = after.moved_bytes[l] - before.moved_bytes[l];
        f->step = time_between(&begin, ps_store_timeline(tiers.store));
        seen[f->steps] = ps_store_residency(tiers.store);
        for (int64_t step = 1; step < f->steps; step++) repeats |= seen[step] == seen[f->steps];
    }
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
    PS_TRY_GOTO(ps_runner_create_params(&r));
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

/* The fastest first. Deferred updates keep optimizer data beside activations: where that is too much, they get a phase of their
 * own. Gathering ahead takes the memory of another group or two. */
static const ps_variant variants[] = {{true, true}, {false, true}, {true, false}, {false, false}};

static ps_status try_chunk_size(const ps_settings *s, const ps_program *program, const ps_plan *plan,
                                const ps_budgets *budgets, int64_t elements, ps_blueprint **out, ps_forecast *f)
{
    ps_status st = PS_OK;
    for (size_t i = 0; i < PS_ARRAY_LEN(variants); i++) {
        if (variants[i].deferred && !(s->training && s->defer_updates)) continue;
        if (variants[i].ahead && s->ranks.n == 1) continue;
        PS_TRY(ps_blueprint_create(s, program, plan, budgets, elements, variants[i], out));
        st = try_blueprint(*out, budgets, false, f);
        if (st == PS_OK) return PS_OK;
        ps_blueprint_destroy(*out);
        *out = NULL;
        if (st != PS_EBUDGET) return st;
    }
    return st;
}

static ps_status search_size(const ps_program *program, int64_t min_elements, int64_t max_elements, int64_t *elements)
{
    int64_t *sizes = NULL;
    PS_TRY(ps_mem_alloc((size_t)program->n_params, sizeof *sizes, &sizes));
    for (int32_t t = 0; t < program->n_params; t++) sizes[t] = program->params[t].elements;
    const ps_status st = ps_layout_search(sizes, program->n_params, min_elements, max_elements, elements);
    ps_mem_free(sizes);
    return st;
}

ps_status ps_trial_find_blueprint(const ps_settings *s, const ps_program *program, const ps_plan *plan,
                                  const ps_budgets *budgets, ps_blueprint **out, ps_forecast *forecast)
{
    *out = NULL;
    if (s->chunk_elements > 0) return try_chunk_size(s, program, plan, budgets, s->chunk_elements, out, forecast);
    const int64_t min_elements = ps_blueprint_min_chunk_elements(s, program);
    int64_t max_elements = ps_blueprint_max_chunk_elements(s, program, budgets);
    for (;;) {
        int64_t elements;
        PS_TRY(search_size(program, min_elements, max_elements, &elements));
        const ps_status st = try_chunk_size(s, program, plan, budgets, elements, out, forecast);
        if (st != PS_EBUDGET || max_elements <= min_elements) return st;
        max_elements = ps_max_i64(min_elements, max_elements / 2);
    }
}

/* ---- advice ---- */

static ps_status fits(const ps_settings *s, const ps_program *program, const ps_plan *plan, const ps_budgets *budgets,
                      bool *yes)
{
    ps_blueprint *b = NULL;
    ps_forecast f;
    const ps_status st = ps_trial_find_blueprint(s, program, plan, budgets, &b, &f);
    ps_blueprint_destroy(b);
    *yes = st == PS_OK;
    return st == PS_EBUDGET ? PS_OK : st;
}

/* Somebody waits for the refusal: what is not found by then is left out. A large model in small chunks takes seconds a try. */
#define ADVICE_NS (10 * (int64_t)1000000000)

/* Smallest device budget that fits, the other budgets as they are; 0: none up to all model data and activations. When time is
 * up it is one that fits, but perhaps not the smallest. */
static ps_status smallest_device(const ps_settings *s, const ps_program *program, const ps_plan *plan,
                                 int64_t deadline_ns, int64_t *bytes)
{
    *bytes = 0;
    ps_budgets trial = s->budgets;
    int64_t low = s->budgets.bytes[PS_TIER_DEVICE] / PS_PAGE_BYTES; /* does not fit; in pages */
    int64_t high = ps_max_i64(1, low);
    bool yes = false;
    for (int doubling = 0; !yes && doubling < 40 && ps_clock_ns() < deadline_ns; doubling++) {
        high *= 2;
        trial.bytes[PS_TIER_DEVICE] = high * PS_PAGE_BYTES;
        PS_TRY(fits(s, program, plan, &trial, &yes));
        if (!yes) low = high;
    }
    if (!yes) return PS_OK;
    while (high - low > 1 && ps_clock_ns() < deadline_ns) {
        const int64_t middle = low + (high - low) / 2;
        trial.bytes[PS_TIER_DEVICE] = middle * PS_PAGE_BYTES;
        PS_TRY(fits(s, program, plan, &trial, &yes));
        if (yes)
            high = middle;
        else
            low = middle;
    }
    *bytes = high * PS_PAGE_BYTES;
    return PS_OK;
}

/* Do other settings (micro-batch, checkpointing) fit the same budgets? Needs a plan of their own. */
static ps_status fits_changed(const ps_settings *s, ps_model_func model, void *user, bool *yes)
{
    *yes = false;
    ps_status st = PS_OK;
    ps_program *program = NULL;
    ps_plan *plan = NULL;
    const ps_plan_options o = ps_settings_plan_options(s);
    PS_TRY_GOTO(ps_program_build(model, user, s->B, s->T, &program));
    PS_TRY_GOTO(ps_plan_create(program, &o, &plan));
    PS_TRY_GOTO(fits(s, program, plan, &s->budgets, yes));
out:
    ps_plan_destroy(plan);
    ps_program_destroy(program);
    return st;
}

typedef struct advice {
    char text[700];
    size_t length;
} advice;

__attribute__((format(printf, 2, 3))) static void advise(advice *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(a->text + a->length, sizeof a->text - a->length, fmt, ap);
    va_end(ap);
    if (n > 0) a->length = (size_t)ps_min_i64((int64_t)(a->length + (size_t)n), (int64_t)sizeof a->text - 1);
}

static ps_status add_changes(advice *a, const ps_settings *s, ps_model_func model, void *user,
                             const ps_program *program, const ps_plan *plan)
{
    const int64_t deadline_ns = ps_clock_ns() + ADVICE_NS;
    int64_t device;
    PS_TRY(smallest_device(s, program, plan, deadline_ns, &device));
    if (device > 0) advise(a, " memory.device = %lld;", (long long)device);
    for (int64_t B = s->B / 2; B >= 1 && ps_clock_ns() < deadline_ns; B /= 2) {
        ps_settings smaller = *s;
        smaller.B = B;
        bool yes;
        PS_TRY(fits_changed(&smaller, model, user, &yes));
        if (!yes) continue;
        advise(a, " train_micro_batch_size_per_gpu = %lld;", (long long)B);
        break;
    }
    if (!s->checkpointing && s->training && ps_clock_ns() < deadline_ns) {
        ps_settings with = *s;
        with.checkpointing = true;
        bool yes;
        PS_TRY(fits_changed(&with, model, user, &yes));
        if (yes) advise(a, " activation_checkpointing.enabled = true;");
    }
    if (s->budgets.bytes[PS_TIER_DISK] == 0 && ps_clock_ns() < deadline_ns) {
        ps_budgets with = s->budgets;
        with.bytes[PS_TIER_DISK] = INT64_MAX / 4;
        bool yes;
        PS_TRY(fits(s, program, plan, &with, &yes));
        if (yes) advise(a, " memory.disk = \"auto\";");
    }
    return PS_OK;
}

/* Write which moment needs most of the device, in the chunk size tried last, and leave the memory dump of that trial. */
static ps_status describe_need(const ps_settings *s, const ps_program *program, const ps_plan *plan, char *text,
                               size_t bytes)
{
    ps_blueprint *b = NULL;
    const int64_t elements = s->chunk_elements > 0 ? s->chunk_elements : ps_blueprint_min_chunk_elements(s, program);
    PS_TRY(ps_blueprint_create(s, program, plan, &s->budgets, elements, (ps_variant){0}, &b));
    int64_t most = -1, chunks = 0;
    int32_t at = 0;
    for (int32_t m = 0; m < b->trace->n_moments; m++) {
        const int64_t wanted = ps_blueprint_wanted_bytes(b, m, PS_TIER_DEVICE);
        if (b->trace->moments[m].non_model_bytes + wanted <= most) continue;
        most = b->trace->moments[m].non_model_bytes + wanted;
        chunks = wanted;
        at = m;
    }
    const ps_moment *m = &b->trace->moments[at];
    snprintf(
        text, bytes,
        "moment %d (%s, %s) needs most: %lld bytes of device memory at once (%lld activations and workspace + %lld "
        "chunks)",
        at, m->label, ps_phase_name(m->phase), (long long)most, (long long)m->non_model_bytes, (long long)chunks);
    /* enough for each moment alone: then what else failed is of interest */
    if (most <= s->budgets.bytes[PS_TIER_DEVICE]) {
        const size_t used = strlen(text);
        snprintf(text + used, bytes - used, "; %s", ps_last_error());
    }
    ps_forecast f;
    const ps_status st = try_blueprint(b, &s->budgets, true, &f);
    ps_blueprint_destroy(b);
    return st == PS_EBUDGET || st == PS_ENOMEM_DEV ? PS_OK : st;
}

ps_status ps_trial_explain(const ps_settings *s, ps_model_func model, void *user, const ps_program *program,
                           const ps_plan *plan)
{
    char need[512], budgets[PS_TIER_COUNT][PS_BYTES_TEXT_MAX];
    PS_TRY(describe_need(s, program, plan, need, sizeof need));
    for (int t = 0; t < PS_TIER_COUNT; t++) (void)ps_bytes_format(s->budgets.bytes[t], budgets[t]);
    advice a = {.text = ""};
    PS_TRY(add_changes(&a, s, model, user, program, plan));
    return PS_FAIL(PS_EBUDGET, "the model does not fit (device %s, host %s, disk %s): %s. %s%s", budgets[0], budgets[1],
                   budgets[2], need,
                   a.length > 0 ? "Any one of these changes fits:"
                                : "No change of one setting was found that fits: raise several budgets",
                   a.text);
}
