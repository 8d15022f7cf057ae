/* cmd_generate.c - pstar generate: samples a continuation of a prompt. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_device.h"
#include "cli_weights.h"
#include "client.h"
#include "commands.h"
#include "config_arguments.h"
#include "program.h"
#include "stop.h"
#include "text_stream.h"

typedef struct generate_arguments {
    config_arguments config;
    const char *prompt, *weights;
    bool chat, truncates_prompt;
    long n_tokens, top_k;
    double temperature;
    unsigned long long seed;
} generate_arguments;

typedef struct generator {
    ps_config *config;
    ps_tokenizer *tokenizer;
    ps_engine *engine;
    bool keeps;       /* uses a KV cache, which has text[first_kept, first_kept + kept) */
    int64_t T, V;     /* T: maximum context of the model */
    int32_t *context; /* [T] */
    int32_t *text;    /* [n_text], with room for n_tokens more */
    int64_t n_text, first_kept, n_kept;
    int64_t first_shown; /* a continuation is printed with its prompt, an answer without */
    int32_t end;         /* token that ends an answer; -1: no conversation */
    float *logits;       /* [V] */
    int64_t n_tokens;    /* of the model's tokens, those that the tokenizer has */
    ps_sample_options sample;
    text_stream stream;
    bool is_stopped; /* by a signal */
} generator;

/* ---- the prompt ---- */

/* Standard input up to its end, without a final newline. */
static ps_status read_input(char **text, int64_t *n_bytes)
{
    enum { PIECE = 1 << 14, MOST = 1 << 28 };
    ps_status st = PS_OK;
    size_t n = 0, n_read;
    *text = NULL;
    do {
        TRY_GOTO(client_reserve(text, (int64_t)(n + PIECE), 1));
        n_read = fread(*text + n, 1, PIECE, stdin);
        n += n_read;
    } while (n_read > 0 && n <= MOST);
    if (ferror(stdin))
        st = client_fail(PS_EIO, "--prompt -: cannot read standard input: %s", strerror(errno));
    else if (n > MOST)
        st = client_fail(PS_EINVAL, "--prompt -: standard input has more than %d MiB", MOST >> 20);
    if (n > 0 && (*text)[n - 1] == '\n') n--;
    *n_bytes = (int64_t)n;
out:
    if (st != PS_OK) {
        free(*text);
        *text = NULL;
    }
    return st;
}

/* A tokenizer may have tokens that the model lacks; a prompt may not use them. */
static ps_status check_ids(const generator *g, const int32_t *ids, int64_t n)
{
    const int64_t n_model = client_int(g->config, "model.vocab_size");
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= n_model)
            return client_fail(PS_EINVAL,
                               "token %lld of the prompt is %d: the tokenizer %s has %d tokens, but model.vocab_size = "
                               "%lld; name the tokenizer that the model was trained with",
                               (long long)i, ids[i], ps_config_get_tokenizer_path(g->config),
                               ps_tokenizer_vocab_size(g->tokenizer), (long long)n_model);
    return PS_OK;
}

static ps_status encode_prompt(generator *g, const generate_arguments *a, const char *prompt, int64_t n_bytes)
{
    int32_t *ids = NULL;
    int64_t n = 0;
    if (n_bytes == 0) return client_fail(PS_EINVAL, "--prompt is empty");
    g->end = -1;
    ps_status st = a->chat ? ps_tokenizer_encode_chat(g->tokenizer, g->config, prompt, n_bytes, &ids, &n, &g->end)
                           : ps_tokenizer_encode_prompt(g->tokenizer, prompt, n_bytes, &ids, &n);
    if (st == PS_OK && n == 0) st = client_fail(PS_EINVAL, "--prompt is empty");
    if (st == PS_OK) st = check_ids(g, ids, n);
    if (st == PS_OK) st = client_alloc(n + a->n_tokens, sizeof *g->text, &g->text);
    if (st == PS_OK) memcpy(g->text, ids, (size_t)n * sizeof *ids);
    g->n_text = n;
    g->first_shown = a->chat ? n : 0;
    ps_free(ids);
    return st;
}

/* Maximum context of the model. */
static int64_t most_tokens(const generator *g)
{
    const int64_t given = g->keeps ? client_int(g->config, "generation.max_length") : 0;
    return given > 0 ? given : ps_config_get_sequence_length(g->config);
}

static ps_status check_length(const generator *g, const generate_arguments *a)
{
    const int64_t most = most_tokens(g), positions = client_int(g->config, "model.max_position_embeddings");
    const char *key = g->keeps ? "generation.max_length" : "data.sequence_length";
    char longer[128] = "";
    if (g->n_text <= most || a->truncates_prompt) return PS_OK;
    if (most < positions) snprintf(longer, sizeof longer, "set %s, up to %lld, ", key, (long long)positions);
    return client_fail(
        PS_EINVAL,
        "the prompt has %lld tokens, but the model accepts %lld (%s): shorten the prompt, %sor keep only "
        "its last %lld tokens with --truncate-prompt",
        (long long)g->n_text, (long long)most, most < positions ? key : "model.max_position_embeddings", longer,
        (long long)most);
}

static ps_status open_prompt(generator *g, const generate_arguments *a, const char *tokenizer)
{
    if (tokenizer[0] == '\0')
        return client_fail(PS_EINVAL, "data.tokenizer is not set: name the folder of the tokenizer's files");
    TRY(ps_tokenizer_open(tokenizer, &g->tokenizer));
    if (strcmp(a->prompt, "-") != 0) return encode_prompt(g, a, a->prompt, (int64_t)strlen(a->prompt));
    char *text;
    int64_t n_bytes;
    TRY(read_input(&text, &n_bytes));
    const ps_status st = encode_prompt(g, a, text, n_bytes);
    free(text);
    return st;
}

/* ---- text ---- */

/* Logits after the text. When the KV cache is full, the engine continues from the last half of its capacity. */
static ps_status next_logits_kept(generator *g)
{
    if (g->n_text - g->first_kept > g->T) {
        g->first_kept = g->n_text - (g->n_kept == 0 ? g->T : max_i64(g->T / 2, 1));
        g->n_kept = 0;
        TRY(ps_decode_rewind(g->engine, 0));
    }
    const int64_t known = g->first_kept + g->n_kept;
    TRY(ps_decode(g->engine, g->text + known, g->n_text - known, g->logits));
    g->n_kept = g->n_text - g->first_kept;
    return PS_OK;
}

/* Logits after the last T tokens of the text; the rest of the context is padding, which causal attention masks. */
static ps_status next_logits(generator *g)
{
    if (g->keeps) return next_logits_kept(g);
    const int64_t n = min_i64(g->n_text, g->T);
    memset(g->context, 0, (size_t)g->T * sizeof *g->context);
    memcpy(g->context, g->text + (g->n_text - n), (size_t)n * sizeof *g->context);
    return ps_infer(g->engine, &(ps_batch){.struct_size = sizeof(ps_batch), .tokens = g->context}, n - 1, g->logits);
}

static ps_status generate(generator *g, const generate_arguments *a)
{
    g->stream = (text_stream){.tokenizer = g->tokenizer, .out = stdout};
    for (long i = 0; i < a->n_tokens; i++) {
        TRY(text_stream_show(&g->stream, g->text + g->first_shown, g->n_text - g->first_shown, false));
        TRY(stop_is_asked(NULL, &g->is_stopped));
        if (g->is_stopped) break;
        TRY(next_logits(g));
        int32_t token;
        TRY(ps_sample_token(g->logits, g->n_tokens, &g->sample, i, &token));
        if (ps_tokenizer_is_end(g->tokenizer, token) || token == g->end) break;
        g->text[g->n_text++] = token;
    }
    TRY(text_stream_show(&g->stream, g->text + g->first_shown, g->n_text - g->first_shown, true));
    putchar('\n');
    return PS_OK;
}

/* Size of the KV cache for the whole text, if it is enabled. */
static ps_status open_engine(generator *g, const generate_arguments *a)
{
    ps_engine_options options = {.struct_size = sizeof options, .purpose = PS_FOR_INFERENCE, .is_empty = 1};
    if (g->keeps) {
        char length[32];
        snprintf(length, sizeof length, "%lld", (long long)min_i64(most_tokens(g), g->n_text + a->n_tokens));
        TRY(ps_config_set(g->config, "generation.max_length", length));
        options.purpose = PS_FOR_GENERATION;
    }
    TRY(ps_initialize_engine_with(ps_model_from_config, g->config, g->config, &options, &g->engine));
    if (g->keeps)
        ps_decode_get_length(g->engine, NULL, &g->T);
    else
        ps_engine_get_shape(g->engine, NULL, &g->T, NULL, NULL);
    ps_engine_get_shape(g->engine, NULL, NULL, NULL, &g->V);
    cli_report_why_no_gpu("generate", g->engine);
    return PS_OK;
}

static ps_status open_generator(generator *g, const generate_arguments *a)
{
    TRY(client_load_config(a->config.path, a->config.overrides, a->config.n_overrides, &g->config));
    /* one sequence at a time; 0 lets a batch size given for training follow */
    TRY(ps_config_set(g->config, "train_batch_size", "0"));
    TRY(ps_config_set(g->config, "train_micro_batch_size_per_gpu", "1"));
    TRY(ps_config_set(g->config, "gradient_accumulation_steps", "1"));
    TRY(program_report_machine(g->config, NULL, 0));
    const char *head = client_string(g->config, "model.head");
    if (strcmp(head, "causal_lm") != 0) return client_fail(PS_EINVAL, "model.head = %s does not continue texts", head);
    const char *weights;
    TRY(cli_choose_weights(g->config, a->config.path, a->weights, &weights));
    if (a->chat) TRY(ps_config_take_chat_format(g->config, weights));
    g->keeps = client_int(g->config, "generation.use_cache") != 0;
    TRY(open_prompt(g, a, ps_config_get_tokenizer_path(g->config)));
    TRY(check_length(g, a));
    TRY(open_engine(g, a));
    TRY(client_alloc(g->T, sizeof *g->context, &g->context));
    TRY(client_alloc(g->V, sizeof *g->logits, &g->logits));
    /* of a table with more rows than the tokenizer has tokens, the rows of tokens */
    g->n_tokens = min_i64(g->V, ps_tokenizer_vocab_size(g->tokenizer));
    g->sample = (ps_sample_options){
        .struct_size = sizeof g->sample, .temperature = a->temperature, .top_k = a->top_k, .seed = a->seed};
    return cli_load_weights(g->engine, g->config, weights);
}

static void close_generator(generator *g)
{
    ps_engine_destroy(g->engine);
    ps_tokenizer_close(g->tokenizer);
    free(g->context);
    free(g->text);
    free(g->logits);
    ps_config_destroy(g->config);
}

/* ---- arguments ---- */

enum { OPTION_TRUNCATE_PROMPT = 1000 };

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
    case 'c': a->chat = true; return 0;
    case OPTION_TRUNCATE_PROMPT: a->truncates_prompt = true; return 0;
    case 'w': a->weights = arg; return 0;
    case 'n': a->n_tokens = whole_number(state, "tokens", arg, 1); return 0;
    case 'k': a->top_k = whole_number(state, "top-k", arg, 0); return 0;
    case 's': a->seed = (unsigned long long)whole_number(state, "seed", arg, 0); return 0;
    case 't':
        a->temperature = strtod(arg, &end);
        if (*end != '\0' || end == arg || !(a->temperature >= 0))
            argp_error(state, "--temperature: '%s' is not a number from 0", arg);
        return 0;
    case CONFIG_MEMORY_KEY: config_arguments_take_memory(&a->config, arg); return 0;
    case ARGP_KEY_ARG: config_arguments_take(&a->config, arg); return 0;
    case ARGP_KEY_END:
        if (a->config.path == NULL) argp_error(state, "which configuration? Give the JSON file of the training run");
        if (a->prompt == NULL) argp_error(state, "--prompt is needed");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_generate(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"prompt", 'p', "TEXT", 0, "Text to continue; - reads it from standard input", 0},
        {"chat", 'c', NULL, 0,
         "Encode the prompt as a user message in the format of data.chat_format, and print the answer", 0},
        {"truncate-prompt", OPTION_TRUNCATE_PROMPT, NULL, 0,
         "Cut a prompt that is longer than the model accepts to its last tokens; the default is an error", 0},
        {"tokens", 'n', "N", 0, "Tokens to add (100)", 0},
        {"temperature", 't', "X", 0, "Sampling temperature; 0 always selects the most likely token (0.8)", 0},
        {"top-k", 'k', "K", 0, "Sample from the K most likely tokens; 0 is all (40)", 0},
        {"seed", 's', "N", 0, "The same seed gives the same text (0)", 0},
        CONFIG_MEMORY_OPTION,
        {"weights", 'w', "PATH", 0, "A file of weights, checkpoint, run or Hugging Face model (train.output_dir)", 0},
        {0}};
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "CONFIG --prompt TEXT [key=value ...]",
                                     .doc = "Continue a text with the model that CONFIG describes.\v"
                                            "Ctrl-C and SIGTERM end it after the present token, with exit status "
                                            "130 and 143."};
    generate_arguments a = {.n_tokens = 100, .top_k = 40, .temperature = 0.8};
    if (!config_arguments_init(&a.config, argc)) return EXIT_OTHER;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &a);
    generator g = {0};
    stop_at_stall("generate");
    ps_status st = open_generator(&g, &a);
    if (st == PS_OK) {
        stop_listen(NULL);
        st = generate(&g, &a);
    }
    const int code = program_report("generate", st);
    close_generator(&g);
    config_arguments_deinit(&a.config);
    return st == PS_OK && g.is_stopped ? stop_end(true) : code;
}
