/* cli_feed.c - from the configuration's data section to a feed. */
#include "cli_feed.h"

#include "base/file.h"
#include "cli_tokenizer.h"
#include "data/dataset.h"

static ps_feed_task task_of_texts(const ps_options *o)
{
    switch (ps_head_problem(o)) {
    case PS_CONFIG_PROBLEM_REGRESSION: return PS_FEED_NUMBERS;
    case PS_CONFIG_PROBLEM_MULTI_LABEL: return PS_FEED_LABELS;
    case PS_CONFIG_PROBLEM_SINGLE_LABEL:
    case PS_CONFIG_PROBLEM_AUTO: break;
    }
    return PS_FEED_CLASSIFICATION;
}

static ps_status task_of(const ps_options *o, ps_feed_task *out)
{
    switch (o->model_head) {
    case PS_CONFIG_HEAD_CAUSAL_LM: *out = PS_FEED_CAUSAL_LM; return PS_OK;
    case PS_CONFIG_HEAD_MASKED_LM: *out = PS_FEED_MASKED_LM; return PS_OK;
    case PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION: *out = task_of_texts(o); return PS_OK;
    case PS_CONFIG_HEAD_TOKEN_CLASSIFICATION: *out = PS_FEED_WORDS; return PS_OK;
    case PS_CONFIG_HEAD_QUESTION_ANSWERING: *out = PS_FEED_ANSWERS; return PS_OK;
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

/* Left NULL where nothing asks for one: files of tokens train also models whose tokenizer cannot be read here. */
static ps_status open_tokenizer(const ps_options *o, ps_feed_task task, ps_tokenizer **out)
{
    const char *path = cli_tokenizer_path(o);
    const bool is_needed = task != PS_FEED_CAUSAL_LM || is_text(o, o->data_train) || is_text(o, o->data_validation);
    if (path[0] == '\0' || !is_needed) return PS_OK;
    PS_TRY(ps_tokenizer_open(path, out));
    const int32_t n = ps_tokenizer_vocab_size(*out);
    if (n <= o->model_vocab_size) return PS_OK;
    ps_tokenizer_close(*out);
    *out = NULL;
    return PS_FAIL(
        PS_EINVAL, "model.vocab_size = %lld, but the tokenizer %s has %d tokens%s", (long long)o->model_vocab_size,
        path, n,
        o->model_from_pretrained[0] != '\0' ? "; model.resize_token_embeddings = true gives the model as many" : "");
}

ps_status cli_feed_open(const ps_options *o, ps_feed **out)
{
    *out = NULL;
    ps_feed_task task = PS_FEED_CAUSAL_LM;
    PS_TRY(task_of(o, &task));
    ps_tokenizer *tokenizer = NULL;
    PS_TRY(open_tokenizer(o, task, &tokenizer));
    const ps_feed_options options = {
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
        .tokenizer_path = cli_tokenizer_path(o),
        .mlm_probability = o->data_mlm_probability,
        .validation_fraction = o->data_validation_split,
        .seed = (uint64_t)o->train_seed,
        .in_file_order = !o->data_shuffle,
        .pad_to_multiple_of = o->data_pad_to_multiple_of,
        .cache_folder = ps_file_exists(o->train_output_dir) ? o->train_output_dir : NULL,
    };
    const ps_status st = ps_feed_open(&options, out);
    ps_tokenizer_close(tokenizer);
    return st;
}

void cli_print_instruct_info(const ps_options *o, const ps_feed *feed)
{
    const char *const paths[PS_SPLIT_COUNT] = {o->data_train, o->data_validation};
    for (ps_split split = 0; split < PS_SPLIT_COUNT; split++) {
        const ps_instruct_info i = ps_feed_instruct_info(feed, split);
        if (i.n_lines == 0) continue;
        printf("%s: %lld lines", paths[split], (long long)i.n_lines);
        if (i.chat_format != PS_CONFIG_CHAT_FORMAT_AUTO)
            printf(" in the form %s", ps_config_chat_format_names[i.chat_format]);
        printf(", %lld tokens, %.0f %% of them to be predicted", (long long)i.n_tokens,
               100.0 * (double)i.n_targets / (double)i.n_tokens);
        if (i.n_cut > 0) printf("; %lld cut to the sequence length", (long long)i.n_cut);
        if (i.n_left_out > 0) printf("; %lld left out, nothing to predict", (long long)i.n_left_out);
        putchar('\n');
    }
}

ps_status cli_set_length(ps_engine *engine, ps_config *config, int64_t T, ps_feed_batch *batch)
{
    const ps_options *o = ps_config_options(config);
    const int64_t B = o->train_micro_batch_size_per_gpu, whole = ps_config_sequence_length(o);
    if (o->data_pad_to_multiple_of == 0) return PS_OK;
    ps_status st = ps_engine_set_shape(engine, ps_model_from_config, config, B, T);
    if (st == PS_EBUDGET && T < whole) st = ps_engine_set_shape(engine, ps_model_from_config, config, B, T = whole);
    if (st == PS_OK) batch->T = T;
    return st;
}
