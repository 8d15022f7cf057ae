#include "samples.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_data_loader.h"
#include "text_stream.h"

enum { LINE_MAX_BYTES = 1 << 16 };

/* ---- the prompts ---- */

static ps_status encode(const ps_config *config, const char *path, int line, samples *s)
{
    const bool is_chat = strcmp(client_string(config, "data.chat_format"), "auto") != 0;
    const char *const prompt = s->prompts[s->n - 1];
    const int64_t n_bytes = (int64_t)strlen(prompt), n_model = client_int(config, "model.vocab_size");
    int32_t *ids = NULL, *end = &s->ends[s->n - 1];
    int64_t n = 0;
    *end = -1;
    TRY(is_chat ? ps_tokenizer_encode_chat(s->tokenizer, config, prompt, n_bytes, &ids, &n, end)
                : ps_tokenizer_encode_prompt(s->tokenizer, prompt, n_bytes, &ids, &n));
    ps_status st = n > 0 ? client_alloc(n + s->n_tokens, sizeof **s->ids, &s->ids[s->n - 1]) : PS_OK;
    if (st == PS_OK && n > 0) memcpy(s->ids[s->n - 1], ids, (size_t)n * sizeof *ids);
    for (int64_t i = 0; i < n && st == PS_OK; i++)
        if (ids[i] >= n_model)
            st = client_fail(PS_EINVAL, "%s: line %d: the model has no token %d of the tokenizer", path, line, ids[i]);
    if (st == PS_OK && n == 0) st = client_fail(PS_EINVAL, "%s: line %d: the prompt has no tokens", path, line);
    s->n_ids[s->n - 1] = n;
    ps_free(ids);
    return st;
}

static ps_status add_line(const ps_config *config, const char *path, int line, const char *text, samples *s)
{
    const int64_t n = s->n + 1;
    TRY(client_reserve(&s->prompts, n, sizeof *s->prompts));
    TRY(client_reserve(&s->ids, n, sizeof *s->ids));
    TRY(client_reserve(&s->n_ids, n, sizeof *s->n_ids));
    TRY(client_reserve(&s->ends, n, sizeof *s->ends));
    s->ids[s->n] = NULL;
    s->prompts[s->n] = strdup(text);
    if (s->prompts[s->n] == NULL) return client_fail(PS_ENOMEM_HOST, "no memory for the prompts of %s", path);
    s->n++;
    return encode(config, path, line, s);
}

static ps_status read_lines(const ps_config *config, const char *path, FILE *f, samples *s)
{
    char *line = malloc(LINE_MAX_BYTES);
    ps_status st = line != NULL ? PS_OK : client_fail(PS_ENOMEM_HOST, "no memory for a line of %s", path);
    for (int number = 1; st == PS_OK && fgets(line, LINE_MAX_BYTES, f) != NULL; number++) {
        const size_t n = strcspn(line, "\r\n");
        if (n == LINE_MAX_BYTES - 1)
            st = client_fail(PS_EINVAL, "%s: line %d has more than %d bytes", path, number, LINE_MAX_BYTES - 2);
        line[n] = '\0';
        if (n > 0 && st == PS_OK) st = add_line(config, path, number, line, s);
    }
    if (st == PS_OK && ferror(f)) st = client_fail(PS_EIO, "cannot read %s: %s", path, strerror(errno));
    if (st == PS_OK && s->n == 0) st = client_fail(PS_EINVAL, "%s (train.sample_prompts) has no line with text", path);
    free(line);
    return st;
}

static ps_status open_prompts(const ps_config *config, const char *path, samples *s)
{
    const char *const head = client_string(config, "model.head"), *const tokenizer =
                                                                      ps_config_get_tokenizer_path(config);
    if (strcmp(head, "causal_lm") != 0)
        return client_fail(PS_EINVAL, "train.sample_prompts: model.head = %s does not continue texts", head);
    if (tokenizer[0] == '\0')
        return client_fail(PS_EINVAL,
                           "train.sample_prompts: data.tokenizer is not set: name the folder of the tokenizer's files");
    TRY(ps_tokenizer_open(tokenizer, &s->tokenizer));
    FILE *f = fopen(path, "r");
    if (f == NULL) return client_fail(PS_EIO, "%s (train.sample_prompts): %s", path, strerror(errno));
    const ps_status st = read_lines(config, path, f, s);
    fclose(f);
    return st;
}

ps_status samples_open(const ps_config *config, samples *out)
{
    const char *const path = client_string(config, "train.sample_prompts");
    *out = (samples){.n_tokens = client_int(config, "train.sample_tokens"),
                     .options = {.struct_size = sizeof out->options,
                                 .temperature = 0.8,
                                 .top_k = 40,
                                 .seed = (uint64_t)client_int(config, "train.seed")}};
    if (path[0] == '\0') return PS_OK;
    out->interval = client_int(config, "train.sample_interval");
    const ps_status st = open_prompts(config, path, out);
    if (st != PS_OK) samples_close(out);
    return st;
}

void samples_close(samples *s)
{
    for (int i = 0; i < s->n; i++) {
        free(s->prompts[i]);
        free(s->ids[i]);
    }
    free(s->prompts);
    free(s->ids);
    free(s->n_ids);
    free(s->ends);
    ps_tokenizer_close(s->tokenizer);
    *s = (samples){0};
}

/* ---- continuations ---- */

typedef struct continuation {
    const samples *s;
    ps_engine *engine;
    int32_t *batch; /* [B, T], of which the first sequence is used */
    float *logits;
    int64_t B, T, V;
} continuation;

/* Tokens of prompt i and after it are in ids; *n of them. */
static ps_status continue_prompt(const continuation *c, int i, int64_t *n)
{
    const samples *s = c->s;
    int32_t *const ids = s->ids[i];
    const int64_t n_known = min_i64(c->V, ps_tokenizer_vocab_size(s->tokenizer));
    *n = s->n_ids[i];
    for (int64_t k = 0; k < s->n_tokens; k++) {
        const int64_t used = min_i64(*n, c->T);
        int32_t token;
        memset(c->batch, 0, (size_t)(c->B * c->T) * sizeof *c->batch);
        memcpy(c->batch, ids + (*n - used), (size_t)used * sizeof *ids);
        const ps_batch batch = {.struct_size = sizeof batch, .tokens = c->batch};
        TRY(ps_infer(c->engine, &batch, used - 1, c->logits));
        TRY(ps_sample_token(c->logits, n_known, &s->options, k, &token));
        if (ps_tokenizer_is_end(s->tokenizer, token) || token == s->ends[i]) break;
        ids[(*n)++] = token;
    }
    return PS_OK;
}

/* The continuation as well-formed UTF-8; free. */
static ps_status decode(const samples *s, int i, int64_t n, char **text, size_t *n_bytes)
{
    *text = NULL;
    FILE *f = open_memstream(text, n_bytes);
    if (f == NULL) return client_fail(PS_ENOMEM_HOST, "no memory for a sample: %s", strerror(errno));
    text_stream stream = {.tokenizer = s->tokenizer, .out = f};
    const ps_status st = text_stream_show(&stream, s->ids[i] + s->n_ids[i], n - s->n_ids[i], true);
    return fclose(f) == 0 || st != PS_OK ? st : client_fail(PS_ENOMEM_HOST, "no memory for a sample");
}

static ps_status append(const samples *s, int i, const char *text, size_t n_bytes, int64_t step, FILE *f)
{
    json_t *o = json_pack("{s:I, s:s, s:o}", "step", (json_int_t)step, "prompt", s->prompts[i], "text",
                          json_stringn(text, n_bytes));
    char *line = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    ps_status st = PS_OK;
    if (line == NULL)
        st = client_fail(PS_ENOMEM_HOST, "no memory for a line of samples.jsonl");
    else if (fprintf(f, "%s\n", line) < 0 || fflush(f) != 0)
        st = client_fail(PS_EIO, "cannot write samples.jsonl: %s", strerror(errno));
    free(line);
    json_decref(o);
    return st;
}

/* Of rank 0. */
static ps_status write_one(const samples *s, int i, int64_t n, int64_t step, FILE *f)
{
    char *text;
    size_t n_bytes = 0;
    ps_status st = decode(s, i, n, &text, &n_bytes);
    if (st == PS_OK) printf("step %lld sample: %s | %s\n", (long long)step, s->prompts[i], text);
    if (st == PS_OK) st = append(s, i, text, n_bytes, step, f);
    free(text);
    return st;
}

static ps_status continue_all(const continuation *c, FILE *f, int64_t step)
{
    for (int i = 0; i < c->s->n; i++) {
        int64_t n;
        TRY(continue_prompt(c, i, &n));
        if (f != NULL) TRY(write_one(c->s, i, n, step, f));
    }
    return PS_OK;
}

static int64_t longest(const samples *s)
{
    int64_t most = 0;
    for (int i = 0; i < s->n; i++) most = max_i64(most, s->n_ids[i] + s->n_tokens);
    return most;
}

static ps_status open_file(const char *folder, FILE **out)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/samples.jsonl", folder);
    *out = fopen(path, "a");
    return *out != NULL ? PS_OK : client_fail(PS_EIO, "%s: %s", path, strerror(errno));
}

ps_status samples_write(const samples *s, ps_engine *engine, ps_comm *comm, ps_config *config, int64_t whole,
                        ps_rows *rows, int64_t step, const char *folder)
{
    continuation c = {.s = s, .engine = engine};
    FILE *f = NULL;
    ps_status st = PS_OK;
    TRY(cli_set_length(engine, config, whole, min_i64(whole, longest(s)), rows));
    ps_engine_get_shape(engine, &c.B, &c.T, NULL, &c.V);
    if (ps_comm_rank(comm) == 0) st = open_file(folder, &f);
    if (st == PS_OK) st = client_alloc(c.B * c.T, sizeof *c.batch, &c.batch);
    if (st == PS_OK) st = client_alloc(c.V, sizeof *c.logits, &c.logits);
    st = ps_comm_agree(comm, st);
    if (st == PS_OK) st = ps_comm_agree(comm, continue_all(&c, f, step));
    free(c.batch);
    free(c.logits);
    if (f != NULL) fclose(f);
    return st;
}
