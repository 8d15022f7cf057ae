/* cmd_eval.c - pstar eval: loss, perplexity and accuracy of trained weights. */
#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_data_loader.h"
#include "cli_device.h"
#include "cli_eval.h"
#include "cli_weights.h"
#include "client.h"
#include "commands.h"
#include "config_arguments.h"
#include "program.h"
#include "ranks.h"
#include "stop.h"

enum { LABELS_SHOWN = 12 }; /* in a message */

typedef struct eval_arguments {
    config_arguments config;
    const char *weights;
    ps_split split;
    int64_t n_steps;
    bool is_json, is_verbose;
} eval_arguments;

typedef struct evaluation {
    ps_comm *comm;
    ps_config *config;
    ps_data_loader *loader;
    ps_engine *engine;
    const char *weights;
    int64_t whole; /* configured length of sequences */
    ps_rows *rows;
    ps_metrics *metrics;
    cli_eval result;
} evaluation;

static const char *const split_names[] = {"train", "validation"};

static ps_status choose_weights(evaluation *e, const eval_arguments *a)
{
    TRY(cli_choose_weights(e->config, a->config.path, a->weights, &e->weights));
    return ps_config_take_labels(e->config, e->weights);
}

static ps_status check_data_loader(const evaluation *e, const eval_arguments *a)
{
    if (ps_data_loader_sample_count(e->loader, a->split) > 0) return PS_OK;
    return client_fail(PS_EINVAL, "there are no validation data; set data.validation or data.validation_split, or give "
                                  "--split train");
}

/* For the case that the data have class names, but neither the weights nor the user give any. */
static void note_labels(const evaluation *e)
{
    const char *name;
    if (client_string(e->config, "data.labels")[0] != '\0' || ps_data_loader_label_name(e->loader, 0) == NULL) return;
    fprintf(stderr,
            "pstar: nothing with the weights in %s names their classes; the names in the data are numbered in byte "
            "order: ",
            e->weights);
    for (int32_t i = 0; (name = ps_data_loader_label_name(e->loader, i)) != NULL; i++) {
        if (i == LABELS_SHOWN) {
            fprintf(stderr, ", ...");
            break;
        }
        fprintf(stderr, "%s%d '%s'", i > 0 ? ", " : "", i, name);
    }
    fprintf(stderr, "; give data.labels where the weights have another\n");
}

static ps_status open_engine(evaluation *e)
{
    const ps_engine_options options = {
        .struct_size = sizeof options, .comm = e->comm, .purpose = PS_FOR_INFERENCE, .is_empty = 1};
    TRY(ps_initialize_engine_with(ps_model_from_config, e->config, e->config, &options, &e->engine));
    if (ps_comm_rank(e->comm) == 0) cli_report_why_no_gpu("eval", e->engine);
    ps_engine_get_shape(e->engine, NULL, &e->whole, NULL, NULL);
    return ps_rows_create(e->loader, client_int(e->config, "train_micro_batch_size_per_gpu"), &e->rows);
}

/* Errors in options for training only must not prevent evaluation: a refused configuration is read again without these
 * options. They are assignments, for which the list of arguments has room. */
static char without_training[][48] = {"train_batch_size=0", "train.eval_interval=0", "memory.update_in_backward=auto"};
enum { N_WITHOUT_TRAINING = sizeof without_training / sizeof without_training[0] };

static void leave_out_training(config_arguments *a)
{
    ps_config *config = NULL;
    if (ps_config_load_assigned(a->path, a->overrides, a->n_overrides, &config) != PS_OK)
        for (int i = 0; i < N_WITHOUT_TRAINING; i++) config_arguments_take(a, without_training[i]);
    ps_config_destroy(config);
}

/* Training data are not needed where validation data are a separate file. */
static ps_status leave_out_training_data(ps_config *config, const eval_arguments *a)
{
    const char *train = client_string(config, "data.train"), *validation = client_string(config, "data.validation");
    if (a->split != PS_SPLIT_VALIDATION || validation[0] == '\0') return PS_OK;
    if (train[0] != '\0' && access(train, R_OK) == 0) return PS_OK;
    return ps_config_set(config, "data.train", validation);
}

static ps_status open_evaluation(evaluation *e, const eval_arguments *a)
{
    TRY(ranks_open(a->config.path, a->config.overrides, a->config.n_overrides, &e->config, &e->comm));
    TRY(ps_comm_agree(e->comm, choose_weights(e, a)));
    TRY(ps_comm_agree(e->comm, leave_out_training_data(e->config, a)));
    TRY(cli_data_loader_open_on_ranks(e->config, e->comm, &e->loader));
    TRY(ps_comm_agree(e->comm, check_data_loader(e, a)));
    if (ps_comm_rank(e->comm) == 0) note_labels(e);
    TRY(ps_comm_agree(e->comm, open_engine(e)));
    TRY(ps_comm_agree(e->comm, ps_metrics_create(e->config, e->loader, a->split, &e->metrics)));
    return cli_load_weights(e->engine, e->config, e->weights);
}

static void close_evaluation(evaluation *e)
{
    ps_metrics_destroy(e->metrics);
    ps_rows_destroy(e->rows);
    ps_engine_destroy(e->engine);
    ps_data_loader_close(e->loader);
    ps_comm_close(e->comm);
    ps_config_destroy(e->config);
}

/* ---- output ---- */

static void print_json_number(const char *key, double value)
{
    if (isfinite(value))
        printf(", \"%s\": %.9g", key, value);
    else
        printf(", \"%s\": null", key); /* JSON has no infinity */
}

/* Results of a part could be mistaken for those of the whole. */
static void show_stopped(const evaluation *e)
{
    if (ps_comm_rank(e->comm) > 0) return;
    fprintf(stderr, "pstar eval: stopped after %lld of %lld samples, without a result\n",
            (long long)e->result.n_samples, (long long)e->result.n_planned);
}

static void show(const evaluation *e, const eval_arguments *a)
{
    const cli_eval *r = &e->result;
    const char *const head = client_string(e->config, "model.head");
    const bool is_language_model = strcmp(head, "causal_lm") == 0 || strcmp(head, "masked_lm") == 0;
    const bool has_choices = ps_data_loader_has_choices(e->loader);
    const char *name;
    double value;
    const double accuracy = (double)r->n_correct / (double)r->n_targets;
    if (a->is_json) {
        printf("{\"split\": \"%s\", \"samples\": %lld, \"targets\": %lld, \"correct\": %lld", split_names[a->split],
               (long long)r->n_samples, (long long)r->n_targets, (long long)r->n_correct);
        print_json_number("loss", r->loss);
        if (is_language_model) print_json_number("perplexity", exp(r->loss));
        if (has_choices) print_json_number("accuracy", accuracy);
        for (int i = 0; (name = ps_metrics_get(e->metrics, i, &value)) != NULL; i++) print_json_number(name, value);
        printf("}\n");
        return;
    }
    printf("%-11s %lld of %lld samples, %lld targets\n", split_names[a->split], (long long)r->n_samples,
           (long long)ps_data_loader_sample_count(e->loader, a->split), (long long)r->n_targets);
    printf("loss        %.6f\n", r->loss);
    if (is_language_model) printf("perplexity  %.4f\n", exp(r->loss));
    if (has_choices) printf("accuracy    %.2f %% (%lld)\n", 100 * accuracy, (long long)r->n_correct);
    for (int i = 0; (name = ps_metrics_get(e->metrics, i, &value)) != NULL; i++) printf("%-11s %.4f\n", name, value);
}

/* ---- arguments ---- */

static error_t parse(int key, char *arg, struct argp_state *state)
{
    eval_arguments *a = state->input;
    char *end;
    switch (key) {
    case 'w': a->weights = arg; return 0;
    case 'j': a->is_json = true; return 0;
    case 'v': a->is_verbose = true; return 0;
    case 's':
        for (a->split = 0; a->split < PS_SPLIT_COUNT; a->split++)
            if (strcmp(arg, split_names[a->split]) == 0) return 0;
        argp_error(state, "--split: '%s' is neither train nor validation", arg);
        return EINVAL;
    case 'n':
        errno = 0;
        a->n_steps = strtoll(arg, &end, 10);
        if (errno != 0 || *end != '\0' || end == arg || a->n_steps < 1)
            argp_error(state, "--steps: '%s' is not a whole number from 1", arg);
        return 0;
    case CONFIG_MEMORY_KEY: config_arguments_take_memory(&a->config, arg); return 0;
    case ARGP_KEY_ARG: config_arguments_take(&a->config, arg); return 0;
    case ARGP_KEY_END:
        if (a->config.path == NULL) argp_error(state, "which configuration? Give the JSON file of the training run");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_eval(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"weights", 'w', "PATH", 0, "A file of weights, checkpoint, run or Hugging Face model (train.output_dir)", 0},
        {"split", 's', "SPLIT", 0, "train or validation (validation)", 0},
        {"steps", 'n', "N", 0, "Stop after N micro-batches (all of the split)", 0},
        {"json", 'j', NULL, 0, "One JSON object instead of text", 0},
        CONFIG_MEMORY_OPTION,
        {"verbose", 'v', NULL, 0, "Print a table of memory use when the model does not fit", 0},
        {0}};
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "CONFIG [key=value ...]",
        .doc =
            "Evaluate a model on the data that CONFIG names: mean loss over one pass, perplexity exp(loss) of language "
            "models, accuracy (share of targets with the largest logit), and for fine-tuned models mean squared error, "
            "F1 or exact match.\v"
            "The result does not depend on the batch size, except for rounding. Ctrl-C and SIGTERM end it without a "
            "result, with exit status 130 and 143."};
    eval_arguments a = {.split = PS_SPLIT_VALIDATION, .n_steps = INT64_MAX};
    if (!config_arguments_init(&a.config, argc + N_WITHOUT_TRAINING)) return EXIT_OTHER;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &a);
    leave_out_training(&a.config);
    evaluation e = {0};
    stop_at_stall("eval");
    ps_status st = open_evaluation(&e, &a);
    if (st == PS_OK && !a.is_json && ps_comm_rank(e.comm) == 0) cli_print_instruct_info(e.config, e.loader);
    if (st == PS_OK) {
        stop_listen(NULL);
        st = cli_evaluate(e.engine, e.comm, e.config, e.loader, a.split, a.n_steps, e.whole, e.rows, e.metrics, true,
                          &e.result);
    }
    const bool is_stopped = st == PS_OK && e.result.is_stopped,
               is_single_rank = is_stopped && ps_comm_size(e.comm) == 1;
    if (is_stopped)
        show_stopped(&e);
    else if (st == PS_OK)
        show(&e, &a);
    const int code = ranks_report(e.comm, "eval", st, a.is_verbose);
    ranks_send_failure(e.comm, st);
    close_evaluation(&e);
    config_arguments_deinit(&a.config);
    return is_stopped ? stop_end(is_single_rank) : code;
}
