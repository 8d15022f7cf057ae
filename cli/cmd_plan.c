/* cmd_plan.c - pstar plan: does it fit, how fast will it be, what should be changed. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/bytes.h"
#include "base/status.h"
#include "cli.h"
#include "config/config.h"
#include "known_machine.h"
#include "plan/simulation_json.h"
#include "settings/settings.h"
#include "train/config_arguments.h"
#include "train/disk_room.h"

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
    bool json, sizes, no_advice;
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
    return in->site.hardware == NULL ? program_tell_machine(in->config, NULL, a->n_ranks) : PS_OK;
}

/* ---- text ---- */

static const char *size_text(int64_t bytes, char text[PS_BYTES_TEXT_MAX])
{
    return ps_bytes_format(bytes, text);
}

/* Where no GPU bears a plan out. */
static void show_runs(const ps_hardware *hw, const ps_simulation *s)
{
    if (hw->gpus_per_node == 0) return;
    if (hw->runs[0] == '\0')
        printf("          no GPU of this kind has run this yet: the plan is computed from its data sheet\n");
    else
        printf("          has run: %s%s\n", hw->runs, s->ranks.n > 1 ? "; several GPUs have not yet" : "");
}

static void show_request(const plan_input *in, const ps_simulation *s)
{
    static const char *const update_times[] = {[PS_UPDATE_AFTER] = "",
                                               [PS_UPDATE_DEFERRED] = ", updates deferred",
                                               [PS_UPDATE_EARLY] = ", updates in backward"};
    char bytes[PS_BYTES_TEXT_MAX];
    ps_hardware room;
    const ps_hardware *known = NULL;
    if (ps_config_hardware(in->config, &room, &known) != PS_OK) known = NULL; /* has been read before */
    if (in->site.hardware != NULL)
        printf("hardware  %s: %d rank%s", in->site.hardware->name, s->ranks.n, s->ranks.n == 1 ? "" : "s");
    else if (known != NULL)
        printf("hardware  this machine, rates of %s", known->name);
    else
        printf("hardware  this machine, rates of no particular PC (hardware = auto: its own)");
    if (s->ranks.n > 1) printf("; of %d ranks, rank %d", s->ranks.n, s->ranks.rank);
    printf("\n");
    if (in->site.hardware != NULL) show_runs(in->site.hardware, s);
    if (s->n_params == 0) return; /* the options themselves were refused: no step was looked at */
    printf("model     %" PRId64 " parameters, ", s->n_params);
    if (s->n_trained_params < s->n_params)
        printf("%" PRId64 " of them trained (frozen: %s less), ", s->n_trained_params,
               size_text(s->frozen_saves_bytes, bytes));
    printf("%s of model data, computed in %s\n", size_text(s->model_data_bytes, bytes), ps_dtype_name(s->dtype));
    printf("step      %d x %" PRId64 " sequences of %" PRId64 " tokens%s%s%s\n", s->ranks.n, s->B * s->accumulation,
           s->T,
           s->lists.n_apart > 0 ? ", activation checkpointing, its inputs offloaded"
           : s->checkpointing   ? ", activation checkpointing"
                                : "",
           update_times[s->variant.update_time], s->keeps_logits ? ", logits kept" : "");
    printf("saving    ");
    disk_room_tell(s->checkpoint_bytes, ps_config_options(in->config)->train_keep_last);
}

static void show_tiers(const ps_simulation *s)
{
    char a[PS_BYTES_TEXT_MAX], b[PS_BYTES_TEXT_MAX];
    printf("\n%-8s %10s %10s  at the peak:", s->ranks.n > 1 ? "a rank" : "tier", "peak", "budget");
    for (ps_list l = 0; l < ps_lists_n_all(&s->lists); l++)
        if (ps_lists_exists(&s->lists, l)) printf(" %9s", s->lists.list[l].name);
    printf(" %11s %9s\n", "activations", "staging");
    for (int t = 0; t < PS_TIER_COUNT; t++) {
        if (s->budgets.bytes[t] == 0) continue;
        printf("%-8s %10s %10s", ps_tier_name((ps_tier)t), size_text(s->forecast.peak_bytes[t], a),
               size_text(s->budgets.bytes[t], b));
        const ps_tier_use *u = &s->forecast.peak[t];
        if (t < PS_RAM_TIER_COUNT) {
            printf("              ");
            for (ps_list l = 0; l < ps_lists_n_all(&s->lists); l++)
                if (ps_lists_exists(&s->lists, l)) printf(" %9s", size_text(u->list_bytes[l], a));
            printf(" %11s", size_text(u->non_model_bytes, a));
            printf(" %9s", size_text(u->other_bytes, a));
        }
        printf("\n");
    }
}

static void show_links(const ps_simulation *s)
{
    char bytes[PS_BYTES_TEXT_MAX];
    const ps_step_time *t = &s->forecast.step;
    printf("\n%-14s %10s %10s %10s\n", "a step", "moved", "busy s", "waiting s");
    printf("%-14s %10s %10.4f %10s\n", "compute", "", (double)t->compute_ns * 1e-9, "");
    if (t->lost_ns > 0) printf("%-14s %10s %10.4f %10s\n", "  lost to it", "", (double)t->lost_ns * 1e-9, "");
    if (t->host_ns > 0)
        printf("%-14s %10s %10.4f %10.4f\n", "host updates", "", (double)t->host_ns * 1e-9,
               (double)t->host_wait_ns * 1e-9);
    if (t->idle_ns > 0) printf("%-14s %10s %10s %10.4f\n", "host", "", "", (double)t->idle_ns * 1e-9);
    for (int l = 0; l < PS_LINK_COUNT; l++) {
        if (s->forecast.moved_bytes[l] == 0) continue;
        printf("%-14s %10s %10.4f %10.4f\n", ps_link_name((ps_link)l), size_text(s->forecast.moved_bytes[l], bytes),
               (double)t->busy_ns[l] * 1e-9, (double)t->wait_ns[l] * 1e-9);
    }
    if (!s->forecast.goes_round)
        printf("%lld steps do not go round: bytes are those of the last one, seconds those of %lld; later ones may "
               "differ\n",
               (long long)s->forecast.steps, (long long)s->forecast.cycle);
}

static void show_speed(const ps_simulation *s)
{
    const char *critical = ps_step_time_critical(&s->forecast.step);
    const bool computes = strcmp(critical, "compute") == 0;
    printf("\ntime      %.4f s a step, %s%s: %.0f tokens/s\n", ps_simulation_step_s(s),
           computes ? "computing" : "waiting most for ", computes ? "" : critical, ps_simulation_tokens_per_s(s));
    printf("          %.3f TFLOP/s a rank (6 N tokens / time), %.3f counting recomputation (8 N)\n",
           ps_simulation_flops_per_s(s, 6) * 1e-12, ps_simulation_flops_per_s(s, 8) * 1e-12);
}

static void show_bound(const ps_simulation *s)
{
    char text[PS_BOUND_TEXT_MAX];
    const ps_bound *b = &s->bound;
    printf("bound     %s\n", ps_bound_text(b, text));
    printf("          the plan takes %.2f x that long", (double)s->forecast.step.all_ns / (double)ps_bound_ns(b));
    ps_bound_between(b, &s->forecast.step, text);
    printf("%s%s\n", text[0] != '\0' ? ": " : "", text);
}

static void show_plan(const plan_input *in, const ps_simulation *s)
{
    show_request(in, s);
    if (!s->fits) {
        const bool says_so = strncmp(s->refusal, "the model does not fit", 22) == 0;
        if (!s->timed_out) printf("\n%s%s\n", says_so ? "" : "it does not fit: ", s->refusal);
        return;
    }
    const int32_t on_device = s->n_local_updates - s->n_host_updates, passing = on_device - s->n_resident_updates;
    printf("chunks    %d of %" PRId64 " elements, %.2f %% waste; of %d updates a rank %d in device memory", s->n_chunks,
           s->chunk_elements, 100 * s->chunk_waste, s->n_local_updates, on_device);
    if (passing > 0) printf(" (%d pass through it)", passing);
    printf(", %d on the host\n", s->n_host_updates);
    show_tiers(s);
    if (s->machine_refusal[0] != '\0')
        printf("machine   a run %s is refused: %s\n", in->site.hardware != NULL ? "there" : "here", s->machine_refusal);
    show_links(s);
    show_speed(s);
    show_bound(s);
}

static void show_advice(const ps_simulation *s, const ps_advice *advice, int n, bool timed_out)
{
    enum { SHOWN = 5 };
    if (n == 0) {
        if (!timed_out)
            printf("\n%s\n", s->fits ? "no single change that was tried makes it faster by 2 %"
                                     : "no single change was found that makes it fit");
        return;
    }
    printf("\n%s (each simulated)\n", s->fits ? "what makes it faster" : "what fits");
    for (int i = 0; i < n && i < SHOWN; i++) {
        printf("  %-70s %9.0f tokens/s", advice[i].change, advice[i].tokens_per_s);
        if (advice[i].gain > 0) printf("  x %.2f", advice[i].gain);
        printf("\n");
        if (advice[i].price != NULL) printf("      but %s\n", advice[i].price);
    }
}

static void show_hiding(const ps_hiding *h)
{
    if (h->B == 0) return;
    if (h->fits)
        printf("\nwith train_micro_batch_size_per_gpu=%" PRId64 " the disk would be hidden: %.0f tokens/s\n", h->B,
               h->tokens_per_s);
    else
        printf("\nwith train_micro_batch_size_per_gpu=%" PRId64
               " or so the disk would be hidden, but memory holds no more than about %" PRId64 ": %.0f tokens/s\n",
               h->B, h->largest_B, h->tokens_per_s);
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
    printf("\ntimed out after %d s (--timeout): %s\n", (int)a->timeout_s,
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
    PS_TRY(ps_simulate(in->config, &in->site, !a->no_advice, deadline, &s));
    if (!a->json) show_plan(in, &s);
    fflush(stdout);
    if (a->profile_path != NULL && s.fits) {
        if (s.timed_out)
            return PS_FAIL(PS_ECANCELED,
                           "--profile: the search for the plan timed out after %d s (--timeout), and the profile might "
                           "be of a faster plan; give --timeout 0",
                           (int)a->timeout_s);
        PS_TRY(ps_simulate_profile(in->config, &in->site, a->config_path, a->profile_path));
        if (!a->json) printf("\nprofile   %s\n", a->profile_path);
    }
    if (!a->no_advice) PS_TRY(ps_advise(in->config, &in->site, &s, deadline, advice, &n));
    if (!a->no_advice) PS_TRY(ps_find_hiding(in->config, &in->site, &s, deadline, &hiding));
    if (!a->json) {
        if (!a->no_advice) show_advice(&s, advice, n, ps_deadline_timed_out(deadline));
        show_hiding(&hiding);
        if (ps_deadline_timed_out(deadline) && (s.fits || !s.timed_out)) show_timeout(a, &s);
        return answer(a, &s);
    }
    json_t *root = ps_simulation_json(&s);
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
    char bytes[PS_BYTES_TEXT_MAX];
    PS_TRY(tell_refusal(ps_simulate_sizes(in->config, &in->site, &s)));
    if (a->json) {
        print_json(ps_sizes_json(&s));
        return PS_OK;
    }
    show_request(in, &s);
    printf("others    %s of activations and workspace at most\n", size_text(s.non_model_bytes, bytes));
    return PS_OK;
}

static ps_status plan_largest(const plan_arguments *a, const plan_input *in)
{
    ps_largest l;
    PS_TRY(tell_refusal(ps_find_largest(in->config, in->site.hardware, a->family, &l)));
    if (a->json)
        print_json(ps_largest_json(&l));
    else if (l.n_params == 0)
        printf("none fits\n");
    else
        printf("%.2f billion parameters (%" PRId64 " wide, %" PRId64 " layers), %.2f s a step, %.0f tokens/s\n",
               (double)l.n_params * 1e-9, l.hidden_size, l.n_layers, ps_simulation_step_s(&l.simulation),
               ps_simulation_tokens_per_s(&l.simulation));
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
    return a->sizes ? show_sizes(a, in) : plan_one(a, in);
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
         "Plan for such a machine: laptop, rtx4090-64gb, h100-128gb, h200-128gb, a100-40gb-x8, v100-32gb-x8, or a file "
         "that describes one (doc/hardware.md)",
         0},
        CONFIG_MEMORY_OPTION,
        {"ranks", OPTION_RANKS, "N", 0,
         "Plan for N ranks of this machine (mpirun -n N); --hardware of GPUs has a rank for each", 0},
        {"rank", OPTION_RANK, "R", 0, "The rank to simulate (0, which owns most)", 0},
        {"json", 'j', NULL, 0, "Print JSON", 0},
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
