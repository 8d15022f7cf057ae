#include "data/chat_message.h"

#include <string.h>

#include "base/base.h"
#include "base/mem.h"
#include "data/jsonl.h"

const char *const ps_chat_role_names[PS_CHAT_ROLE_COUNT] = {"system", "user", "assistant"};

/* Message, list and position in the file, for error messages. */
typedef struct message_position {
    const char *where, *key;
    size_t i;
} message_position;

#define FAIL_AT(p, format, ...) PS_FAIL(PS_EFORMAT, "%s: %s[%zu]" format, (p)->where, (p)->key, (p)->i, __VA_ARGS__)

/* Names of a message's keys and roles: OpenAI's, or those of ShareGPT. */
typedef struct message_keys {
    const char *role, *content, *roles;
    const char *const *others; /* [PS_CHAT_ROLE_COUNT] names of roles in addition to ps_chat_role_names */
} message_keys;

static const message_keys *keys_of(const json_t *message)
{
    static const char *const humans[PS_CHAT_ROLE_COUNT] = {"system", "human", "gpt"};
    static const message_keys openai = {"role", "content", "system, user and assistant", ps_chat_role_names};
    static const message_keys sharegpt = {"from", "value", "system, human (user) and gpt (assistant)", humans};
    const bool is_sharegpt = json_object_get(message, "role") == NULL && json_object_get(message, "from") != NULL;
    return is_sharegpt ? &sharegpt : &openai;
}

static ps_status read_role(const message_position *p, const json_t *message, const message_keys *k, ps_chat_role *out)
{
    const json_t *role = json_object_get(message, k->role);
    if (!json_is_string(role))
        return FAIL_AT(p, ".%s is %s, expected one of %s", k->role, ps_jsonl_type_name(role), k->roles);
    for (*out = 0; *out < PS_CHAT_ROLE_COUNT; ++*out)
        if (strcmp(json_string_value(role), ps_chat_role_names[*out]) == 0 ||
            strcmp(json_string_value(role), k->others[*out]) == 0)
            return PS_OK;
    return FAIL_AT(p, ": role \"%.40s\" is not supported; the roles are %s", json_string_value(role), k->roles);
}

/* Keys that must not be ignored. */
static ps_status check_calls(const message_position *p, const json_t *message)
{
    static const char *const keys[] = {"tool_calls", "function_call"};
    for (size_t k = 0; k < PS_ARRAY_LEN(keys); k++) {
        const json_t *value = json_object_get(message, keys[k]);
        if (value != NULL && !json_is_null(value) && !(json_is_array(value) && json_array_size(value) == 0))
            return FAIL_AT(p, ".%s: calls of tools are not supported; leave such conversations out", keys[k]);
    }
    return PS_OK;
}

/* Join a list of parts. */
static ps_status join_parts(const message_position *p, const json_t *parts, ps_chat_message *out)
{
    for (size_t k = 0; k < json_array_size(parts); k++) {
        const json_t *part = json_array_get(parts, k), *text = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (type == NULL || strcmp(type, "text") != 0)
            return FAIL_AT(p, ".content[%zu] has type \"%.40s\"; only parts of type \"text\" are supported", k,
                           type != NULL ? type : "");
        if (!json_is_string(text))
            return FAIL_AT(p, ".content[%zu].text is %s, expected a string", k, ps_jsonl_type_name(text));
        out->n_bytes += (int64_t)json_string_length(text);
    }
    PS_TRY(ps_mem_alloc((size_t)out->n_bytes + 1, 1, &out->joined));
    char *at = out->joined;
    for (size_t k = 0; k < json_array_size(parts); k++) {
        const json_t *text = json_object_get(json_array_get(parts, k), "text");
        memcpy(at, json_string_value(text), json_string_length(text));
        at += json_string_length(text);
    }
    out->content = out->joined;
    return PS_OK;
}

static ps_status read_message(const message_position *p, const json_t *message, ps_chat_message *out)
{
    if (!json_is_object(message))
        return FAIL_AT(p, " is %s, expected an object with \"role\" and \"content\"", ps_jsonl_type_name(message));
    const message_keys *k = keys_of(message);
    const json_t *content = json_object_get(message, k->content);
    PS_TRY(read_role(p, message, k, &out->role));
    PS_TRY(check_calls(p, message));
    if (json_is_array(content)) return join_parts(p, content, out);
    if (!json_is_string(content))
        return FAIL_AT(p, ".%s is %s, expected a string or a list of text parts", k->content,
                       ps_jsonl_type_name(content));
    out->content = json_string_value(content);
    out->n_bytes = (int64_t)json_string_length(content);
    return PS_OK;
}

ps_status ps_chat_append(ps_chat *c, const json_t *list, const char *key, bool is_given, const char *where)
{
    if (!json_is_array(list))
        return PS_FAIL(PS_EFORMAT, "%s: \"%s\" is %s, expected a list of messages", where, key,
                       ps_jsonl_type_name(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const message_position at = {where, key, i};
        PS_TRY(ps_mem_reserve(&c->messages, (size_t)c->n + 1, sizeof *c->messages));
        c->messages[c->n] = (ps_chat_message){.is_given = is_given};
        PS_TRY(read_message(&at, json_array_get(list, i), &c->messages[c->n]));
        c->n++;
    }
    return PS_OK;
}

void ps_chat_clear(ps_chat *c)
{
    for (int64_t i = 0; i < c->n; i++) ps_mem_free(c->messages[i].joined);
    c->n = 0;
}

void ps_chat_deinit(ps_chat *c)
{
    ps_chat_clear(c);
    ps_mem_free(c->messages);
    *c = (ps_chat){0};
}
