/* data_loader_config.c - opens the data loader of a configuration's section "data", and encodes prompts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "config/label_list.h"
#include "data/chat_format.h"
#include "data/chat_template.h"
#include "data/data_loader.h"
#include "data/dataset.h"
#include "data/text_buffer.h"

/* ---- the tokenizer ---- */

static const char *tokenizer_path(const ps_options *o)
{
    const bool own = o->data_tokenizer[0] == '\0' && o->model_from_pretrained[0] != '\0';
    return own && ps_tokenizer_is_in(o->model_from_pretrained) ? o->model_from_pretrained : o->data_tokenizer;
}

const char *ps_config_get_tokenizer_path(const ps_config *config)
{
    return tokenizer_path(ps_config_options(config));
}

/* Reading a tokenizer is a layer above reading a configuration, so this is a separate call. */
ps_status ps_config_resize_vocabulary(ps_config *config)
{
    PS_TRY(PS_NEED("config", config));
    const ps_options *o = ps_config_options(config);
    const char *path = tokenizer_path(o);
    ps_tokenizer *t = NULL;
    char text[32];
    if (!o->model_resize_token_embeddings || ps_config_gives(config, PS_OPTION_model_vocab_size)) return PS_OK;
    if (path[0] == '\0')
        return PS_FAIL(PS_EINVAL,
                       "model.resize_token_embeddings: %s has no tokenizer to count tokens of; set data.tokenizer "
                       "or model.vocab_size",
                       o->model_from_pretrained);
    PS_TRY(ps_tokenizer_open(path, &t));
    int64_t n = ps_max_i64(ps_tokenizer_vocab_size(t), o->model_vocab_size);
    ps_tokenizer_close(t);
    if (o->model_pad_to_multiple_of > 0) n = ps_round_up(n, o->model_pad_to_multiple_of);
    snprintf(text, sizeof text, "%lld", (long long)n);
    return ps_config_set(config, "model.vocab_size", text);
}

/* The configuration assignment that gives the model as many tokens as its tokenizer has. */
static const char *resize_remedy(const ps_config *config)
{
    const ps_options *o = ps_config_options(config);
    if (o->model_from_pretrained[0] == '\0') return "";
    if (!o->model_resize_token_embeddings) return "; model.resize_token_embeddings = true gives the model as many";
    return ps_config_gives(config, PS_OPTION_model_vocab_size)
               ? "; without model.vocab_size, model.resize_token_embeddings gives the model as many"
               : "; ps_config_resize_vocabulary, called for this configuration, gives the model as many";
}

/* ---- the data loader ---- */

static ps_data_loader_task task_of_texts(const ps_options *o)
{
    switch (ps_head_problem(o)) {
    case PS_CONFIG_PROBLEM_REGRESSION: return PS_DATA_LOADER_NUMBERS;
    case PS_CONFIG_PROBLEM_MULTI_LABEL: return PS_DATA_LOADER_LABELS;
    case PS_CONFIG_PROBLEM_SINGLE_LABEL:
    case PS_CONFIG_PROBLEM_AUTO: break;
    }
    return PS_DATA_LOADER_CLASSIFICATION;
}

ps_status ps_data_loader_task_of(const ps_options *o, ps_data_loader_task *out)
{
    switch (o->model_head) {
    case PS_CONFIG_HEAD_CAUSAL_LM: *out = PS_DATA_LOADER_CAUSAL_LM; return PS_OK;
    case PS_CONFIG_HEAD_MASKED_LM: *out = PS_DATA_LOADER_MASKED_LM; return PS_OK;
    case PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION: *out = task_of_texts(o); return PS_OK;
    case PS_CONFIG_HEAD_TOKEN_CLASSIFICATION: *out = PS_DATA_LOADER_WORDS; return PS_OK;
    case PS_CONFIG_HEAD_QUESTION_ANSWERING: *out = PS_DATA_LOADER_ANSWERS; return PS_OK;
    case PS_CONFIG_HEAD_NONE: break;
    }
    return PS_FAIL(PS_EINVAL, "model.head = %s has no loss to train on or to evaluate",
                   ps_config_head_names[o->model_head]);
}

static bool is_text(const ps_options *o, const char *path)
{
    const ps_config_data_format format = ps_dataset_format(path, o->data_format);
    return path[0] != '\0' && (format == PS_CONFIG_DATA_FORMAT_TEXT || format == PS_CONFIG_DATA_FORMAT_JSONL);
}

/* NULL where no file needs a tokenizer: files of tokens also work for models whose tokenizer is not supported. */
static ps_status open_tokenizer(const ps_config *config, ps_data_loader_task task, ps_tokenizer **out)
{
    const ps_options *o = ps_config_options(config);
    const char *path = tokenizer_path(o);
    const bool is_needed =
        task != PS_DATA_LOADER_CAUSAL_LM || is_text(o, o->data_train) || is_text(o, o->data_validation);
    if (path[0] == '\0' || !is_needed) return PS_OK;
    PS_TRY(ps_tokenizer_open(path, out));
    const int32_t n = ps_tokenizer_vocab_size(*out);
    if (n <= o->model_vocab_size) return PS_OK;
    ps_tokenizer_close(*out);
    *out = NULL;
    return PS_FAIL(PS_EINVAL, "model.vocab_size = %lld, but the tokenizer %s has %d tokens%s",
                   (long long)o->model_vocab_size, path, n, resize_remedy(config));
}

ps_status ps_data_loader_from_config(const ps_config *config, const char *cache_folder, ps_data_loader **out)
{
    PS_TRY(PS_NEED_FOR(out, "config out", config, out));
    const ps_options *o = ps_config_options(config);
    ps_data_loader_task task = PS_DATA_LOADER_CAUSAL_LM;
    PS_TRY(ps_data_loader_task_of(o, &task));
    ps_tokenizer *tokenizer = NULL;
    PS_TRY(open_tokenizer(config, task, &tokenizer));
    const ps_data_loader_options options = {
        .task = task,
        .train = o->data_train,
        .validation = o->data_validation,
        .format = o->data_format,
        .tokenizer = tokenizer,
        .added_tokens = o->data_added_tokens,
        .specials = ps_specials_of(tokenizer),
        .sequence = ps_config_sequence_length(o),
        .vocab_size = (int32_t)o->model_vocab_size,
        .n_labels = (int32_t)o->model_num_labels,
        .labels = o->data_labels,
        .doc_stride = o->data_doc_stride,
        .text_key = o->data_text_key,
        .text_pair_key = o->data_text_pair_key,
        .label_key = o->data_label_key,
        .messages_key = o->data_messages_key,
        .prompt_key = o->data_prompt_key,
        .completion_key = o->data_completion_key,
        .jsonl_form = o->data_jsonl_form,
        .chat_format = o->data_chat_format,
        .tokenizer_path = tokenizer_path(o),
        .mlm_probability = o->data_mlm_probability,
        .validation_fraction = o->data_validation_split,
        .seed = (uint64_t)o->train_seed,
        .in_file_order = !o->data_shuffle,
        .pad_to_multiple_of = o->data_pad_to_multiple_of,
        .cache_folder = cache_folder,
        .memory_bytes = ps_max_i64(o->memory_total, 0),
    };
    const ps_status st = ps_data_loader_open(&options, out);
    ps_tokenizer_close(tokenizer);
    return st;
}

ps_status ps_data_loader_describe(const ps_data_loader *loader, ps_split split, char **out)
{
    PS_TRY(PS_NEED_FOR(out, "loader out", loader, out));
    const ps_instruct_info i = ps_data_loader_instruct_info(loader, split);
    char form[64] = "", cut[64] = "", left_out[64] = "", text[384] = "";
    if (i.chat_format != PS_CONFIG_CHAT_FORMAT_AUTO)
        snprintf(form, sizeof form, " in the form %.40s", ps_config_chat_format_names[i.chat_format]);
    if (i.n_cut > 0) snprintf(cut, sizeof cut, "; %lld cut to the sequence length", (long long)i.n_cut);
    if (i.n_left_out > 0)
        snprintf(left_out, sizeof left_out, "; %lld left out, nothing to predict", (long long)i.n_left_out);
    if (i.n_lines > 0)
        snprintf(text, sizeof text, "%lld lines%s, %lld tokens, %.0f %% of them to be predicted%s%s",
                 (long long)i.n_lines, form, (long long)i.n_tokens, 100.0 * (double)i.n_targets / (double)i.n_tokens,
                 cut, left_out);
    return ps_mem_strdup(text, out);
}

ps_status ps_data_loader_keep_labels(const ps_data_loader *loader, ps_config *config)
{
    PS_TRY(PS_NEED("loader config", loader, config));
    ps_label_list found = {0};
    const char *name;
    char *text = NULL;
    ps_status st = PS_OK;
    for (int32_t i = 0; (name = ps_data_loader_label_name(loader, i)) != NULL; i++)
        PS_TRY_GOTO(ps_label_list_add(&found, name, (int64_t)strlen(name)));
    if (found.n == 0) return PS_OK;
    PS_TRY_GOTO(ps_label_list_format(&found, &text));
    st = ps_config_set(config, "data.labels", text);
out:
    ps_free(text);
    ps_label_list_deinit(&found);
    return st;
}

ps_status ps_data_loader_keep_chat_format(const ps_data_loader *loader, ps_config *config)
{
    PS_TRY(PS_NEED("loader config", loader, config));
    const ps_config_chat_format found = ps_data_loader_instruct_info(loader, PS_SPLIT_TRAIN).chat_format;
    if (found != PS_CONFIG_CHAT_FORMAT_ALPACA) return PS_OK; /* other formats are those of a template */
    return ps_config_set(config, "data.chat_format", ps_config_chat_format_names[found]);
}

ps_status ps_config_take_epochs(ps_config *config, const ps_data_loader *loader, int32_t n_ranks)
{
    PS_TRY(PS_NEED("config loader", config, loader));
    const ps_options *o = ps_config_options(config);
    const double epochs = o->train_epochs;
    char text[32];
    if (n_ranks < 1) return PS_FAIL(PS_EINVAL, "ps_config_take_epochs: %d ranks, expected at least 1", (int)n_ranks);
    if (epochs == 0) return PS_OK;
    const double n_rows = (double)o->train_micro_batch_size_per_gpu * (double)o->gradient_accumulation_steps * n_ranks;
    const double steps = epochs * (double)ps_data_loader_sample_count(loader, PS_SPLIT_TRAIN) / n_rows;
    /* 0.1 x 30 is slightly above 3; a value out of range for an integer is also out of range for train.steps */
    snprintf(text, sizeof text, "%lld", (long long)fmax(1, fmin(1e18, ceil(steps * (1 - 1e-12)))));
    PS_TRY(ps_config_set(config, "train.steps", text));
    return ps_config_set(config, "train.epochs", "0");
}

/* ---- prompts ---- */

int ps_tokenizer_is_end(const ps_tokenizer *t, int32_t id)
{
    return id >= 0 && (id == ps_tokenizer_eot(t) || id == ps_tokenizer_role(t, PS_ROLE_EOS));
}

ps_status ps_tokenizer_encode_prompt(ps_tokenizer *t, const void *text, int64_t n_bytes, int32_t **ids, int64_t *n_ids)
{
    PS_TRY(PS_NEED_FOR(ids, "tokenizer text ids n_ids", t, PS_NEED_IF(n_bytes > 0, text), ids, n_ids));
    const ps_encode_options options = {.added_tokens = true};
    ps_encoding e;
    *n_ids = 0;
    PS_TRY(ps_tokenizer_encode_sequence(t, &options, text, n_bytes, NULL, 0, &e));
    const ps_status st = ps_mem_alloc((size_t)ps_max_i64(e.n, 1), sizeof **ids, ids);
    if (st == PS_OK && e.n > 0) memcpy(*ids, e.ids, (size_t)e.n * sizeof **ids);
    if (st == PS_OK) *n_ids = e.n;
    ps_encoding_deinit(&e);
    return st;
}

static ps_status check_utf8(const char *text, int64_t n)
{
    for (int64_t i = 0, length; i < n; i += length) {
        length = ps_utf8_length(text + i, n - i);
        if (length == 0) return PS_FAIL(PS_EINVAL, "the prompt is no UTF-8 from byte %lld on", (long long)i);
    }
    return PS_OK;
}

ps_status ps_tokenizer_encode_chat(ps_tokenizer *t, const ps_config *config, const void *text, int64_t n_bytes,
                                   int32_t **ids, int64_t *n_ids, int32_t *end)
{
    PS_TRY(PS_NEED_FOR(ids, "tokenizer config text ids n_ids end", t, config, PS_NEED_IF(n_bytes > 0, text), ids, n_ids,
                       end));
    const ps_options *o = ps_config_options(config);
    ps_chat_template template = {.format = o->data_chat_format};
    ps_chat_encoder e;
    ps_id_list list = {0};
    ps_chat_message message = {.role = PS_CHAT_USER, .content = text, .n_bytes = n_bytes};
    *n_ids = 0;
    *end = -1;
    PS_TRY(check_utf8(text, n_bytes));
    if (template.format == PS_CONFIG_CHAT_FORMAT_AUTO) PS_TRY(ps_chat_template_of(tokenizer_path(o), &template));
    PS_TRY(ps_chat_encoder_init(&e, template.format, template.default_system, t));
    const ps_status st = ps_chat_encode_prompt(&e, &(ps_chat){.messages = &message, .n = 1}, "the prompt", &list);
    *end = ps_chat_end_of_answer(&e);
    ps_chat_encoder_deinit(&e);
    if (st == PS_OK) {
        *ids = list.ids;
        *n_ids = list.n;
    } else {
        ps_mem_free(list.ids);
    }
    return st;
}
