/* cmd_generate.c - pstar generate: sample a continuation. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/status.h"
#include "cli.h"
#include "config/config.h"
#include "data/tokenizer.h"

typedef struct generate_arguments {
    const char *config, *prompt, *weights;
    long n_tokens, top_k;
    double temperature;
    unsigned long long seed;
    char **overrides;
    int n_overrides;
} generate_arguments;

typedef struct generator {
    ps_config *config;
    ps_tokenizer *tokenizer;
    ps_engine *engine;
    int64_t T, V;
    int32_t *context; /* [T] */
    int32_t *text;    /* [n_text], with room for n_tokens more */
    int64_t n_text;
    float *logits;  /* [V] */
    int32_t *order; /* [V] scratch of the sampler */
} generator;

/* ---- sampling ---- */

static int32_t best_token(const float *logits, int64_t V)
{
    int32_t best = 0;
    for (int32_t v = 1; v < V; v++)
        if (logits[v] > logits[best]) best = v;
    return best;
}

static const float *compared_logits; /* qsort has no context; the program is single-threaded here */

static int by_logit(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (compared_logits[x] != compared_logits[y]) return compared_logits[x] > compared_logits[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

/* One token from softmax(logits / temperature), of the top_k likeliest (0: all). */
static int32_t sample(generator *g, const generate_arguments *a, int64_t index)
{
    if (a->temperature <= 0) return best_token(g->logits, g->V);
    for (int32_t v = 0; v < g->V; v++) g->order[v] = v;
    compared_logits = g->logits;
    qsort(g->order, (size_t)g->V, sizeof *g->order, by_logit);
    const int64_t n = a->top_k > 0 ? ps_min_i64(a->top_k, g->V) : g->V;
    const double top = (double)g->logits[g->order[0]];
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += exp(((double)g->logits[g->order[i]] - top) / a->temperature);
    double left = (double)ps_rng_unit(ps_rng_u32((ps_rng_key){.seed = a->seed}, (uint64_t)index)) * sum;
    for (int64_t i = 0; i < n; i++) {
        left -= exp(((double)g->logits[g->order[i]] - top) / a->temperature);
        if (left < 0) return g->order[i];
    }
    return g->order[n - 1];
}

/* ---- text ---- */

/* Logits after the last T tokens of the text; what follows in the context is padding that causal attention never sees. */
static ps_status next_logits(generator *g)
{
    const int64_t n = ps_min_i64(g->n_text, g->T);
    memset(g->context, 0, (size_t)g->T * sizeof *g->context);
    memcpy(g->context, g->text + (g->n_text - n), (size_t)n * sizeof *g->context);
    return ps_logits(g->engine, g->context, n - 1, g->logits);
}

/* Print token by token; bytes of an unfinished UTF-8 sequence simply follow each other. */
static ps_status print_tokens(const generator *g, const int32_t *ids, int64_t n)
{
    char *text = NULL;
    int64_t n_bytes = 0;
    PS_TRY(ps_tokenizer_decode(g->tokenizer, ids, n, &text, &n_bytes));
    fwrite(text, 1, (size_t)n_bytes, stdout);
    fflush(stdout);
    ps_mem_free(text);
    return PS_OK;
}

static ps_status generate(generator *g, const generate_arguments *a)
{
    const int32_t eot = ps_tokenizer_eot(g->tokenizer);
    PS_TRY(print_tokens(g, g->text, g->n_text));
    for (long i = 0; i < a->n_tokens; i++) {
        PS_TRY(next_logits(g));
        const int32_t token = sample(g, a, i);
        if (token == eot) break;
        g->text[g->n_text++] = token;
        PS_TRY(print_tokens(g, &token, 1));
    }
    putchar('\n');
    return PS_OK;
}

static ps_status open_generator(generator *g, const generate_arguments *a)
{
    PS_TRY(cli_load_config(a->config, a->overrides, a->n_overrides, &g->config));
    /* one sequence at a time; 0 lets a batch size given for training follow */
    PS_TRY(ps_config_set(g->config, "train_batch_size", "0"));
    PS_TRY(ps_config_set(g->config, "train_micro_batch_size_per_gpu", "1"));
    PS_TRY(ps_config_set(g->config, "gradient_accumulation_steps", "1"));
    const ps_options *o = ps_config_options(g->config);
    if (o->data_tokenizer[0] == '\0')
        return PS_FAIL(PS_EINVAL,
                       "data.tokenizer is not set: name the folder with tokenizer.json, or vocab.json and merges.txt");
    PS_TRY(ps_tokenizer_open(o->data_tokenizer, &g->tokenizer));
    int32_t *prompt = NULL;
    PS_TRY(ps_tokenizer_encode(g->tokenizer, a->prompt, (int64_t)strlen(a->prompt), &prompt, &g->n_text));
    ps_status st = PS_OK;
    if (g->n_text == 0) st = PS_FAIL(PS_EINVAL, "--prompt is empty");
    if (st == PS_OK) st = ps_mem_alloc((size_t)(g->n_text + a->n_tokens), sizeof *g->text, &g->text);
    if (st == PS_OK) memcpy(g->text, prompt, (size_t)g->n_text * sizeof *prompt);
    ps_mem_free(prompt);
    PS_TRY(st);
    PS_TRY(ps_initialize_inference_engine(ps_model_from_config, g->config, 0, g->config, &g->engine));
    ps_engine_get_shape(g->engine, NULL, &g->T, NULL, &g->V);
    PS_TRY(ps_mem_alloc((size_t)g->T, sizeof *g->context, &g->context));
    PS_TRY(ps_mem_alloc((size_t)g->V, sizeof *g->logits, &g->logits));
    PS_TRY(ps_mem_alloc((size_t)g->V, sizeof *g->order, &g->order));
    char path[4096];
    snprintf(path, sizeof path, "%s/model.safetensors", o->train_output_dir);
    return ps_engine_load_weights(g->engine, a->weights != NULL ? a->weights : path);
}

static void close_generator(generator *g)
{
    ps_engine_destroy(g->engine);
    ps_tokenizer_close(g->tokenizer);
    ps_mem_free(g->context);
    ps_mem_free(g->text);
    ps_mem_free(g->logits);
    ps_mem_free(g->order);
    ps_config_destroy(g->config);
}

/* ---- arguments ---- */

static long whole_number(struct argp_state *state, const char *option, const char *arg, long least)
{
    char *end;
    errno = 0;
    const long n = strtol(arg, &end, 10);
    if (errno != 0 || *end != '\0' || end == arg || n < least || n > 1 << 24)
        argp_error(state, "--%s: '%s' is not a whole number from %ld to %d", option, arg, least, 1 << 24);
    return n;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    generate_arguments *a = state->input;
    char *end;
    switch (key) {
    case 'p': a->prompt = arg; return 0;
    case 'w': a->weights = arg; return 0;
    case 'n': a->n_tokens = whole_number(state, "tokens", arg, 1); return 0;
    case 'k': a->top_k = whole_number(state, "top-k", arg, 0); return 0;
    case 's': a->seed = (unsigned long long)whole_number(state, "seed", arg, 0); return 0;
    case 't':
        a->temperature = strtod(arg, &end);
        if (*end != '\0' || end == arg || !(a->temperature >= 0))
            argp_error(state, "--temperature: '%s' is not a number from 0", arg);
        return 0;
    case ARGP_KEY_ARG:
        if (a->config == NULL)
            a->config = arg;
        else
            a->overrides[a->n_overrides++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (a->config == NULL) argp_error(state, "which configuration? Give the JSON file of the training run");
        if (a->prompt == NULL) argp_error(state, "--prompt is needed");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_generate(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"prompt", 'p', "TEXT", 0, "Text to continue", 0},
        {"tokens", 'n', "N", 0, "Tokens to add (100)", 0},
        {"temperature", 't', "X", 0, "Higher is bolder; 0 always takes the likeliest token (0.8)", 0},
        {"top-k", 'k', "K", 0, "Choose among the K likeliest tokens; 0 is all (40)", 0},
        {"seed", 's', "N", 0, "The same seed gives the same text (0)", 0},
        {"weights", 'w', "FILE", 0, "Weights (train.output_dir/model.safetensors)", 0},
        {0}};
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "CONFIG --prompt TEXT [key=value ...]",
                                     .doc = "Continue a text with the model that CONFIG describes."};
    generate_arguments a = {.n_tokens = 100, .top_k = 40, .temperature = 0.8};
    a.overrides = calloc((size_t)argc, sizeof *a.overrides);
    if (a.overrides == NULL) return EXIT_OTHER;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &a);
    generator g = {0};
    ps_status st = open_generator(&g, &a);
    if (st == PS_OK) st = generate(&g, &a);
    const int code = cli_report("generate", st);
    close_generator(&g);
    free(a.overrides);
    return code;
}
