#include "sample_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "cli.h"
#include "data/data_loader.h"
#include "data/tokenizer.h"
#include "train/cli_data_loader.h"

typedef struct sample_view {
    ps_config *config;
    const ps_options *o;
    ps_data_loader *loader;
    ps_tokenizer *tokenizer; /* NULL: files of tokens without one */
    ps_data_loader_batch row;
} sample_view;

/* Samples in the order of the file, without a validation share, and without padding beyond the row. A separate
 * validation file stays, as the data section is the run's. */
static ps_status load_config(const char *path, char *const *overrides, int n_overrides, ps_config **out)
{
    static char own[][32] = {"data.shuffle=false", "data.validation_split=0", "data.pad_to_multiple_of=1",
                             "train.eval_interval=0"};
    char **all = calloc((size_t)n_overrides + PS_ARRAY_LEN(own), sizeof *all);
    if (all == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for the overrides");
    for (int i = 0; i < n_overrides; i++) all[i] = overrides[i];
    for (size_t i = 0; i < PS_ARRAY_LEN(own); i++) all[n_overrides + (int)i] = own[i];
    const ps_status st = client_load_config(path, all, n_overrides + (int)PS_ARRAY_LEN(own), out);
    free(all);
    return st;
}

/* A token may have a part of a character; print such bytes, and unprintable ones, as numbers. */
static void print_text(const sample_view *v, int32_t id)
{
    int64_t n = 0;
    const char *text = v->tokenizer != NULL ? ps_tokenizer_token(v->tokenizer, id, &n) : NULL;
    putchar('"');
    for (int64_t i = 0, length; i < n; i += length) {
        const unsigned char c = (unsigned char)text[i];
        length = ps_utf8_length(text + i, n - i);
        const bool is_shown = length > 0 && !ps_is_control(text + i, (int)length);
        if (!is_shown) length = 1; /* the other bytes of the character are printed as numbers, too */
        if (c == '\n')
            printf("\\n");
        else if (!is_shown)
            printf("\\x%02x", c);
        else
            printf("%s%.*s", c == '"' || c == '\\' ? "\\" : "", (int)length, text + i);
    }
    printf("\"\n");
}

static void print_token(const sample_view *v, int64_t position, int32_t id, bool is_target)
{
    printf("%6lld %7d  %c  ", (long long)position, id, is_target ? '*' : ' ');
    print_text(v, id);
}

/* A token and its label. */
static void print_labelled(const sample_view *v, int64_t position, int32_t id, int32_t label)
{
    const char *name = ps_data_loader_label_name(v->loader, label);
    char shown[256];
    printf("%6lld %7d  ", (long long)position, id);
    if (label == PS_IGNORE_INDEX)
        printf("%-12s ", "");
    else if (name != NULL)
        printf("%-12s ", ps_printable_copy(name, shown, sizeof shown));
    else
        printf("%-12d ", label);
    print_text(v, id);
}

/* Samples of task_set.h: labels next to tokens, marked tokens of the answer, or numbers after the tokens. */
static void print_task_row(const sample_view *v, int64_t T)
{
    const ps_data_loader_batch *b = &v->row;
    const bool are_words = v->o->model_head == PS_CONFIG_HEAD_TOKEN_CLASSIFICATION;
    const bool are_answers = v->o->model_head == PS_CONFIG_HEAD_QUESTION_ANSWERING;
    for (int64_t t = 0; t < T; t++) {
        if (are_words)
            print_labelled(v, t, b->tokens[t], b->targets[t]);
        else
            print_token(v, t, b->tokens[t], are_answers && t >= b->targets[0] && t <= b->targets[1]);
    }
    for (int64_t i = 0; b->values != NULL && i < ps_data_loader_row_targets(v->loader, T); i++) {
        const char *name = ps_data_loader_label_name(v->loader, (int32_t)i);
        char shown[256];
        printf("label %lld%s%s: %g\n", (long long)i, name != NULL ? " " : "",
               ps_printable_copy(name != NULL ? name : "", shown, sizeof shown), (double)b->values[i]);
    }
}

/* A row of tokens with targets: the next tokens of a causal model, else the masked tokens at their positions. */
static void print_row(const sample_view *v, int64_t T)
{
    const ps_data_loader_batch *b = &v->row;
    const bool is_causal = v->o->model_head == PS_CONFIG_HEAD_CAUSAL_LM;
    const bool is_class = v->o->model_head == PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION;
    if (ps_data_loader_task_set(v->loader, PS_SPLIT_TRAIN) != NULL) {
        print_task_row(v, T);
        return;
    }
    for (int64_t t = 0; t < T; t++) {
        const int32_t target = is_class     ? PS_IGNORE_INDEX
                               : !is_causal ? b->targets[t]
                               : t > 0      ? b->targets[t - 1]
                                            : PS_IGNORE_INDEX;
        print_token(v, t, target != PS_IGNORE_INDEX ? target : b->tokens[t], target != PS_IGNORE_INDEX);
    }
    if (is_causal && b->targets[T - 1] != PS_IGNORE_INDEX) print_token(v, T, b->targets[T - 1], true);
    if (!is_class) return;
    char shown[256];
    const char *name = ps_data_loader_label_name(v->loader, b->targets[0]);
    printf("label %d%s%s\n", b->targets[0], name != NULL ? " " : "",
           ps_printable_copy(name != NULL ? name : "", shown, sizeof shown));
}

static ps_status print_sample(sample_view *v, int64_t number)
{
    const int64_t n = ps_data_loader_sample_count(v->loader, PS_SPLIT_TRAIN);
    if (number < 0 || number >= n)
        return PS_FAIL(PS_EINVAL, "%s: sample %lld, but it has %lld, numbered from 0", v->o->data_train,
                       (long long)number, (long long)n);
    PS_TRY(ps_data_loader_batch_init(&v->row, v->loader, 1));
    const int64_t T = ps_data_loader_length(v->loader, PS_SPLIT_TRAIN, number, 1);
    v->row.T = T;
    PS_TRY(ps_data_loader_get(v->loader, PS_SPLIT_TRAIN, number, 1, &v->row));
    const int64_t line = ps_data_loader_line_of(v->loader, PS_SPLIT_TRAIN, number);
    printf("%s: sample %lld of %lld", v->o->data_train, (long long)number, (long long)n);
    if (line > 0) printf(", line %lld", (long long)line);
    printf("; * is to be predicted\n");
    print_row(v, T);
    return PS_OK;
}

ps_status sample_view_print(const char *config, char *const *overrides, int n_overrides, int64_t number)
{
    ps_status st;
    sample_view v = {0};
    PS_TRY_GOTO(load_config(config, overrides, n_overrides, &v.config));
    v.o = ps_config_options(v.config);
    PS_TRY_GOTO(cli_data_loader_open(v.config, &v.loader));
    const char *tokenizer = ps_config_get_tokenizer_path(v.config);
    if (tokenizer[0] != '\0') PS_TRY_GOTO(ps_tokenizer_open(tokenizer, &v.tokenizer));
    cli_print_instruct_info(v.config, v.loader);
    st = print_sample(&v, number);
out:
    ps_data_loader_batch_deinit(&v.row);
    ps_tokenizer_close(v.tokenizer);
    ps_data_loader_close(v.loader);
    ps_config_destroy(v.config);
    return st;
}
