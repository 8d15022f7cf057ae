#include "plan/refusal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/machine.h"
#include "plan/model_data_min.h"
#include "plan/search.h"
#include "settings/params.h"

/* Somebody waits for the refusal: what is not found by then is left out. A large model in small chunks takes seconds a
 * try. */
#define ADVICE_NS (10 * (int64_t)1000000000)

/* A budget that fits is no larger than this: it holds all lists of all parameters, in chunks that waste most of their
 * memory, and activations. */
static int64_t most_bytes(const ps_settings *s, const ps_program *program, const ps_code *code)
{
    enum { MOST_WASTE = 8 };
    double elements = (double)s->chunk_elements;
    for (int32_t t = 0; t < program->n_params; t++) elements += (double)program->params[t].elements;
    const double most = MOST_WASTE * elements * ps_lists_of(s, 0, 0).n * sizeof(float) +
                        2 * (double)code->non_model_bytes +
                        code->n_aside * (double)ps_round_up(code->aside_bytes, ps_settings_page_bytes(s)) +
                        (double)s->staging_bytes + (double)ps_settings_comm_bytes(s);
    return most < (double)PS_BUDGET_MAX ? (int64_t)most : PS_BUDGET_MAX;
}

ps_status ps_refusal_least_budget(const ps_settings *s, const ps_program *program, const ps_code *code, ps_tier tier,
                                  ps_deadline *deadline, int64_t *bytes)
{
    *bytes = 0;
    ps_budgets trial = s->budgets;
    const int64_t page_bytes = tier == PS_TIER_DISK ? PS_PAGE_BYTES : ps_settings_page_bytes(s);
    const int64_t fewest =
        ps_ceil_div(ps_model_data_min_left_to(ps_model_data_min_bytes(s, program), &s->budgets, tier), page_bytes);
    int64_t low = s->budgets.bytes[tier] / page_bytes; /* does not fit; in pages */
    int64_t high = ps_max_i64(ps_max_i64(1, low), ps_ceil_div(fewest, 2));
    const int64_t most = ps_min_i64(most_bytes(s, program, code) / page_bytes + 1, PS_BUDGET_MAX / page_bytes);
    bool yes = false;
    low = ps_max_i64(low, fewest - 1);
    while (!yes && high < most && !ps_deadline_stops(deadline)) {
        high = ps_min_i64(2 * high, most);
        trial.bytes[tier] = high * page_bytes;
        PS_TRY(ps_search_fits(s, program, code, &trial, deadline, &yes));
        if (!yes) low = ps_max_i64(low, high);
    }
    if (!yes) return PS_OK;
    while (high - low > 1 && !ps_deadline_stops(deadline)) {
        const int64_t middle = low + (high - low) / 2;
        trial.bytes[tier] = middle * page_bytes;
        PS_TRY(ps_search_fits(s, program, code, &trial, deadline, &yes));
        if (yes)
            high = middle;
        else
            low = middle;
    }
    *bytes = high * page_bytes;
    return PS_OK;
}

/* Does it fit the same budgets with other settings (micro-batch, checkpointing)? They need a program and code of their
 * own. */
static ps_status fits_changed(const ps_settings *s, ps_model_func model, void *user, ps_deadline *deadline, bool *yes)
{
    *yes = false;
    if (ps_deadline_stops(deadline)) return PS_OK;
    ps_status st = PS_OK;
    ps_program *program = NULL;
    ps_code *code = NULL;
    const ps_code_options o = ps_settings_code_options(s);
    PS_TRY_GOTO(ps_settings_build_program(s, model, user, s->B, s->T, &program));
    if (ps_model_data_min_check(s, program, &s->budgets) != PS_OK) goto out;
    PS_TRY_GOTO(ps_code_create(program, &o, &code));
    PS_TRY_GOTO(ps_search_fits(s, program, code, &s->budgets, deadline, yes));
out:
    ps_code_destroy(code);
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

static void advise_budget(advice *a, ps_tier tier, int64_t bytes)
{
    char text[PS_BYTES_TEXT_MAX];
    advise(a, " memory.%s = %lld (%s);", ps_tier_name(tier), (long long)bytes, ps_bytes_round_up(bytes, text));
}

/* A GPU's memory is not looked at. */
static bool machine_has(const ps_settings *s, ps_tier tier, int64_t bytes)
{
    ps_machine_memory_info memory;
    const bool is_ram = tier == PS_TIER_HOST || s->backend_kind != PS_BACKEND_CUDA;
    return !is_ram || ps_machine_memory(NULL, &memory) != PS_OK || bytes <= memory.total_bytes;
}

/* Advise `text` if it fits with other settings. */
static ps_status consider(advice *a, const ps_settings *changed, ps_model_func model, void *user, ps_deadline *deadline,
                          const char *text)
{
    bool yes;
    PS_TRY(fits_changed(changed, model, user, deadline, &yes));
    if (yes) advise(a, "%s", text);
    return PS_OK;
}

/* Where there is none yet "auto" takes what the folder has. */
static ps_status add_disk(advice *a, const ps_settings *s, const ps_program *program, const ps_code *code,
                          ps_deadline *deadline)
{
    ps_budgets with = s->budgets;
    int64_t bytes, there;
    char text[PS_BYTES_TEXT_MAX];
    bool yes;
    if (ps_deadline_stops(deadline)) return PS_OK;
    with.bytes[PS_TIER_DISK] = INT64_MAX / 4;
    PS_TRY(ps_search_fits(s, program, code, &with, deadline, &yes));
    if (!yes) return PS_OK;
    if (s->budgets.bytes[PS_TIER_DISK] == 0) {
        advise(a, " memory.disk = \"auto\";");
        return PS_OK;
    }
    PS_TRY(ps_refusal_least_budget(s, program, code, PS_TIER_DISK, deadline, &bytes));
    if (bytes == 0) return PS_OK;
    if (ps_disk_folders_free_bytes(s->disk_folders, &there) == PS_OK && bytes * ps_max_i64(1, s->ranks.n) > there)
        advise(a, " a memory.disk_path with %s free;", ps_bytes_round_up(bytes, text));
    else
        advise_budget(a, PS_TIER_DISK, bytes);
    return PS_OK;
}

/* Beside memory.total no tier is named: a processor's device tier is what it leaves. */
static ps_status add_total(advice *a, const ps_settings *s, const ps_program *program, const ps_code *code,
                           ps_deadline *deadline)
{
    int64_t bytes;
    char text[PS_BYTES_TEXT_MAX];
    PS_TRY(ps_refusal_least_budget(s, program, code, PS_TIER_DEVICE, deadline, &bytes));
    if (bytes == 0) return PS_OK;
    const int64_t total = ps_settings_total_for(s, bytes, s->budgets.bytes[PS_TIER_HOST]);
    if (machine_has(s, PS_TIER_DEVICE, total))
        advise(a, " memory.total = %lld (%s);", (long long)total, ps_bytes_round_up(total, text));
    return PS_OK;
}

static ps_status add_ram(advice *a, const ps_settings *s, const ps_program *program, const ps_code *code,
                         ps_deadline *deadline)
{
    if (ps_settings_is_total(s)) return add_total(a, s, program, code, deadline);
    for (int tier = 0; tier < PS_RAM_TIER_COUNT; tier++) {
        int64_t bytes;
        PS_TRY(ps_refusal_least_budget(s, program, code, (ps_tier)tier, deadline, &bytes));
        if (bytes > 0 && machine_has(s, (ps_tier)tier, bytes)) advise_budget(a, (ps_tier)tier, bytes);
    }
    return PS_OK;
}

static ps_status add_changes(advice *a, const ps_settings *s, ps_model_func model, void *user,
                             const ps_program *program, const ps_code *code, ps_deadline *deadline)
{
    PS_TRY(add_ram(a, s, program, code, deadline));
    for (int64_t B = s->B / 2; B >= 1 && !ps_deadline_timed_out(deadline); B /= 2) {
        ps_settings smaller = *s;
        smaller.B = B;
        bool yes;
        PS_TRY(fits_changed(&smaller, model, user, deadline, &yes));
        if (!yes) continue;
        advise(a, " train_micro_batch_size_per_gpu = %lld;", (long long)B);
        break;
    }
    ps_settings changed = *s;
    changed.checkpointing = true;
    if (!s->checkpointing && s->training)
        PS_TRY(consider(a, &changed, model, user, deadline, " activation_checkpointing.enabled = true;"));
    changed = *s;
    changed.offloads_inputs = true;
    if (s->checkpointing && !s->offloads_inputs && s->training)
        PS_TRY(consider(a, &changed, model, user, deadline, " client.opts.with_activation_offload = true;"));
    changed = *s;
    changed.keep_logits = PS_KEEP_LOGITS_AUTO;
    if (s->keep_logits == PS_KEEP_LOGITS_ALWAYS && s->training)
        PS_TRY(consider(a, &changed, model, user, deadline, " memory.keep_logits = \"auto\";"));
    return add_disk(a, s, program, code, deadline);
}

/* Logits of a small vocabulary are kept in less than computing them again takes as scratch. */
static bool keeping_needs_less(const ps_code *code)
{
    return code->keeping != NULL && code->keeping->non_model_bytes < code->non_model_bytes;
}

/* Write which moment needs most of the device, in chunks as configured, else the smallest, and leave the memory dump of
 * a trial with them. */
static ps_status describe_need(const ps_settings *s, const ps_program *program, const ps_code *code,
                               ps_deadline *deadline, char *text, size_t bytes)
{
    ps_blueprint *b = NULL;
    const int64_t elements = s->chunk_elements > 0 ? s->chunk_elements : ps_blueprint_min_chunk_elements(s, program);
    const ps_variant least = {.update_time = s->always_updates_early ? PS_UPDATE_EARLY : PS_UPDATE_AFTER,
                              .keeps_logits = keeping_needs_less(code)};
    PS_TRY(ps_blueprint_create(s, program, code, &s->budgets, elements, least, deadline, &b));
    const int64_t cache = code->cache_bytes;
    int64_t most = -1, chunks = 0;
    int32_t at = 0;
    for (int32_t m = 0; m < b->trace->n_moments; m++) {
        const int64_t wanted = ps_blueprint_wanted_bytes(b, m, PS_TIER_DEVICE);
        const int64_t all = b->trace->moments[m].non_model_bytes + cache + wanted;
        if (all <= most) continue;
        most = all;
        chunks = wanted;
        at = m;
    }
    const ps_moment *m = &b->trace->moments[at];
    char sizes[4][PS_BYTES_TEXT_MAX], kept[80] = "";
    if (cache > 0)
        snprintf(kept, sizeof kept, "%s keys and values of generation.max_length + ", ps_bytes_format(cache, sizes[0]));
    snprintf(text, bytes,
             "moment %d (%s, %s) needs most: %lld bytes (%s) of device memory at once (%s activations and workspace + "
             "%s%s chunks)",
             at, m->label, ps_phase_name(m->phase), (long long)most, ps_bytes_format(most, sizes[1]),
             ps_bytes_format(m->non_model_bytes, sizes[2]), kept, ps_bytes_format(chunks, sizes[3]));
    ps_forecast f;
    const ps_status st = ps_trial_run(b, &s->budgets, true, deadline, &f);
    ps_blueprint_destroy(b);
    if (st != PS_EBUDGET && st != PS_ENOMEM_DEV) return st;
    /* enough for each moment alone: then what else failed is of interest */
    if (most <= s->budgets.bytes[PS_TIER_DEVICE] && !ps_deadline_timed_out(deadline)) {
        const size_t used = strlen(text);
        snprintf(text + used, bytes - used, "; %s", ps_last_error());
    }
    return PS_OK;
}

/* Write "(device 1 MB, host 0 B, disk 0 B): " and why. */
static ps_status describe(const ps_settings *s, const ps_program *program, const ps_code *code, ps_deadline *deadline,
                          char *text, size_t bytes)
{
    char need[512], total[256] = "", budgets[PS_TIER_COUNT][PS_BYTES_TEXT_MAX];
    if (ps_model_data_min_check(s, program, &s->budgets) != PS_OK)
        snprintf(total, sizeof total, "%s; ", ps_last_error());
    PS_TRY(describe_need(s, program, code, deadline, need, sizeof need));
    for (int t = 0; t < PS_TIER_COUNT; t++) (void)ps_bytes_format(s->budgets.bytes[t], budgets[t]);
    snprintf(text, bytes, "the model does not fit (device %s, host %s, disk %s): %s%s", budgets[0], budgets[1],
             budgets[2], total, need);
    return PS_OK;
}

enum { DESCRIPTION_MAX = 1024 };

ps_status ps_refusal_describe(const ps_settings *s, const ps_program *program, const ps_code *code,
                              ps_deadline *deadline)
{
    char text[DESCRIPTION_MAX];
    PS_TRY(describe(s, program, code, deadline, text, sizeof text));
    return PS_FAIL(PS_EBUDGET, "%s", text);
}

ps_status ps_refusal_explain(const ps_settings *s, ps_model_func model, void *user, const ps_program *program,
                             const ps_code *code)
{
    char text[DESCRIPTION_MAX];
    advice a = {.text = ""};
    ps_deadline deadline = ps_deadline_in(ADVICE_NS);
    PS_TRY(describe(s, program, code, &deadline, text, sizeof text));
    PS_TRY(add_changes(&a, s, model, user, program, code, &deadline));
    const char *found = a.length > 0 ? "Any one of these changes fits:"
                                     : "No change of one setting was found that fits: raise several budgets";
    return PS_FAIL(
        PS_EBUDGET, "%s. %s%s%s", text, found, a.text,
        ps_deadline_timed_out(&deadline) ? " (the search was cut short: there may be others, or smaller ones)" : "");
}
