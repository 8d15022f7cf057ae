#include "data/chat_format.h"

#include <string.h>

#include "base/base.h"
#include "base/utf8.h"
#include "data/alpaca.h"
#include "data/unicode_class.h"

/* ---- the tokens of a format ---- */

typedef struct chat_form {
    const char *needs[3]; /* added tokens */
    const char *end;      /* of an answer; NULL: the eos token */
    bool has_bos, has_eos, takes_turns;
} chat_form;

static const chat_form chat_forms[] = {
    [PS_CONFIG_CHAT_FORMAT_CHATML] = {.needs = {"<|im_start|>", "<|im_end|>"}, .end = "<|im_end|>"},
    [PS_CONFIG_CHAT_FORMAT_LLAMA2] = {.has_bos = true, .has_eos = true, .takes_turns = true},
    [PS_CONFIG_CHAT_FORMAT_LLAMA3] = {.needs = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
                                      .end = "<|eot_id|>",
                                      .has_bos = true},
    [PS_CONFIG_CHAT_FORMAT_MISTRAL] = {.has_bos = true, .has_eos = true, .takes_turns = true},
    [PS_CONFIG_CHAT_FORMAT_ALPACA] = {.has_eos = true, .takes_turns = true},
};

/* A token that the format needs and the tokenizer lacks; NULL: none. */
static const char *lacking(const ps_chat_encoder *e, const chat_form *form)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(form->needs) && form->needs[i] != NULL; i++)
        if (ps_tokenizer_find_added(e->tokenizer, form->needs[i]) < 0) return form->needs[i];
    if (form->has_bos && e->bos < 0) return "bos_token";
    return form->has_eos && e->eos < 0 ? "eos_token" : NULL;
}

/* The first format whose tokens the tokenizer has. */
static const char *form_to_choose(const ps_chat_encoder *e)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(chat_forms); i++) {
        const bool exists = chat_forms[i].needs[0] != NULL || chat_forms[i].has_eos;
        if (exists && lacking(e, &chat_forms[i]) == NULL) return ps_config_chat_format_names[i];
    }
    return NULL;
}

static ps_status check_needs(const ps_chat_encoder *e)
{
    const chat_form *form = &chat_forms[e->format];
    const char *lacks = lacking(e, form), *other = form_to_choose(e);
    if (lacks == NULL) return PS_OK;
    const bool is_added = form->needs[0] != NULL && strcmp(lacks, "bos_token") != 0;
    return PS_FAIL(PS_EINVAL, "data.chat_format = %s needs %s%s, which the tokenizer lacks; %s%s%s",
                   ps_config_chat_format_names[e->format], is_added ? "the added token " : "", lacks,
                   is_added ? "add it to the tokenizer and set model.resize_token_embeddings"
                            : "name it in its tokenizer_config.json",
                   other != NULL ? ", or set data.chat_format = " : "", other != NULL ? other : "");
}

/* An added token that includes adjacent white space would change the ids of the format. */
static ps_status check_space(const ps_chat_encoder *e)
{
    const chat_form *form = &chat_forms[e->format];
    const char *const inst[] = {"[INST]", "[/INST]"};
    int32_t ids[PS_ARRAY_LEN(form->needs) + PS_ARRAY_LEN(inst) + 2], n = 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(form->needs) && form->needs[i] != NULL; i++)
        ids[n++] = ps_tokenizer_find_added(e->tokenizer, form->needs[i]);
    for (size_t i = 0; i < PS_ARRAY_LEN(inst) && form->takes_turns; i++)
        ids[n++] = ps_tokenizer_find_added(e->tokenizer, inst[i]);
    if (form->has_bos) ids[n++] = e->bos;
    if (form->has_eos) ids[n++] = e->eos;
    for (int32_t i = 0; i < n; i++) {
        if (!ps_tokenizer_strips_space(e->tokenizer, ids[i])) continue;
        int64_t n_bytes;
        const char *text = ps_tokenizer_token(e->tokenizer, ids[i], &n_bytes);
        return PS_FAIL(PS_EINVAL,
                       "data.chat_format = %s: the tokenizer's token %.*s includes adjacent white space (lstrip or "
                       "rstrip), which is not supported in conversations",
                       ps_config_chat_format_names[e->format], (int)n_bytes, text != NULL ? text : "");
    }
    return PS_OK;
}

ps_status ps_chat_encoder_init(ps_chat_encoder *e, ps_config_chat_format format, const char *default_system,
                               ps_tokenizer *tokenizer)
{
    PS_ASSERT(format != PS_CONFIG_CHAT_FORMAT_AUTO);
    *e = (ps_chat_encoder){.format = format,
                           .tokenizer = tokenizer,
                           .default_system = default_system,
                           .bos = ps_tokenizer_role(tokenizer, PS_ROLE_BOS),
                           .eos = ps_tokenizer_role(tokenizer, PS_ROLE_EOS),
                           .target_from = -1};
    PS_TRY(check_needs(e));
    PS_TRY(check_space(e));
    if (format != PS_CONFIG_CHAT_FORMAT_ALPACA) return PS_OK;
    const ps_status st = ps_chat_find_front(tokenizer, &e->front);
    if (st != PS_OK) ps_chat_encoder_deinit(e);
    return st;
}

void ps_chat_encoder_deinit(ps_chat_encoder *e)
{
    ps_mem_free(e->piece.bytes);
    ps_mem_free(e->front.ids);
    *e = (ps_chat_encoder){0};
}

/* The ids that the tokenizer puts before a text. */
ps_status ps_chat_find_front(ps_tokenizer *tokenizer, ps_id_list *front)
{
    ps_status st;
    ps_encoding whole = {0}, bare = {0};
    const ps_encode_options options = {0}, bare_options = {.bare = true};
    PS_TRY_GOTO(ps_tokenizer_encode_sequence(tokenizer, &options, "a", 1, NULL, 0, &whole));
    PS_TRY_GOTO(ps_tokenizer_encode_sequence(tokenizer, &bare_options, "a", 1, NULL, 0, &bare));
    for (int64_t i = 0; i < whole.n && bare.n > 0 && whole.ids[i] != bare.ids[0]; i++)
        PS_TRY_GOTO(ps_ids_append(front, whole.ids[i]));
out:
    ps_encoding_deinit(&whole);
    ps_encoding_deinit(&bare);
    return st;
}

/* ---- pieces ---- */

ps_status ps_chat_encode_text(ps_tokenizer *tokenizer, const ps_encode_options *options, const char *text,
                              int64_t n_bytes, int64_t target_from, ps_id_list *out)
{
    ps_status st;
    ps_encoding all = {0}, before = {0};
    int64_t first = 0;
    PS_ASSERT(options->bare && options->max_length == 0);
    PS_TRY_GOTO(ps_tokenizer_encode_sequence(tokenizer, options, text, n_bytes, NULL, 0, &all));
    if (target_from > 0)
        PS_TRY_GOTO(ps_tokenizer_encode_sequence(tokenizer, options, text, target_from, NULL, 0, &before));
    if (target_from < 0) first = all.n;
    while (first < ps_min_i64(all.n, before.n) && all.ids[first] == before.ids[first]) first++;
    PS_TRY_GOTO(ps_ids_reserve(out, all.n));
    for (int64_t i = 0; i < all.n; i++) out->ids[out->n++] = i < first ? all.ids[i] : ps_target_mark(all.ids[i]);
out:
    ps_encoding_deinit(&all);
    ps_encoding_deinit(&before);
    return st;
}

/* A special token precedes every piece, except the first of alpaca where the tokenizer has no prefix. */
static ps_status end_piece(ps_chat_encoder *e, ps_id_list *out)
{
    const ps_encode_options options = {.bare = true, .after_token = e->has_token};
    if (e->piece.n > 0)
        PS_TRY(ps_chat_encode_text(e->tokenizer, &options, e->piece.bytes, e->piece.n, e->target_from, out));
    e->piece.n = 0;
    e->target_from = -1;
    return PS_OK;
}

static ps_status put_id(ps_chat_encoder *e, int32_t id, bool is_target, ps_id_list *out)
{
    PS_TRY(end_piece(e, out));
    e->has_token = true;
    return ps_ids_append(out, is_target ? ps_target_mark(id) : id);
}

static ps_status put_text(ps_chat_encoder *e, const char *text)
{
    return ps_text_append(&e->piece, text, (int64_t)strlen(text));
}

/* An added token where the tokenizer has it, else text. */
static ps_status put_literal(ps_chat_encoder *e, const char *text, bool is_target, ps_id_list *out)
{
    const int32_t id = ps_tokenizer_find_added(e->tokenizer, text);
    return id >= 0 ? put_id(e, id, is_target, out) : put_text(e, text);
}

/* White space as in Python's str.strip. */
static bool is_space(int32_t c)
{
    return ps_is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

/* Strip white space from the end of the piece, but not before byte `from`. JSON strings are well-formed UTF-8. */
static void strip_end(ps_chat_encoder *e, int64_t from)
{
    while (e->piece.n > from) {
        const char *end = e->piece.bytes + e->piece.n;
        int length = ps_utf8_length_before(end);
        if (!is_space(ps_utf8_get(end - length, &length))) break;
        e->piece.n -= length;
    }
}

static ps_status put_stripped(ps_chat_encoder *e, const ps_chat_message *m)
{
    const char *begin = m->content, *end = begin + m->n_bytes;
    const int64_t from = e->piece.n;
    for (int length; begin < end && is_space(ps_utf8_get(begin, &length)); begin += length) {
    }
    PS_TRY(ps_text_append(&e->piece, begin, end - begin));
    strip_end(e, from);
    return PS_OK;
}

static void begin_targets(ps_chat_encoder *e, const ps_chat_message *m)
{
    if (m->role == PS_CHAT_ASSISTANT && !m->is_given) e->target_from = e->piece.n;
}

/* ---- forms ---- */

static ps_status put_chatml(ps_chat_encoder *e, const ps_chat_message *m, ps_id_list *out)
{
    const bool is_target = m->role == PS_CHAT_ASSISTANT && !m->is_given;
    PS_TRY(put_literal(e, "<|im_start|>", false, out));
    PS_TRY(put_text(e, ps_chat_role_names[m->role]));
    PS_TRY(put_text(e, "\n"));
    begin_targets(e, m);
    PS_TRY(ps_text_append(&e->piece, m->content, m->n_bytes));
    PS_TRY(put_literal(e, "<|im_end|>", is_target, out));
    return put_text(e, "\n");
}

static ps_status put_llama3(ps_chat_encoder *e, const ps_chat_message *m, ps_id_list *out)
{
    const bool is_target = m->role == PS_CHAT_ASSISTANT && !m->is_given;
    PS_TRY(put_literal(e, "<|start_header_id|>", false, out));
    PS_TRY(put_text(e, ps_chat_role_names[m->role]));
    PS_TRY(put_literal(e, "<|end_header_id|>", false, out));
    PS_TRY(put_text(e, "\n\n"));
    begin_targets(e, m);
    PS_TRY(put_stripped(e, m));
    return put_literal(e, "<|eot_id|>", is_target, out);
}

/* system: the message before the first one of the user, or NULL */
static ps_status put_llama2(ps_chat_encoder *e, const ps_chat_message *system, const ps_chat_message *m,
                            ps_id_list *out)
{
    if (m->role == PS_CHAT_ASSISTANT) {
        begin_targets(e, m);
        PS_TRY(put_text(e, " "));
        PS_TRY(put_stripped(e, m));
        PS_TRY(put_text(e, " "));
        return put_id(e, e->eos, !m->is_given, out);
    }
    PS_TRY(put_id(e, e->bos, false, out));
    PS_TRY(put_literal(e, "[INST]", false, out));
    PS_TRY(put_text(e, " "));
    if (system != NULL) {
        const int64_t from = e->piece.n;
        PS_TRY(put_text(e, "<<SYS>>\n"));
        PS_TRY(ps_text_append(&e->piece, system->content, system->n_bytes));
        PS_TRY(put_text(e, "\n<</SYS>>\n\n"));
        PS_TRY(ps_text_append(&e->piece, m->content, m->n_bytes));
        strip_end(e, from);
    } else {
        PS_TRY(put_stripped(e, m));
    }
    PS_TRY(put_text(e, " "));
    return put_literal(e, "[/INST]", false, out);
}

static ps_status put_mistral(ps_chat_encoder *e, const ps_chat_message *m, ps_id_list *out)
{
    if (m->role == PS_CHAT_ASSISTANT) {
        begin_targets(e, m);
        PS_TRY(ps_text_append(&e->piece, m->content, m->n_bytes));
        return put_id(e, e->eos, !m->is_given, out);
    }
    PS_TRY(put_literal(e, "[INST]", false, out));
    PS_TRY(put_text(e, " "));
    PS_TRY(ps_text_append(&e->piece, m->content, m->n_bytes));
    PS_TRY(put_text(e, " "));
    return put_literal(e, "[/INST]", false, out);
}

/* system: as for llama2, NULL: the preamble; is_first: no earlier answer */
static ps_status put_alpaca(ps_chat_encoder *e, const ps_chat_message *system, bool is_first, const ps_chat_message *m,
                            ps_id_list *out)
{
    if (m->role == PS_CHAT_ASSISTANT) {
        begin_targets(e, m);
        PS_TRY(ps_text_append(&e->piece, m->content, m->n_bytes));
        return put_id(e, e->eos, !m->is_given, out);
    }
    if (is_first && system != NULL) PS_TRY(ps_text_append(&e->piece, system->content, system->n_bytes));
    if (is_first && system == NULL) PS_TRY(put_text(e, PS_ALPACA_PREAMBLE));
    PS_TRY(put_text(e, "\n\n### Instruction:\n"));
    PS_TRY(ps_text_append(&e->piece, m->content, m->n_bytes));
    return put_text(e, "\n\n### Response:\n");
}

/* ---- conversations ---- */

/* User and assistant must alternate, in llama2 optionally after a system message. */
static ps_status check_turns(const ps_chat_encoder *e, const ps_chat *c, const char *where)
{
    const char *name = ps_config_chat_format_names[e->format];
    const bool has_system = c->messages[0].role == PS_CHAT_SYSTEM;
    if (has_system && e->format == PS_CONFIG_CHAT_FORMAT_MISTRAL)
        return PS_FAIL(PS_EFORMAT,
                       "%s: the form %s has no system messages; put what it says into the first one of the user", where,
                       name);
    for (int64_t i = has_system; i < c->n; i++) {
        const ps_chat_role expected = (i - has_system) % 2 == 0 ? PS_CHAT_USER : PS_CHAT_ASSISTANT;
        if (c->messages[i].role != expected)
            return PS_FAIL(PS_EFORMAT,
                           "%s: message %lld is the %s's, expected the %s's: in the form %s user and "
                           "assistant take turns",
                           where, (long long)i, ps_chat_role_names[c->messages[i].role], ps_chat_role_names[expected],
                           name);
    }
    return PS_OK;
}

/* Message i of c. */
static ps_status put_message(ps_chat_encoder *e, const ps_chat *c, int64_t i, ps_id_list *out)
{
    const ps_chat_message *m = &c->messages[i], *first = &c->messages[0];
    const ps_chat_message *system = first->role == PS_CHAT_SYSTEM ? first : NULL;
    switch (e->format) {
    case PS_CONFIG_CHAT_FORMAT_AUTO: break; /* never here */
    case PS_CONFIG_CHAT_FORMAT_CHATML: return put_chatml(e, m, out);
    case PS_CONFIG_CHAT_FORMAT_LLAMA3: return put_llama3(e, m, out);
    case PS_CONFIG_CHAT_FORMAT_MISTRAL: return put_mistral(e, m, out);
    case PS_CONFIG_CHAT_FORMAT_ALPACA:
        return m != system ? put_alpaca(e, system, i == (system != NULL), m, out) : PS_OK;
    case PS_CONFIG_CHAT_FORMAT_LLAMA2:
        return m != system ? put_llama2(e, i == 1 ? system : NULL, m, out) : PS_OK; /* that is part of the next */
    }
    return PS_OK;
}

ps_status ps_chat_encode(ps_chat_encoder *e, const ps_chat *c, const char *where, ps_id_list *out)
{
    if (c->n == 0) return PS_FAIL(PS_EFORMAT, "%s: a conversation without any message", where);
    const chat_form *form = &chat_forms[e->format];
    e->piece.n = 0;
    e->target_from = -1;
    e->has_token = false;
    if (form->takes_turns) PS_TRY(check_turns(e, c, where));
    if (form->has_bos && e->format != PS_CONFIG_CHAT_FORMAT_LLAMA2) PS_TRY(put_id(e, e->bos, false, out));
    for (int64_t i = 0; i < e->front.n; i++) PS_TRY(put_id(e, e->front.ids[i], false, out));
    const ps_chat_message added = {.role = PS_CHAT_SYSTEM,
                                   .content = e->default_system,
                                   .n_bytes = e->default_system != NULL ? (int64_t)strlen(e->default_system) : 0};
    if (c->messages[0].role != PS_CHAT_SYSTEM && e->default_system != NULL) PS_TRY(put_chatml(e, &added, out));
    for (int64_t i = 0; i < c->n; i++) PS_TRY(put_message(e, c, i, out));
    return end_piece(e, out);
}

/* An empty answer shows where an answer begins: at its first target. */
ps_status ps_chat_encode_prompt(ps_chat_encoder *e, const ps_chat *c, const char *where, ps_id_list *out)
{
    ps_chat asked = {.n = c->n + 1};
    const int64_t begin = out->n;
    PS_TRY(ps_mem_alloc((size_t)asked.n, sizeof *asked.messages, &asked.messages));
    for (int64_t i = 0; i < c->n; i++) {
        asked.messages[i] = c->messages[i];
        asked.messages[i].is_given = true;
    }
    asked.messages[c->n] = (ps_chat_message){.role = PS_CHAT_ASSISTANT, .content = ""};
    const ps_status st = ps_chat_encode(e, &asked, where, out);
    ps_mem_free(asked.messages);
    int64_t n = begin;
    while (n < out->n && !ps_target_is_marked(out->ids[n])) n++;
    out->n = st == PS_OK ? n : begin;
    return st;
}

int32_t ps_chat_end_of_answer(const ps_chat_encoder *e)
{
    const char *end = chat_forms[e->format].end;
    return end != NULL ? ps_tokenizer_find_added(e->tokenizer, end) : e->eos;
}
