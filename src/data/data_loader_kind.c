#include "data/data_loader_kind.h"

#include <string.h>

#include "base/base.h"
#include "data/dataset.h"

#define BIT(kind) (1U << (kind))

ps_instruct_options ps_data_loader_instruct_options(const ps_data_loader_options *o)
{
    return (ps_instruct_options){
        .form = o->jsonl_form,
        .text_key = o->text_key,
        .messages_key = o->messages_key,
        .prompt_key = o->prompt_key,
        .completion_key = o->completion_key,
        .chat_format = o->chat_format,
        .tokenizer_path = o->tokenizer_path != NULL ? o->tokenizer_path : ".",
        .tokenizer = o->tokenizer,
        .added_tokens = o->added_tokens,
        .T = o->sequence,
    };
}

ps_config_jsonl_form ps_data_loader_form_of(ps_data_loader_kind kind)
{
    switch (kind) {
    case PS_DATA_LOADER_MESSAGES: return PS_CONFIG_JSONL_FORM_MESSAGES;
    case PS_DATA_LOADER_PROMPTS: return PS_CONFIG_JSONL_FORM_PROMPT_COMPLETION;
    case PS_DATA_LOADER_ALPACA: return PS_CONFIG_JSONL_FORM_ALPACA;
    case PS_DATA_LOADER_SHAREGPT: return PS_CONFIG_JSONL_FORM_SHAREGPT;
    case PS_DATA_LOADER_TOKENS:
    case PS_DATA_LOADER_TEXT:
    case PS_DATA_LOADER_TEXTS:
    case PS_DATA_LOADER_LABELLED: break;
    }
    return PS_CONFIG_JSONL_FORM_AUTO;
}

static ps_status kind_of_lines(const ps_data_loader_options *o, const char *path, ps_data_loader_kind *out)
{
    const ps_instruct_options options = ps_data_loader_instruct_options(o);
    ps_config_jsonl_form form;
    PS_TRY(ps_instruct_form(path, &options, &form));
    *out = PS_DATA_LOADER_TEXTS;
    for (ps_data_loader_kind kind = PS_DATA_LOADER_MESSAGES; kind < PS_DATA_LOADER_LABELLED; kind++)
        if (ps_data_loader_form_of(kind) == form) *out = kind;
    return PS_OK;
}

ps_status ps_data_loader_kind_of(const ps_data_loader_options *o, const char *path, ps_data_loader_kind *out)
{
    const ps_config_data_format format = ps_dataset_format(path, o->format);
    const bool is_lines = format == PS_CONFIG_DATA_FORMAT_JSONL;
    const bool has_classes = o->task >= PS_DATA_LOADER_CLASSIFICATION, is_causal = o->task == PS_DATA_LOADER_CAUSAL_LM;
    if (has_classes && !is_lines)
        return PS_FAIL(PS_EINVAL, "%s: a classifier needs JSON Lines; name the file *.jsonl or set data.format = jsonl",
                       path);
    if (is_causal && !is_lines && o->jsonl_form != PS_CONFIG_JSONL_FORM_AUTO)
        return PS_FAIL(PS_EINVAL,
                       "%s: data.jsonl_form = %s is for JSON Lines, but this is read as %s; name the file *.jsonl or "
                       "set data.format = jsonl, or leave data.jsonl_form out",
                       path, ps_config_jsonl_form_names[o->jsonl_form], ps_config_data_format_names[format]);
    if (is_causal && is_lines) return kind_of_lines(o, path, out);
    *out = has_classes                            ? PS_DATA_LOADER_LABELLED
           : is_lines                             ? PS_DATA_LOADER_TEXTS
           : format == PS_CONFIG_DATA_FORMAT_TEXT ? PS_DATA_LOADER_TEXT
                                                  : PS_DATA_LOADER_TOKENS;
    return PS_OK;
}

static ps_status refuse_use(const ps_data_loader_options *o, const char *option, const char *needed)
{
    const bool has_other = o->validation != NULL && o->validation[0] != '\0';
    return PS_FAIL(PS_EINVAL, "%s has no effect: it is for %s, and %s%s%s holds none; remove it%s", option, needed,
                   has_other ? "neither " : "", o->train, has_other ? " nor data.validation" : "",
                   o->format == PS_CONFIG_DATA_FORMAT_AUTO
                       ? ", or, where a file of JSON Lines is not called *.jsonl, set data.format = jsonl"
                       : "");
}

ps_status ps_data_loader_refuse_chat_format(const ps_data_loader_options *o)
{
    if (o->chat_format == PS_CONFIG_CHAT_FORMAT_AUTO) return PS_OK;
    return refuse_use(o, "data.chat_format", "messages");
}

ps_status ps_data_loader_check_uses(const ps_data_loader_options *o, const ps_data_loader_kind *kinds, int n)
{
    /* where the format is determined by keys, keys that were searched without a match had an effect, too */
    const bool is_found = o->jsonl_form == PS_CONFIG_JSONL_FORM_AUTO;
    const unsigned prompts = BIT(PS_DATA_LOADER_PROMPTS), chats = BIT(PS_DATA_LOADER_MESSAGES);
    const unsigned named = BIT(PS_DATA_LOADER_ALPACA) | BIT(PS_DATA_LOADER_SHAREGPT); /* by separate keys */
    const unsigned texts = BIT(PS_DATA_LOADER_TEXTS) | BIT(PS_DATA_LOADER_LABELLED);
    const struct {
        const char *option, *needed;
        bool is_given;
        unsigned kinds;
    } uses[] = {
        {"data.text_key", "JSON Lines with texts", strcmp(o->text_key, PS_DATA_LOADER_TEXT_KEY) != 0,
         texts | (is_found ? chats | prompts | named : 0)},
        {"data.messages_key", "JSON Lines with messages", strcmp(o->messages_key, PS_DATA_LOADER_MESSAGES_KEY) != 0,
         chats | (is_found ? prompts | named : 0)},
        {"data.prompt_key", "JSON Lines with prompts", strcmp(o->prompt_key, PS_DATA_LOADER_PROMPT_KEY) != 0, prompts},
        {"data.completion_key", "JSON Lines with completions",
         strcmp(o->completion_key, PS_DATA_LOADER_COMPLETION_KEY) != 0, prompts},
        {"data.chat_format", "messages", o->chat_format != PS_CONFIG_CHAT_FORMAT_AUTO, chats | prompts | named},
        {"data.added_tokens", "text", o->added_tokens, ~BIT(PS_DATA_LOADER_TOKENS)},
    };
    unsigned found = 0;
    for (int i = 0; i < n; i++) found |= BIT(kinds[i]);
    for (size_t i = 0; i < PS_ARRAY_LEN(uses); i++)
        if (uses[i].is_given && (uses[i].kinds & found) == 0) return refuse_use(o, uses[i].option, uses[i].needed);
    return PS_OK;
}
