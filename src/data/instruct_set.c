#include "data/instruct_set.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "data/alpaca.h"
#include "data/chat_format.h"
#include "data/chat_template.h"
#include "data/jsonl.h"

#define SHAREGPT_KEY "conversations"

typedef struct instruct_entry {
    int64_t first, line;
} instruct_entry;

struct ps_instruct_set {
    ps_id_list ids; /* of all samples, targets marked */
    instruct_entry *entries;
    int64_t n;
    ps_instruct_info info;
};

/* While reading. */
typedef struct instruct_reader {
    const char *path;
    const ps_instruct_options *o;
    ps_jsonl *lines;
    ps_instruct_set *set;
    ps_chat chat;
    ps_chat_encoder encoder;
    ps_text_buffer text; /* prompt and completion */
    ps_id_list front;    /* the tokenizer's prefix of a text */
    int32_t eos;         /* end of a completion; -1: the tokenizer has none */
    char *where;         /* the beginning of messages about the line */
    size_t where_bytes;
} instruct_reader;

/* ---- format of a line ---- */

static bool has_key(const json_t *line, const char *key)
{
    return json_object_get(line, key) != NULL;
}

/* AUTO: none. Files in Alpaca's format may also have a key with the whole text (tatsu-lab/alpaca has). */
static ps_config_jsonl_form form_of(const json_t *line, const ps_instruct_options *o)
{
    const bool is_alpaca = has_key(line, "instruction") && has_key(line, "output");
    const bool has_text = has_key(line, o->text_key), names_text = strcmp(o->text_key, "text") != 0;
    if (has_text && (names_text || !is_alpaca)) return PS_CONFIG_JSONL_FORM_TEXT;
    if (has_key(line, o->messages_key)) return PS_CONFIG_JSONL_FORM_MESSAGES;
    if (has_key(line, o->prompt_key) && has_key(line, o->completion_key)) return PS_CONFIG_JSONL_FORM_PROMPT_COMPLETION;
    if (has_key(line, SHAREGPT_KEY)) return PS_CONFIG_JSONL_FORM_SHAREGPT;
    return is_alpaca ? PS_CONFIG_JSONL_FORM_ALPACA : PS_CONFIG_JSONL_FORM_AUTO;
}

/* With the keys that the line has. */
static ps_status fail_form(const char *path, const ps_jsonl_record *at, json_t *line, const ps_instruct_options *o)
{
    char found[256] = "none";
    const char *key;
    json_t *value;
    size_t n = 0;
    json_object_foreach(line, key, value)
    {
        if (n + 2 >= sizeof found) break;
        n += (size_t)snprintf(found + n, sizeof found - n, "%s\"%.40s\"", n > 0 ? ", " : "", key);
    }
    return PS_FAIL(PS_EFORMAT,
                   "%s: line %lld, offset %lld: expected the key \"%s\", or \"%s\", or \"%s\" and \"%s\", or "
                   "ShareGPT's \"conversations\", or Alpaca's \"instruction\" and \"output\"; found %s. data.text_key, "
                   "data.messages_key, data.prompt_key and data.completion_key name others",
                   path, (long long)at->line, (long long)at->offset, o->text_key, o->messages_key, o->prompt_key,
                   o->completion_key, found);
}

ps_status ps_instruct_form(const char *path, const ps_instruct_options *o, ps_config_jsonl_form *out)
{
    *out = o->form;
    if (o->form != PS_CONFIG_JSONL_FORM_AUTO) return PS_OK;
    ps_status st;
    ps_jsonl *lines = NULL;
    ps_jsonl_record record;
    json_t *root;
    bool has_record;
    PS_TRY_GOTO(ps_jsonl_open(path, NULL, &lines));
    PS_TRY_GOTO(ps_jsonl_next_object(lines, &record, &root, &has_record));
    *out = form_of(root, o);
    if (*out == PS_CONFIG_JSONL_FORM_AUTO) st = fail_form(path, &record, root, o);
out:
    ps_jsonl_close(lines);
    return st;
}

/* ---- prompts and completions ---- */

static ps_status reader_put_texts(instruct_reader *r, const json_t *prompt, const json_t *completion)
{
    ps_id_list *ids = &r->set->ids;
    if (r->eos < 0)
        return PS_FAIL(PS_EINVAL,
                       "%s: completions end with the eos token, which the tokenizer lacks; name it as \"eos_token\" in "
                       "its tokenizer_config.json",
                       r->path);
    r->text.n = 0;
    PS_TRY(ps_text_append(&r->text, json_string_value(prompt), (int64_t)json_string_length(prompt)));
    PS_TRY(ps_text_append(&r->text, json_string_value(completion), (int64_t)json_string_length(completion)));
    PS_TRY(ps_ids_append_all(ids, r->front.ids, r->front.n));
    const ps_encode_options options = {.added_tokens = r->o->added_tokens, .bare = true};
    PS_TRY(ps_chat_encode_text(r->o->tokenizer, &options, r->text.bytes, r->text.n, (int64_t)json_string_length(prompt),
                               ids));
    return ps_ids_append(ids, ps_target_mark(r->eos));
}

/* ---- conversations ---- */

/* Alpaca's lines have Alpaca's format where the tokenizer has no template. */
static ps_status find_template(const ps_instruct_options *o, ps_chat_template *out)
{
    char *text, *path;
    int64_t n_bytes;
    if (o->form != PS_CONFIG_JSONL_FORM_ALPACA) return ps_chat_template_of(o->tokenizer_path, out);
    PS_TRY(ps_chat_template_read(o->tokenizer_path, &text, &n_bytes, &path));
    *out = (ps_chat_template){.format = PS_CONFIG_CHAT_FORMAT_ALPACA};
    const ps_status st = text != NULL ? ps_chat_template_known(text, n_bytes, path, out) : PS_OK;
    ps_mem_free(text);
    ps_mem_free(path);
    return st;
}

/* The format is determined at the first conversation, as prompts that are strings need none. */
static ps_status reader_open_encoder(instruct_reader *r)
{
    const ps_instruct_options *o = r->o;
    ps_chat_template t = {.format = o->chat_format};
    if (r->encoder.tokenizer != NULL) return PS_OK;
    if (o->added_tokens)
        return PS_FAIL(PS_EINVAL,
                       "%s: with messages data.added_tokens has no effect: their contents are only text; remove it",
                       r->where);
    if (t.format == PS_CONFIG_CHAT_FORMAT_AUTO) PS_TRY(find_template(o, &t));
    PS_TRY(ps_chat_encoder_init(&r->encoder, t.format, t.default_system, o->tokenizer));
    r->set->info.chat_format = t.format;
    return PS_OK;
}

static ps_status reader_put_chat(instruct_reader *r)
{
    PS_TRY(reader_open_encoder(r));
    return ps_chat_encode(&r->encoder, &r->chat, r->where, &r->set->ids);
}

static ps_status reader_put_messages(instruct_reader *r, const json_t *root)
{
    const char *key = r->o->messages_key;
    PS_TRY(ps_chat_append(&r->chat, json_object_get(root, key), key, false, r->where));
    return reader_put_chat(r);
}

/* A conversation, optionally with a separate system message. */
static ps_status reader_put_sharegpt(instruct_reader *r, const ps_jsonl_record *record, const json_t *root)
{
    const json_t *list = json_object_get(root, SHAREGPT_KEY), *system = json_object_get(root, "system");
    if (system != NULL && !json_is_null(system) && !json_is_string(system))
        return ps_jsonl_fail_key(r->lines, record, "system", system, "a string or nothing");
    if (json_string_length(system) > 0) {
        PS_TRY(ps_mem_reserve(&r->chat.messages, 1, sizeof *r->chat.messages));
        r->chat.messages[r->chat.n++] = (ps_chat_message){.role = PS_CHAT_SYSTEM,
                                                          .content = json_string_value(system),
                                                          .n_bytes = (int64_t)json_string_length(system)};
    }
    PS_TRY(ps_chat_append(&r->chat, list, SHAREGPT_KEY, false, r->where));
    return reader_put_chat(r);
}

static ps_status reader_put_alpaca(instruct_reader *r, const json_t *root)
{
    PS_TRY(reader_open_encoder(r));
    PS_TRY(ps_alpaca_append(&r->chat, root, r->encoder.format == PS_CONFIG_CHAT_FORMAT_ALPACA, r->where));
    return reader_put_chat(r);
}

/* Prompt and completion are both strings, or both lists of messages. */
static ps_status reader_put_pair(instruct_reader *r, const ps_jsonl_record *record, const json_t *root)
{
    const ps_instruct_options *o = r->o;
    const json_t *prompt = json_object_get(root, o->prompt_key), *completion = json_object_get(root, o->completion_key);
    const bool is_chat = json_is_array(prompt);
    if (!is_chat && !json_is_string(prompt))
        return ps_jsonl_fail_key(r->lines, record, o->prompt_key, prompt, "a string or a list of messages");
    if (is_chat ? !json_is_array(completion) : !json_is_string(completion))
        return ps_jsonl_fail_key(r->lines, record, o->completion_key, completion,
                                 is_chat ? "a list of messages, as the prompt" : "a string, as the prompt");
    if (!is_chat) return reader_put_texts(r, prompt, completion);
    PS_TRY(ps_chat_append(&r->chat, prompt, o->prompt_key, true, r->where));
    PS_TRY(ps_chat_append(&r->chat, completion, o->completion_key, false, r->where));
    return reader_put_chat(r);
}

/* Chat templates render tools; these formats have no place for them, and would train on a different text. */
static ps_status reader_check_tools(const instruct_reader *r, const json_t *root)
{
    const json_t *tools = json_object_get(root, "tools");
    if (tools == NULL || json_is_null(tools) || (json_is_string(tools) && json_string_length(tools) == 0) ||
        (json_is_array(tools) && json_array_size(tools) == 0))
        return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: \"tools\" are not supported; leave such conversations out", r->where);
}

/* ---- lines ---- */

/* Make a sample of the ids from `first` on, or drop them when no target is left. */
static ps_status reader_end_sample(instruct_reader *r, int64_t first, int64_t line)
{
    ps_instruct_set *s = r->set;
    int64_t n_targets = 0;
    s->info.n_lines++;
    if (s->ids.n - first > r->o->T + 1) {
        s->ids.n = first + r->o->T + 1;
        s->info.n_cut++;
    }
    for (int64_t i = first + 1; i < s->ids.n; i++) n_targets += ps_target_is_marked(s->ids.ids[i]);
    if (n_targets == 0) { /* the first token cannot be a target, as no token precedes it */
        s->ids.n = first;
        s->info.n_left_out++;
        return PS_OK;
    }
    PS_TRY(ps_mem_reserve(&s->entries, (size_t)s->n + 1, sizeof *s->entries));
    s->entries[s->n++] = (instruct_entry){.first = first, .line = line};
    s->info.n_tokens += s->ids.n - first;
    s->info.n_targets += n_targets;
    return PS_OK;
}

static ps_status reader_put_root(instruct_reader *r, const ps_jsonl_record *record, const json_t *root)
{
    switch (r->o->form) {
    case PS_CONFIG_JSONL_FORM_AUTO:
    case PS_CONFIG_JSONL_FORM_TEXT: break; /* never here */
    case PS_CONFIG_JSONL_FORM_MESSAGES: return reader_put_messages(r, root);
    case PS_CONFIG_JSONL_FORM_PROMPT_COMPLETION: return reader_put_pair(r, record, root);
    case PS_CONFIG_JSONL_FORM_ALPACA: return reader_put_alpaca(r, root);
    case PS_CONFIG_JSONL_FORM_SHAREGPT: return reader_put_sharegpt(r, record, root);
    }
    return PS_OK;
}

static ps_status reader_put_line(instruct_reader *r, const ps_jsonl_record *record, const json_t *root)
{
    const int64_t first = r->set->ids.n;
    snprintf(r->where, r->where_bytes, "%s: line %lld, offset %lld", r->path, (long long)record->line,
             (long long)record->offset);
    ps_chat_clear(&r->chat);
    PS_TRY(reader_check_tools(r, root));
    PS_TRY(reader_put_root(r, record, root));
    return reader_end_sample(r, first, record->line);
}

static ps_status reader_read_all(instruct_reader *r)
{
    for (;;) {
        ps_jsonl_record record;
        json_t *root;
        bool has_record;
        PS_TRY(ps_jsonl_next_object(r->lines, &record, &root, &has_record));
        if (!has_record) break;
        PS_TRY(reader_put_line(r, &record, root));
    }
    if (r->set->n > 0) return PS_OK;
    return PS_FAIL(
        PS_EFORMAT,
        "%s: none of the %lld lines has anything to predict within %lld tokens; a longer data.sequence_length "
        "may help, and messages need one of the assistant",
        r->path, (long long)r->set->info.n_lines, (long long)r->o->T + 1);
}

ps_status ps_instruct_set_open(const char *path, const ps_instruct_options *o, ps_instruct_set **out)
{
    PS_ASSERT(o->T >= 1 && o->T <= INT32_MAX);
    PS_ASSERT(o->form != PS_CONFIG_JSONL_FORM_AUTO && o->form != PS_CONFIG_JSONL_FORM_TEXT);
    *out = NULL;
    ps_status st;
    instruct_reader r = {.path = path, .o = o, .where_bytes = strlen(path) + 64};
    PS_TRY(ps_mem_alloc(1, sizeof *r.set, &r.set));
    PS_TRY_GOTO(ps_mem_alloc(r.where_bytes, 1, &r.where));
    r.eos = ps_tokenizer_role(o->tokenizer, PS_ROLE_EOS);
    PS_TRY_GOTO(ps_chat_find_front(o->tokenizer, &r.front));
    PS_TRY_GOTO(ps_jsonl_open(path, NULL, &r.lines));
    PS_TRY_GOTO(reader_read_all(&r));
    *out = r.set;
    r.set = NULL;
out:
    ps_instruct_set_close(r.set);
    ps_jsonl_close(r.lines);
    ps_chat_deinit(&r.chat);
    ps_chat_encoder_deinit(&r.encoder);
    ps_mem_free(r.text.bytes);
    ps_mem_free(r.front.ids);
    ps_mem_free(r.where);
    return st;
}

void ps_instruct_set_close(ps_instruct_set *s)
{
    if (s == NULL) return;
    ps_mem_free(s->ids.ids);
    ps_mem_free(s->entries);
    ps_mem_free(s);
}

int64_t ps_instruct_set_count(const ps_instruct_set *s)
{
    return s->n;
}

ps_instruct_info ps_instruct_set_info(const ps_instruct_set *s)
{
    return s->info;
}

ps_instruct_sample ps_instruct_set_get(const ps_instruct_set *s, int64_t i)
{
    PS_ASSERT(i >= 0 && i < s->n);
    const int64_t begin = s->entries[i].first, end = i + 1 < s->n ? s->entries[i + 1].first : s->ids.n;
    return (ps_instruct_sample){.entries = s->ids.ids + begin, .n = end - begin, .line = s->entries[i].line};
}
