#include "data/alpaca.h"

#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "data/jsonl.h"

static const char preamble_of_input[] = "Below is an instruction that describes a task, paired with an input that "
                                        "provides further context. " PS_ALPACA_REQUEST;

static ps_status add(ps_chat *c, ps_chat_role role, const char *text, int64_t n_bytes)
{
    PS_TRY(ps_mem_reserve(&c->messages, (size_t)c->n + 1, sizeof *c->messages));
    c->messages[c->n++] = (ps_chat_message){.role = role, .content = text, .n_bytes = n_bytes};
    return PS_OK;
}

static ps_status add_text(ps_chat *c, ps_chat_role role, const json_t *text)
{
    return add(c, role, json_string_value(text), (int64_t)json_string_length(text));
}

/* A required text, or an optional one, which is NULL when it is missing, null or empty. */
static ps_status take_text(const json_t *line, const char *key, bool is_needed, const char *where, const json_t **out)
{
    const json_t *value = json_object_get(line, key);
    *out = NULL;
    if (!json_is_string(value) && (is_needed || (value != NULL && !json_is_null(value))))
        return PS_FAIL(PS_EFORMAT,
                       "%s: \"%s\" is %s, expected a string%s; lines of Alpaca's form have \"instruction\", "
                       "\"input\", which may be missing, and \"output\"",
                       where, key, ps_jsonl_type_name(value), is_needed ? "" : " or nothing");
    if (is_needed || json_string_length(value) > 0) *out = value;
    return PS_OK;
}

static ps_status add_history(ps_chat *c, const json_t *history, const char *where)
{
    if (history == NULL || json_is_null(history)) return PS_OK;
    if (!json_is_array(history))
        return PS_FAIL(PS_EFORMAT, "%s: \"history\" is %s, expected a list of pairs of texts", where,
                       ps_jsonl_type_name(history));
    for (size_t i = 0; i < json_array_size(history); i++) {
        const json_t *pair = json_array_get(history, i);
        const json_t *asked = json_array_get(pair, 0), *answered = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_string(asked) || !json_is_string(answered))
            return PS_FAIL(PS_EFORMAT, "%s: \"history\"[%zu] is no pair of texts", where, i);
        PS_TRY(add_text(c, PS_CHAT_USER, asked));
        PS_TRY(add_text(c, PS_CHAT_ASSISTANT, answered));
    }
    return PS_OK;
}

/* Instruction and input as one text, which the chat owns. */
static ps_status add_joined(ps_chat *c, const json_t *instruction, const char *between, const json_t *input)
{
    const size_t n = json_string_length(instruction), n_between = strlen(between), n_input = json_string_length(input);
    PS_TRY(add_text(c, PS_CHAT_USER, instruction));
    ps_chat_message *m = &c->messages[c->n - 1];
    PS_TRY(ps_mem_alloc(n + n_between + n_input + 1, 1, &m->joined));
    memcpy(m->joined, json_string_value(instruction), n);
    memcpy(m->joined + n, between, n_between);
    memcpy(m->joined + n + n_between, json_string_value(input), n_input);
    m->content = m->joined;
    m->n_bytes = (int64_t)(n + n_between + n_input);
    return PS_OK;
}

ps_status ps_alpaca_append(ps_chat *c, const json_t *line, bool has_own_form, const char *where)
{
    const json_t *instruction, *input, *output, *system;
    PS_TRY(take_text(line, "instruction", true, where, &instruction));
    PS_TRY(take_text(line, "input", false, where, &input));
    PS_TRY(take_text(line, "output", true, where, &output));
    PS_TRY(take_text(line, "system", false, where, &system));
    if (system != NULL)
        PS_TRY(add_text(c, PS_CHAT_SYSTEM, system));
    else if (has_own_form && input != NULL)
        PS_TRY(add(c, PS_CHAT_SYSTEM, preamble_of_input, (int64_t)strlen(preamble_of_input)));
    PS_TRY(add_history(c, json_object_get(line, "history"), where));
    PS_TRY(input != NULL ? add_joined(c, instruction, has_own_form ? "\n\n### Input:\n" : "\n", input)
                         : add_text(c, PS_CHAT_USER, instruction));
    return add_text(c, PS_CHAT_ASSISTANT, output);
}
