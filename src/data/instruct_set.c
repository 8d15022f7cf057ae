#include "data/instruct_set.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "data/chat_format.h"
#include "data/chat_template.h"
#include "data/jsonl.h"

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
    ps_id_list front;    /* what stands before a prompt */
    int32_t eos;         /* and behind a completion; -1: the tokenizer has none */
    char *where;         /* the beginning of messages about the line */
    size_t where_bytes;
} instruct_reader;

/* ---- which form ---- */

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
    if (json_object_get(root, o->text_key) != NULL)
        *out = PS_CONFIG_JSONL_FORM_TEXT;
    else if (json_object_get(root, o->messages_key) != NULL)
        *out = PS_CONFIG_JSONL_FORM_MESSAGES;
    else if (json_object_get(root, o->prompt_key) != NULL && json_object_get(root, o->completion_key) != NULL)
        *out = PS_CONFIG_JSONL_FORM_PROMPT_COMPLETION;
    else
        st = PS_FAIL(
            PS_EFORMAT,
            "%s: line %lld, offset %lld: expected the key \"%s\", or \"%s\", or \"%s\" and \"%s\"; data.text_key "
            "and the like name others",
            path, (long long)record.line, (long long)record.offset, o->text_key, o->messages_key, o->prompt_key,
            o->completion_key);
out:
    ps_jsonl_close(lines);
    return st;
}

/* ---- prompts and completions ---- */

/* What the tokenizer puts in front of a text, such as its bos token: the ids before those of a text alone. */
static ps_status reader_find_borders(instruct_reader *r)
{
    ps_status st;
    ps_encoding whole = {0}, bare = {0};
    const ps_encode_options options = {0}, bare_options = {.bare = true};
    r->eos = ps_tokenizer_role(r->o->tokenizer, PS_ROLE_EOS);
    PS_TRY_GOTO(ps_tokenizer_encode_sequence(r->o->tokenizer, &options, "a", 1, NULL, 0, &whole));
    PS_TRY_GOTO(ps_tokenizer_encode_sequence(r->o->tokenizer, &bare_options, "a", 1, NULL, 0, &bare));
    for (int64_t i = 0; i < whole.n && bare.n > 0 && whole.ids[i] != bare.ids[0]; i++)
        PS_TRY_GOTO(ps_ids_append(&r->front, whole.ids[i]));
out:
    ps_encoding_deinit(&whole);
    ps_encoding_deinit(&bare);
    return st;
}

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

/* The form is asked for when the first conversation comes: prompts that are strings need none. */
static ps_status reader_open_encoder(instruct_reader *r)
{
    const ps_instruct_options *o = r->o;
    ps_chat_template t = {.format = o->chat_format};
    if (r->encoder.tokenizer != NULL) return PS_OK;
    if (o->added_tokens)
        return PS_FAIL(PS_EINVAL,
                       "%s: with messages data.added_tokens has no effect: their contents are only text; remove it",
                       r->where);
    if (t.format == PS_CONFIG_CHAT_FORMAT_AUTO) PS_TRY(ps_chat_template_of(o->tokenizer_path, &t));
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

/* Both strings, or both lists of messages. */
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

/* Templates show the model its tools; forms without a place for them would train on something else. */
static ps_status reader_check_tools(const instruct_reader *r, const json_t *root)
{
    const json_t *tools = json_object_get(root, "tools");
    if (tools == NULL || json_is_null(tools) || (json_is_array(tools) && json_array_size(tools) == 0)) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: \"tools\" are not supported; leave such conversations out", r->where);
}

/* ---- lines ---- */

/* The ids from `first` on become a sample, or nothing when no target is left. */
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
    if (n_targets == 0) { /* the first token has nothing before it that would predict it */
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

static ps_status reader_put_line(instruct_reader *r, ps_config_jsonl_form form, const ps_jsonl_record *record,
                                 const json_t *root)
{
    const int64_t first = r->set->ids.n;
    snprintf(r->where, r->where_bytes, "%s: line %lld, offset %lld", r->path, (long long)record->line,
             (long long)record->offset);
    ps_chat_clear(&r->chat);
    PS_TRY(reader_check_tools(r, root));
    PS_TRY(form == PS_CONFIG_JSONL_FORM_MESSAGES ? reader_put_messages(r, root) : reader_put_pair(r, record, root));
    return reader_end_sample(r, first, record->line);
}

static ps_status reader_read_all(instruct_reader *r, ps_config_jsonl_form form)
{
    for (;;) {
        ps_jsonl_record record;
        json_t *root;
        bool has_record;
        PS_TRY(ps_jsonl_next_object(r->lines, &record, &root, &has_record));
        if (!has_record) break;
        PS_TRY(reader_put_line(r, form, &record, root));
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
    PS_ASSERT(o->form == PS_CONFIG_JSONL_FORM_MESSAGES || o->form == PS_CONFIG_JSONL_FORM_PROMPT_COMPLETION);
    *out = NULL;
    ps_status st;
    instruct_reader r = {.path = path, .o = o, .where_bytes = strlen(path) + 64};
    PS_TRY(ps_mem_alloc(1, sizeof *r.set, &r.set));
    PS_TRY_GOTO(ps_mem_alloc(r.where_bytes, 1, &r.where));
    PS_TRY_GOTO(reader_find_borders(&r));
    PS_TRY_GOTO(ps_jsonl_open(path, NULL, &r.lines));
    PS_TRY_GOTO(reader_read_all(&r, o->form));
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
