#include "train/plan/refusal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "train/plan/model_data_min.h"
#include "train/plan/search.h"
#include "train/plan/variation.h"
#include "train/settings/params.h"

/* The user waits for the refusal: what is not found by then is left out. A large model in small chunks takes seconds a
 * try. */
#define ADVICE_NS (10 * (int64_t)1000000000)
/* So much longer what was found is checked. */
#define CHECK_NS (5 * (int64_t)1000000000)

/* Of a description and its remedies together: the last error holds them, and what a caller adds. */
enum { REFUSAL_MAX = 840, DESCRIPTION_MAX = REFUSAL_MAX - 100 };

/* A budget that fits is no larger than this: it holds all lists of all parameters, in chunks that waste most of their
 * memory, and activations. */
static int64_t most_bytes(const ps_settings *s, const ps_program *program, const ps_code *code)
{
    enum { MOST_WASTE = 8 };
    double elements = (double)s->chunk_elements;
    for (int32_t t = 0; t < program->n_params; t++) elements += (double)program->params[t].elements;
    const double most = MOST_WASTE * elements * ps_lists_of(s, 0, 0).n * sizeof(float) +
                        2 * (double)code->non_model_bytes +
                        code->n_offloaded * (double)ps_round_up(code->offload_bytes, ps_settings_page_bytes(s)) +
                        (double)s->staging_bytes + (double)s->batch_copies_bytes + (double)ps_settings_comm_bytes(s);
    return most < (double)PS_BUDGET_MAX ? (int64_t)most : PS_BUDGET_MAX;
}

/* An option that gives memory, and the budgets that follow from it. */
typedef enum memory_option { GIVES_TIER, GIVES_BOTH } memory_option;

static ps_budgets budgets_of(const ps_settings *s, memory_option what, ps_tier tier, int64_t bytes)
{
    ps_budgets b = s->budgets;
    if (what == GIVES_TIER)
        b.bytes[tier] = bytes;
    else
        ps_settings_split(s, bytes, &b);
    return b;
}

/* The smallest value of a tier's option, or of one that gives both in RAM, with which the model fits. */
static ps_status least_memory(const ps_settings *s, const ps_program *program, const ps_code *code, memory_option what,
                              ps_tier tier, ps_deadline *deadline, int64_t *bytes)
{
    *bytes = 0;
    const int64_t page_bytes = tier == PS_TIER_DISK ? PS_PAGE_BYTES : ps_settings_page_bytes(s);
    const int64_t *const given = s->budgets.bytes;
    ps_budgets others = s->budgets;
    if (what != GIVES_TIER) others.bytes[PS_TIER_DEVICE] = others.bytes[PS_TIER_HOST] = 0;
    const int64_t fewest =
        ps_ceil_div(ps_model_data_min_left_to(ps_model_data_min_bytes(s, program), &others, tier), page_bytes);
    /* does not fit; in pages */
    int64_t low = (what == GIVES_TIER ? given[tier] : given[PS_TIER_DEVICE] + given[PS_TIER_HOST]) / page_bytes;
    int64_t high = ps_max_i64(ps_max_i64(1, low), ps_ceil_div(fewest, 2));
    const int64_t most = ps_min_i64((what == GIVES_TIER ? 1 : 2) * (most_bytes(s, program, code) / page_bytes + 1),
                                    PS_BUDGET_MAX / page_bytes);
    bool yes = false;
    low = ps_max_i64(low, fewest - 1);
    while (!yes && high < most && !ps_deadline_stops(deadline)) {
        high = ps_min_i64(2 * high, most);
        const ps_budgets trial = budgets_of(s, what, tier, high * page_bytes);
        PS_TRY(ps_search_fits(s, program, code, &trial, deadline, &yes, NULL));
        if (!yes) low = ps_max_i64(low, high);
    }
    if (!yes) return PS_OK;
    while (high - low > 1 && !ps_deadline_stops(deadline)) {
        const int64_t middle = low + (high - low) / 2;
        const ps_budgets trial = budgets_of(s, what, tier, middle * page_bytes);
        PS_TRY(ps_search_fits(s, program, code, &trial, deadline, &yes, NULL));
        if (yes)
            high = middle;
        else
            low = middle;
    }
    *bytes = high * page_bytes;
    return PS_OK;
}

ps_status ps_refusal_least_budget(const ps_settings *s, const ps_program *program, const ps_code *code, ps_tier tier,
                                  ps_deadline *deadline, int64_t *bytes)
{
    return least_memory(s, program, code, GIVES_TIER, tier, deadline, bytes);
}

/* What would fit, as it is found. */
typedef struct remedies {
    const ps_settings *s;
    const ps_config *config;
    const ps_options *options;
    bool is_valid; /* the configuration, as ps_config_validate has it; that of a library's caller may not be */
    const ps_program *program;
    const ps_code *code;
    ps_model_func model;
    void *user;
    ps_deadline *deadline, *check_deadline;
    char text[REFUSAL_MAX]; /* "memory.disk=auto (134 MB used), memory.host=113MB" */
    size_t length, room;
    int n;
    bool lacks_device; /* a disk tier alone does not make it fit: an operator needs more of the device */
} remedies;

/* Whole or not at all. */
__attribute__((format(printf, 2, 3))) static void add(remedies *r, const char *fmt, ...)
{
    va_list ap;
    char one[PS_CHANGE_TEXT_MAX + 40];
    va_start(ap, fmt);
    vsnprintf(one, sizeof one, fmt, ap);
    va_end(ap);
    const char *separator = r->length > 0 ? ", " : "";
    if (r->length + strlen(separator) + strlen(one) >= r->room) return;
    r->length += (size_t)snprintf(r->text + r->length, r->room - r->length, "%s%s", separator, one);
    r->n++;
}

/* The settings of a start with a change, for the plan of this rank without the others; *accepted: it is not refused as
 * an option. */
static ps_status change_settings(const remedies *r, const char *change, ps_settings *out, bool *accepted)
{
    ps_variation v;
    *out = *r->s;
    out->ranks.comm = NULL;
    ps_status st = ps_variation_init(&v, r->config, NULL);
    if (st == PS_OK) st = ps_variation_change(&v, change);
    if (st == PS_OK && r->is_valid) st = ps_config_validate(v.config);
    if (st == PS_OK) st = ps_settings_change(out, r->config, v.config);
    ps_variation_deinit(&v);
    *accepted = st == PS_OK;
    return st == PS_EINVAL || st == PS_EIO || st == PS_EBUDGET ? PS_OK : st;
}

static ps_status search_changed(const remedies *r, ps_settings *s, bool *fits, ps_forecast *f)
{
    ps_status st = PS_OK;
    ps_program *program = NULL;
    ps_code *code = NULL;
    const ps_code_options o = ps_settings_code_options(s);
    *fits = false;
    PS_TRY(ps_settings_build_program(s, r->model, r->user, s->B, s->T, &program));
    PS_TRY_GOTO(ps_code_create(program, &o, &code));
    PS_TRY_GOTO(ps_search_fits(s, program, code, &s->budgets, r->check_deadline, fits, f));
    if (!*fits && ps_settings_take_spare_disk(s))
        PS_TRY_GOTO(ps_search_fits(s, program, code, &s->budgets, r->check_deadline, fits, f));
out:
    ps_code_destroy(code);
    ps_program_destroy(program);
    return st;
}

/* Add the change, if a start with it is accepted, a plan fits on all ranks, and the machine has what the plan takes. A
 * GPU's memory is not looked at. */
static ps_status offer(remedies *r, const char *change, bool *fits)
{
    ps_settings changed;
    ps_forecast f;
    char used[PS_BYTES_TEXT_MAX];
    *fits = false;
    if (ps_deadline_stops(r->check_deadline)) return PS_OK;
    PS_TRY(change_settings(r, change, &changed, fits));
    if (*fits) PS_TRY(search_changed(r, &changed, fits, &f));
    if (!*fits) return PS_OK;
    const ps_status st = ps_settings_check_capacity(&changed, f.peak_bytes, changed.throughput.topology.ranks_per_node);
    *fits = st == PS_OK;
    if (st == PS_EBUDGET || st == PS_EIO) return PS_OK;
    PS_TRY(st);
    if (strstr(change, "memory.disk=auto") != NULL)
        add(r, "%s (%s used)", change, ps_bytes_format(f.peak_bytes[PS_TIER_DISK], used));
    else
        add(r, "%s", change);
    return PS_OK;
}

/* "memory.host=113MB" where this fits, else with all digits; and another change with it, or "". */
static ps_status offer_memory(remedies *r, const char *key, int64_t bytes, const char *with)
{
    char text[PS_BYTES_TEXT_MAX], change[PS_CHANGE_TEXT_MAX];
    bool fits;
    snprintf(change, sizeof change, "memory.%s=%s%s", key, ps_bytes_round_up(bytes, text), with);
    PS_TRY(offer(r, change, &fits));
    if (fits) return PS_OK;
    snprintf(change, sizeof change, "memory.%s=%lld%s", key, (long long)bytes, with);
    return offer(r, change, &fits);
}

/* Where one operator needs more of the device, and the rest of the model data a disk. */
static ps_status add_device_and_disk(remedies *r)
{
    ps_settings with = *r->s;
    int64_t bytes;
    const bool is_split = with.memory.split == PS_TIER_DEVICE;
    if (!r->lacks_device || with.memory.limit_kind != PS_LIMIT_TIERS || with.memory.split == PS_TIER_HOST) return PS_OK;
    with.budgets.bytes[PS_TIER_DISK] = INT64_MAX / 4;
    PS_TRY(least_memory(&with, r->program, r->code, is_split ? GIVES_BOTH : GIVES_TIER, PS_TIER_DEVICE, r->deadline,
                        &bytes));
    return bytes > 0 ? offer_memory(r, "device", bytes, " memory.disk=auto") : PS_OK;
}

/* A folder with room for the disk tier of a plan that writes `used` bytes to it with unlimited room. */
static ps_status add_folder(remedies *r, int64_t used)
{
    const ps_settings *s = r->s;
    const int64_t n = s->throughput.topology.ranks_per_node;
    int64_t there, needed;
    char text[PS_BYTES_TEXT_MAX];
    bool fits;
    if (used > PS_BUDGET_MAX / n / 2) return PS_OK;
    /* "auto" takes 80 % of the free space */
    PS_TRY(ps_bytes_parse(ps_bytes_round_up(ps_ceil_div(used * n, 4) * 5, text), &needed));
    if (ps_disk_folders_free_bytes(s->tiers.disk_folders, &there) != PS_OK || there >= needed) return PS_OK;
    ps_budgets with = s->budgets;
    with.bytes[PS_TIER_DISK] = needed / 5 * 4 / n;
    PS_TRY(ps_search_fits(s, r->program, r->code, &with, r->check_deadline, &fits, NULL));
    if (fits) add(r, "memory.disk=auto in a memory.disk_path with %s free", text);
    return PS_OK;
}

static ps_status add_disk(remedies *r)
{
    const ps_settings *s = r->s;
    const bool is_new = s->budgets.bytes[PS_TIER_DISK] == 0;
    ps_settings changed;
    ps_forecast f;
    int64_t bytes;
    bool yes;
    if (ps_deadline_stops(r->deadline)) return PS_OK;
    PS_TRY(change_settings(r, "memory.disk=auto", &changed, &yes));
    if (!yes) return PS_OK; /* refused as an option, whatever the folder's room */
    if (is_new) PS_TRY(offer(r, "memory.disk=auto", &yes));
    if (is_new && yes) return PS_OK;
    ps_budgets with = s->budgets;
    with.bytes[PS_TIER_DISK] = INT64_MAX / 4;
    PS_TRY(ps_search_fits(s, r->program, r->code, &with, r->deadline, &yes, &f));
    r->lacks_device = !yes && is_new && ps_model_data_min_check(s, r->program, &s->budgets) != PS_OK;
    if (!yes) return PS_OK;
    if (is_new || r->options->memory_disk == PS_BYTES_AUTO) return add_folder(r, f.peak_bytes[PS_TIER_DISK]);
    const int n = r->n;
    PS_TRY(ps_refusal_least_budget(s, r->program, r->code, PS_TIER_DISK, r->deadline, &bytes));
    if (bytes > 0) PS_TRY(offer_memory(r, "disk", bytes, ""));
    return r->n > n ? PS_OK : add_folder(r, f.peak_bytes[PS_TIER_DISK]);
}

/* Of device and host the one whose option is given, or memory.total, where that gives the budgets of both. */
static ps_status add_both(remedies *r)
{
    const ps_settings *s = r->s;
    int64_t bytes;
    PS_TRY(least_memory(s, r->program, r->code, GIVES_BOTH, PS_TIER_DEVICE, r->deadline, &bytes));
    if (bytes == 0) return PS_OK;
    if (s->memory.split != PS_TIER_COUNT) return offer_memory(r, ps_tier_name(s->memory.split), bytes, "");
    const ps_budgets b = budgets_of(s, GIVES_BOTH, PS_TIER_DEVICE, bytes);
    return offer_memory(r, "total", ps_settings_total_for(s, b.bytes[PS_TIER_DEVICE], b.bytes[PS_TIER_HOST]), "");
}

/* The host tier beside a GPU, within memory.total. */
static ps_status add_host_of_total(remedies *r, int64_t bytes)
{
    char host[64] = "", text[PS_BYTES_TEXT_MAX];
    PS_TRY(ps_bytes_parse(ps_bytes_round_up(bytes, text), &bytes));
    if (r->options->memory_host != PS_BYTES_AUTO) {
        bool fits;
        snprintf(host, sizeof host, " memory.host=%s", text);
        PS_TRY(offer(r, host + 1, &fits));
        if (fits) return PS_OK;
    }
    return offer_memory(r, "total", ps_settings_total_for(r->s, 0, bytes), host);
}

static ps_status add_ram(remedies *r)
{
    const ps_settings *s = r->s;
    if (!ps_settings_has_gpu(s) && (s->memory.limit_kind != PS_LIMIT_TIERS || s->memory.split != PS_TIER_COUNT))
        return add_both(r);
    for (int tier = PS_RAM_TIER_COUNT - 1; tier >= 0; tier--) {
        int64_t bytes;
        PS_TRY(ps_refusal_least_budget(s, r->program, r->code, (ps_tier)tier, r->deadline, &bytes));
        if (bytes == 0) continue;
        if (tier == PS_TIER_HOST && s->memory.limit_kind == PS_LIMIT_TOTAL)
            PS_TRY(add_host_of_total(r, bytes));
        else
            PS_TRY(offer_memory(r, ps_tier_name((ps_tier)tier), bytes, ""));
    }
    return PS_OK;
}

static ps_status add_all(remedies *r)
{
    const ps_settings *s = r->s;
    bool fits = false;
    PS_TRY(add_disk(r));
    PS_TRY(add_ram(r));
    PS_TRY(add_device_and_disk(r));
    for (int64_t B = s->B / 2; B >= 1 && !fits && !ps_deadline_timed_out(r->deadline); B /= 2) {
        char change[PS_VARIATION_BATCH_MAX];
        PS_TRY(offer(r, ps_variation_batch_text(r->options, B, change), &fits));
    }
    if (!s->training) return PS_OK;
    if (!s->checkpointing) PS_TRY(offer(r, "activation_checkpointing.enabled=true", &fits));
    if (s->checkpointing && !s->offloads_inputs) PS_TRY(offer(r, "client.opts.with_activation_offload=true", &fits));
    if (s->keep_logits == PS_KEEP_LOGITS_ALWAYS) PS_TRY(offer(r, "memory.keep_logits=auto", &fits));
    return PS_OK;
}

/* Logits of a small vocabulary are kept in less than computing them again takes as scratch. */
static bool keeping_needs_less(const ps_code *code)
{
    return code->keeping != NULL && code->keeping->non_model_bytes < code->non_model_bytes;
}

/* Write which operator needs more than the device has, in chunks as configured, else the smallest, or why they cannot
 * follow one another; and leave the memory dump of a trial with them. */
static ps_status describe_need(const ps_settings *s, const ps_program *program, const ps_code *code,
                               ps_deadline *deadline, char *text, size_t bytes)
{
    ps_exec_plan *b = NULL;
    const int64_t elements = s->chunk_elements > 0 ? s->chunk_elements : ps_exec_plan_min_chunk_elements(s, program);
    const ps_candidate least = {.n_early = s->always_updates_early ? PS_EARLY_ALL : 0,
                                .keeps_logits = keeping_needs_less(code)};
    PS_TRY(ps_exec_plan_create(s, program, code, &s->budgets, elements, least, deadline, &b));
    const int64_t scratch = ps_exec_plan_tiers(b, &s->budgets).update_scratch_bytes[PS_TIER_DEVICE];
    const int64_t cache = code->cache_bytes, device = s->budgets.bytes[PS_TIER_DEVICE];
    int64_t most = -1, chunks = 0;
    int32_t at = 0;
    for (int32_t m = 0; m < b->trace->n_moments; m++) {
        const int64_t wanted = ps_exec_plan_wanted_bytes(b, m, PS_TIER_DEVICE);
        const int64_t all = b->trace->moments[m].non_model_bytes + cache + scratch + wanted;
        if (all <= most) continue;
        most = all;
        chunks = wanted;
        at = m;
    }
    const ps_moment *m = &b->trace->moments[at];
    char sizes[5][PS_BYTES_TEXT_MAX], kept[240] = "", budgets[PS_BUDGETS_TEXT_MAX];
    if (cache > 0)
        snprintf(kept, sizeof kept, "%s keys and values of generation.max_length + ", ps_bytes_format(cache, sizes[0]));
    if (scratch > 0)
        snprintf(kept, sizeof kept, "%s scratch for %s of %.120s, a whole matrix + ",
                 ps_bytes_format(scratch, sizes[0]), s->optimizer.optimizer->name, b->update_scratch.matrix);
    snprintf(text, bytes,
             "%s%s needs %s of device memory at once (%s activations and workspace + %s%s chunks), %s more than there "
             "is (%s)",
             m->label, ps_moment_suffix(m), ps_bytes_format(most, sizes[1]),
             ps_bytes_format(m->non_model_bytes, sizes[2]), kept, ps_bytes_format(chunks, sizes[3]),
             ps_bytes_format(most - device, sizes[4]), ps_budgets_format(&s->budgets, budgets));
    ps_forecast f;
    const ps_status st = ps_trial_run(b, &s->budgets, true, deadline, &f);
    ps_exec_plan_destroy(b);
    if (st != PS_EBUDGET && st != PS_ENOMEM_DEV) return st;
    /* enough for each operator alone: then what else failed is of interest */
    if (most <= device)
        snprintf(text, bytes, "%s (%s)",
                 ps_deadline_timed_out(deadline) ? "no execution plan was found in time" : ps_last_error(),
                 ps_budgets_format(&s->budgets, budgets));
    return PS_OK;
}

/* The process itself takes all of memory.total: what it takes, and what comes on top. */
static void describe_total(const ps_settings *s, const ps_program *program, char *text, size_t bytes)
{
    char total[PS_BYTES_TEXT_MAX], process[PS_BYTES_TEXT_MAX], data[PS_BYTES_TEXT_MAX];
    snprintf(text, bytes,
             PS_REFUSAL_VERDICT "memory.total = %s: the process itself takes %s (the program, its libraries, data that "
                                "it holds, buffers), and %s of model data%s and the activations come on top",
             ps_bytes_format(s->memory.total_bytes, total), ps_bytes_format(s->memory.process_bytes, process),
             ps_bytes_format(ps_model_data_min_bytes(s, program), data), s->ranks.n > 1 ? " a rank" : "");
}

/* "Does not fit: " and why. */
static ps_status describe(const ps_settings *s, const ps_program *program, const ps_code *code, ps_deadline *deadline,
                          char *text, size_t bytes)
{
    char total[256] = "", need[DESCRIPTION_MAX - sizeof PS_REFUSAL_VERDICT];
    if (ps_settings_is_total_used_up(s)) {
        describe_total(s, program, text, bytes);
        return PS_OK;
    }
    if (ps_model_data_min_check(s, program, &s->budgets) != PS_OK) snprintf(total, sizeof total, "%s", ps_last_error());
    PS_TRY(describe_need(s, program, code, deadline, need, sizeof need));
    snprintf(text, bytes, PS_REFUSAL_VERDICT "%s", total[0] != '\0' ? total : need);
    return PS_OK;
}

ps_status ps_refusal_describe(const ps_settings *s, const ps_program *program, const ps_code *code,
                              ps_deadline *deadline)
{
    char text[DESCRIPTION_MAX];
    PS_TRY(describe(s, program, code, deadline, text, sizeof text));
    return PS_FAIL(PS_EBUDGET, "%s", text);
}

ps_status ps_refusal_explain(const ps_settings *s, const ps_config *config, ps_model_func model, void *user,
                             const ps_program *program, const ps_code *code)
{
    char text[DESCRIPTION_MAX];
    ps_deadline deadline = ps_deadline_in(ADVICE_NS), check_deadline = ps_deadline_in(ADVICE_NS + CHECK_NS);
    remedies r = {.s = s,
                  .config = config,
                  .options = ps_config_options(config),
                  .is_valid = ps_config_validate(config) == PS_OK,
                  .program = program,
                  .code = code,
                  .model = model,
                  .user = user,
                  .deadline = &deadline,
                  .check_deadline = &check_deadline,
                  .text = ""};
    PS_TRY(describe(s, program, code, &deadline, text, sizeof text));
    r.room = sizeof r.text - strlen(text);
    PS_TRY(add_all(&r));
    const bool timed_out = ps_deadline_timed_out(&deadline) || ps_deadline_timed_out(&check_deadline);
    return PS_FAIL(PS_EBUDGET, "%s. %s%s%s.", text,
                   r.n > 1    ? "One of: "
                   : r.n == 1 ? "Fits with "
                              : "No change was found that makes it fit: raise several budgets",
                   r.text, timed_out ? " (the search took too long, and was ended)" : "");
}
