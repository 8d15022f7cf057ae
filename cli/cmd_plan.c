/* cmd_plan.c - pstar plan: does it fit, how fast will it be, what should be changed. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/mem.h"
#include "base/model_folder.h"
#include "base/status.h"
#include "cli.h"
#include "config/config.h"
#include "data/dataset.h"
#include "known_machine.h"
#include "plan_text.h"
#include "train/config_arguments.h"
#include "train/plan/simulation_json.h"
#include "train/settings/settings.h"

enum {
    CHANGES_MAX = 64,
    KEY_MAX = 128,
    OPTION_MAX_MODEL = 256,
    OPTION_NO_ADVICE,
    OPTION_RANKS,
    OPTION_RANK,
    OPTION_SIZES,
    OPTION_TIMEOUT
};
/* Seconds that the search for a plan and advice may take. */
#define TIMEOUT_S 12
#define HARDWARE_PREFIX "hardware."

typedef struct plan_arguments {
    const char *config_path, *hardware_path, *family, *profile_path;
    char *changes[CHANGES_MAX];
    int n_changes;
    char memory[CONFIG_MEMORY_MAX]; /* --memory, as one of the changes */
    bool json, sizes, no_advice, is_verbose;
    int32_t n_ranks, rank;
    bool has_timeout;  /* timeout_s was given */
    int32_t timeout_s; /* 0: no limit */
} plan_arguments;

typedef struct plan_input {
    ps_config *config;
    ps_hardware hardware_value;
    ps_site site; /* hardware NULL: none was given */
} plan_input;

/* ---- input ---- */

static ps_status read_hardware(const plan_arguments *a, plan_input *in)
{
    const bool names_file =
        a->hardware_path != NULL && strcmp(a->hardware_path, "none") != 0 && strcmp(a->hardware_path, "auto") != 0;
    if (a->hardware_path != NULL && !names_file) PS_TRY(ps_config_set(in->config, "hardware", a->hardware_path));
    if (names_file) {
        PS_TRY(ps_hardware_load(a->hardware_path, &in->hardware_value));
        in->site.hardware = &in->hardware_value;
    } else if (strcmp(ps_config_options(in->config)->hardware, "auto") != 0) {
        PS_TRY(ps_config_hardware(in->config, &in->hardware_value, &in->site.hardware));
    }
    for (int i = 0; i < a->n_changes; i++) {
        char key[KEY_MAX];
        const char *equals = strchr(a->changes[i], '=');
        if (strncmp(a->changes[i], HARDWARE_PREFIX, strlen(HARDWARE_PREFIX)) != 0) continue;
        if (in->site.hardware == NULL) return PS_FAIL(PS_EINVAL, "%s: there is no --hardware to change", a->changes[i]);
        snprintf(key, sizeof key, "%.*s", (int)(equals - a->changes[i] - (int)strlen(HARDWARE_PREFIX)),
                 a->changes[i] + strlen(HARDWARE_PREFIX));
        PS_TRY(ps_hardware_set(&in->hardware_value, key, equals + 1));
    }
    return in->site.hardware != NULL ? ps_hardware_check(in->site.hardware) : PS_OK;
}

static ps_status read_input(const plan_arguments *a, plan_input *in)
{
    char *options[CHANGES_MAX];
    int n = 0;
    *in = (plan_input){.site = {.n_ranks = a->n_ranks, .rank = a->rank}};
    for (int i = 0; i < a->n_changes; i++)
        if (strncmp(a->changes[i], HARDWARE_PREFIX, strlen(HARDWARE_PREFIX)) != 0) options[n++] = a->changes[i];
    PS_TRY(client_load_config(a->config_path, options, n, &in->config));
    PS_TRY(read_hardware(a, in));
    if (a->sizes) return known_machine_name(in->config); /* nothing has rates there */
    return in->site.hardware == NULL ? program_report_machine(in->config, NULL, a->n_ranks) : PS_OK;
}

/* ---- the data ---- */

static void warn_of_file(const char *key, const char *error)
{
    fprintf(stderr, "pstar plan: %s: %s; a plan reads no data, but pstar train would stop there\n", key, error);
}

static void look_for_tokenizer(const char *path)
{
    char *snapshot = NULL, error[PS_MODEL_FOLDER_HINT_BYTES + 256], hint[PS_MODEL_FOLDER_HINT_BYTES];
    if (path[0] == '\0' || access(path, R_OK) == 0) return;
    if (ps_model_folder_find(path, &snapshot) == PS_OK && snapshot == NULL) {
        snprintf(error, sizeof error, "there is no %.200s%s", path, ps_model_folder_hint(path, hint));
        warn_of_file("data.tokenizer", error);
    }
    ps_mem_free(snapshot);
}

/* Files that a run on this machine would not find or take. A plan for a described machine says nothing of them: they may
 * be there. */
static void look_for_data(const ps_config *config)
{
    const ps_options *o = ps_config_options(config);
    const struct {
        const char *key, *path;
    } files[] = {{"data.train", o->data_train}, {"data.validation", o->data_validation}};
    for (size_t i = 0; i < PS_ARRAY_LEN(files); i++)
        if (files[i].path[0] != '\0' && ps_dataset_check_file(files[i].path, o->data_format) != PS_OK)
            warn_of_file(files[i].key, ps_last_error());
    look_for_tokenizer(o->data_tokenizer);
}

/* ---- what is asked ---- */

static void print_json(json_t *root)
{
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(root);
}

static void show_timeout(const plan_arguments *a, const ps_simulation *s)
{
    printf("timed out after %d s (--timeout): %s\n", (int)a->timeout_s,
           s->timed_out ? "pstar train searches on, and may choose a faster plan with other transfers"
                        : "some changes were not tried");
}

/* The exit status. A plan that exceeds the machine counts as not fitting. */
static ps_status answer(const plan_arguments *a, const ps_simulation *s)
{
    if (!s->fits && s->timed_out)
        return PS_FAIL(PS_ECANCELED,
                       "no plan that fits was found in %d s, and not all were tried: give --timeout more seconds, or 0 "
                       "for no limit",
                       (int)a->timeout_s);
    return s->fits && s->machine_refusal[0] == '\0' ? PS_OK : PS_EBUDGET;
}

static ps_status plan_one(const plan_arguments *a, const plan_input *in)
{
    ps_simulation s;
    ps_advice advice[PS_ADVICE_MAX];
    ps_hiding hiding = {.B = 0};
    int n = 0;
    ps_deadline limit = ps_deadline_in(a->timeout_s * (int64_t)1000000000),
                *deadline = a->timeout_s > 0 ? &limit : NULL;
    PS_TRY(ps_simulate(in->config, &in->site, true, deadline, &s));
    const plan_text text = {
        .config = in->config, .hardware = in->site.hardware, .simulation = &s, .is_verbose = a->is_verbose};
    if (!a->json) plan_text_show(&text);
    fflush(stdout);
    if (a->profile_path != NULL && s.fits) {
        if (s.timed_out)
            return PS_FAIL(PS_ECANCELED,
                           "--profile: the search for the plan timed out after %d s (--timeout), and the profile might "
                           "be of a faster plan; give --timeout 0",
                           (int)a->timeout_s);
        PS_TRY(ps_simulate_profile(in->config, &in->site, a->config_path, a->profile_path));
        if (!a->json) printf("profile   %s\n", a->profile_path);
    }
    if (!a->no_advice) PS_TRY(ps_advise(in->config, &in->site, &s, deadline, advice, &n));
    if (!a->no_advice) PS_TRY(ps_find_hiding(in->config, &in->site, &s, deadline, &hiding));
    if (!a->json) {
        if (!a->no_advice) plan_text_show_advice(&text, advice, n, ps_deadline_timed_out(deadline));
        plan_text_show_hiding(&hiding);
        if (ps_deadline_timed_out(deadline) && (s.fits || !s.timed_out)) show_timeout(a, &s);
        plan_text_end(&text);
        return answer(a, &s);
    }
    json_t *root = ps_simulation_json(&s);
    json_object_set_new(root, "machine", plan_text_machine_json(&text));
    json_object_set_new(root, "advice", ps_advice_json(advice, n));
    if (hiding.B > 0) json_object_set_new(root, "hides_disk", ps_hiding_json(&hiding));
    if (!a->no_advice) json_object_set_new(root, "advice_timed_out", json_boolean(ps_deadline_timed_out(deadline)));
    print_json(root);
    return answer(a, &s);
}

/* Of a command that prints no plan, which would have said it. */
static ps_status tell_refusal(ps_status st)
{
    if (st == PS_EBUDGET) fprintf(stderr, "pstar plan: %s\n", ps_last_error());
    return st;
}

static ps_status show_sizes(const plan_arguments *a, const plan_input *in)
{
    ps_simulation s;
    PS_TRY(tell_refusal(ps_simulate_sizes(in->config, &in->site, &s)));
    if (a->json)
        print_json(ps_sizes_json(&s));
    else
        plan_text_show_sizes(&(plan_text){.config = in->config, .hardware = in->site.hardware, .simulation = &s});
    return PS_OK;
}

static ps_status plan_largest(const plan_arguments *a, const plan_input *in)
{
    ps_largest l;
    PS_TRY(tell_refusal(ps_find_largest(in->config, in->site.hardware, a->family, &l)));
    if (a->json)
        print_json(ps_largest_json(&l));
    else
        plan_text_show_largest(&l);
    return PS_OK;
}

static ps_status plan(const plan_arguments *a, plan_input *in)
{
    PS_TRY(read_input(a, in));
    if ((a->n_ranks > 0 || a->rank > 0) && a->family != NULL)
        return PS_FAIL(PS_EINVAL, "--ranks and --rank are for one plan: leave --max-model out");
    if (in->site.hardware == NULL && a->family != NULL)
        return PS_FAIL(PS_EINVAL, "--max-model needs a machine to plan for: --hardware FILE");
    if (a->sizes && (a->family != NULL || a->profile_path != NULL || a->has_timeout))
        return PS_FAIL(PS_EINVAL, "--sizes plans nothing: leave --max-model, --profile and --timeout out");
    if (a->family != NULL && a->has_timeout)
        return PS_FAIL(PS_EINVAL, "--timeout is for one plan, and --max-model makes many without a limit: leave one of "
                                  "them out");
    if (a->family != NULL) return plan_largest(a, in);
    if (a->sizes) return show_sizes(a, in);
    if (in->site.hardware == NULL) look_for_data(in->config);
    return plan_one(a, in);
}

/* ---- arguments ---- */

static bool read_number(const char *text, int32_t least, int32_t *out)
{
    char *end;
    const long n = strtol(text, &end, 10);
    *out = (int32_t)n;
    return end != text && *end == '\0' && n >= least && n <= INT32_MAX;
}

static int32_t parse_number(const char *text, int32_t least, const char *what, struct argp_state *state)
{
    int32_t n;
    if (!read_number(text, least, &n)) argp_error(state, "%s '%s' is not a number from %d on", what, text, (int)least);
    return n;
}

static int32_t parse_seconds(const char *text, struct argp_state *state)
{
    int32_t n;
    if (!read_number(text, 0, &n))
        argp_error(state, "--timeout %s: give whole seconds from 0 to %d", text, (int)INT32_MAX);
    return n;
}

static void add_change(plan_arguments *a, char *change, struct argp_state *state)
{
    if (a->n_changes == CHANGES_MAX) argp_error(state, "more than %d changes", CHANGES_MAX);
    a->changes[a->n_changes++] = change;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    plan_arguments *a = state->input;
    switch (key) {
    case 'w': a->hardware_path = arg; return 0;
    case 'j': a->json = true; return 0;
    case 'p': a->profile_path = arg; return 0;
    case 'v': a->is_verbose = true; return 0;
    case OPTION_NO_ADVICE: a->no_advice = true; return 0;
    case OPTION_RANKS: a->n_ranks = parse_number(arg, 1, "--ranks", state); return 0;
    case OPTION_TIMEOUT:
        a->timeout_s = parse_seconds(arg, state);
        a->has_timeout = true;
        return 0;
    case OPTION_RANK: a->rank = parse_number(arg, 0, "--rank", state); return 0;
    case OPTION_SIZES: a->sizes = true; return 0;
    case OPTION_MAX_MODEL: a->family = arg; return 0;
    case CONFIG_MEMORY_KEY:
        if (a->memory[0] == '\0') add_change(a, a->memory, state);
        config_memory_text(arg, a->memory);
        return 0;
    case ARGP_KEY_ARG:
        if (a->config_path == NULL) {
            a->config_path = arg;
        } else {
            if (strchr(arg, '=') == NULL) argp_error(state, "'%s' is not of the form key=value", arg);
            add_change(a, arg, state);
        }
        return 0;
    case ARGP_KEY_END:
        if (a->config_path == NULL) argp_usage(state);
        if (!a->has_timeout) a->timeout_s = a->no_advice ? 0 : TIMEOUT_S;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_plan(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"hardware", 'w', "MACHINE", 0,
         "Plan for such a machine: laptop, rtx4090-64gb, h100-128gb, h200-128gb, gh200-480gb, gb10-128gb, "
         "a100-40gb-x8, v100-32gb-x8, or a file that describes one (doc/hardware.md)",
         0},
        CONFIG_MEMORY_OPTION,
        {"ranks", OPTION_RANKS, "N", 0,
         "Plan for N ranks of this machine (mpirun -n N); --hardware of GPUs has a rank for each", 0},
        {"rank", OPTION_RANK, "R", 0, "The rank to simulate (0, which owns most)", 0},
        {"json", 'j', NULL, 0, "Print JSON: every figure, sizes in bytes and times in seconds", 0},
        {"verbose", 'v', NULL, 0, "Print tables of memory and time, too, and more changes that help", 0},
        {"profile", 'p', "FILE", 0, "Write a profile of two simulated steps, for pstar report and Perfetto", 0},
        {"no-advice", OPTION_NO_ADVICE, NULL, 0, "Only the plan: do not simulate what could be changed", 0},
        {"max-model", OPTION_MAX_MODEL, "FAMILY", 0, "The largest model that fits: gpt2, llama or bert", 0},
        {"timeout", OPTION_TIMEOUT, "SECONDS", 0,
         "Limit the search for a plan and advice to SECONDS (default 12; 0, and by default with --no-advice: no "
         "limit). What was cut short is reported.",
         0},
        {"sizes", OPTION_SIZES, NULL, 0, "Plan nothing: only what the model takes, in any memory", 0},
        {0}};
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "CONFIG [KEY=VALUE...]",
        .doc =
            "Simulate the steps of a training run, without taking its memory: whether it fits, peak bytes, bytes "
            "moved, time, and what to change. CONFIG is a file, the folder of a model of Hugging Face, or a value of "
            "model.preset (gpt2-xl, llama-3.1-8b, qwen3-0.6b, ...). KEY=VALUE changes the configuration, "
            "hardware.KEY=VALUE the hardware."};
    plan_arguments a = {0};
    plan_input in = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    const ps_status st = plan(&a, &in);
    ps_config_destroy(in.config);
    /* that it does not fit was the answer, and is printed */
    return st == PS_EBUDGET ? EXIT_INPUT : program_report("plan", st);
}
