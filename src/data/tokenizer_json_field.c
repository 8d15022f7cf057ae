/* tokenizer_json_field.c - reads fields of a tokenizer.json, and reports errors in them. */
#include "data/tokenizer_json.h"

#include <stdio.h>

#include "base/utf8.h"

ps_status ps_json_check_keys(const ps_json_where *at, json_t *object, const char *keys)
{
    if (!json_is_object(object)) return PS_FAIL(PS_EFORMAT, "%s: %s: expected an object", at->file, at->part);
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        const size_t n = strlen(key);
        const bool is_word = n > 0 && strchr(key, ' ') == NULL;
        const char *found = is_word ? strstr(keys, key) : NULL;
        while (found != NULL && !((found == keys || found[-1] == ' ') && (found[n] == ' ' || found[n] == '\0')))
            found = strstr(found + n, key);
        if (found == NULL)
            return PS_FAIL(PS_EFORMAT, "%s: %s: the field \"%.64s\" is not supported; known are %s", at->file, at->part,
                           key, keys);
    }
    return PS_OK;
}

ps_status ps_json_get_bool(const ps_json_where *at, json_t *object, const char *key, bool *value)
{
    const json_t *field = json_object_get(object, key);
    if (field == NULL || json_is_null(field)) return PS_OK;
    if (!json_is_boolean(field))
        return PS_FAIL(PS_EFORMAT, "%s: %s: \"%s\" is neither true nor false", at->file, at->part, key);
    *value = json_is_true(field);
    return PS_OK;
}

ps_status ps_json_get_string(const ps_json_where *at, json_t *object, const char *key, const char **value)
{
    *value = json_string_value(json_object_get(object, key));
    return *value != NULL ? PS_OK : PS_FAIL(PS_EFORMAT, "%s: %s: expected a string \"%s\"", at->file, at->part, key);
}

ps_status ps_json_get_type(const ps_json_where *at, json_t *component, const char **type)
{
    if (!json_is_object(component)) return PS_FAIL(PS_EFORMAT, "%s: %s: expected an object", at->file, at->part);
    return ps_json_get_string(at, component, "type", type);
}

ps_status ps_json_get_character(const ps_json_where *at, json_t *object, const char *key, char to[8])
{
    const char *text;
    PS_TRY(ps_json_get_string(at, object, key, &text));
    const size_t n = strlen(text);
    if (n == 0 || ps_utf8_length(text, (int64_t)n) != (int64_t)n)
        return PS_FAIL(PS_EFORMAT, "%s: %s: \"%s\" is \"%.64s\", expected one character", at->file, at->part, key,
                       text);
    memcpy(to, text, n + 1);
    return PS_OK;
}

ps_status ps_json_get_pattern(const ps_json_where *at, json_t *component, const char **regex, const char **literal)
{
    json_t *pattern = json_object_get(component, "pattern");
    PS_TRY(ps_json_check_keys(at, pattern, "Regex String"));
    *regex = json_string_value(json_object_get(pattern, "Regex"));
    *literal = json_string_value(json_object_get(pattern, "String"));
    if ((*regex == NULL) != (*literal == NULL) && (*literal == NULL || (*literal)[0] != '\0')) return PS_OK;
    return PS_FAIL(PS_EFORMAT, "%s: %s: expected a pattern \"Regex\" or \"String\"", at->file, at->part);
}

ps_status ps_json_get_metaspace(const ps_json_where *at, json_t *component, char mark[8], ps_metaspace_prefix *prefix,
                                bool *splits)
{
    static const char *const names[] = {
        [PS_METASPACE_ALWAYS] = "always", [PS_METASPACE_FIRST] = "first", [PS_METASPACE_NEVER] = "never"};
    const char *name = "always";
    bool adds = true;
    *splits = true;
    PS_TRY(ps_json_check_keys(at, component, "type replacement prepend_scheme split add_prefix_space str_rep"));
    PS_TRY(ps_json_get_character(at, component, "replacement", mark));
    PS_TRY(ps_json_get_bool(at, component, "split", splits));
    PS_TRY(ps_json_get_bool(at, component, "add_prefix_space", &adds));
    if (json_object_get(component, "prepend_scheme") != NULL)
        PS_TRY(ps_json_get_string(at, component, "prepend_scheme", &name));
    for (size_t i = 0; i < PS_ARRAY_LEN(names); i++) {
        if (!ps_json_type_is(name, names[i])) continue;
        *prefix = (ps_metaspace_prefix)i;
        if (adds || *prefix == PS_METASPACE_NEVER) return PS_OK;
        return PS_FAIL(PS_EFORMAT, "%s: %s: add_prefix_space does not match prepend_scheme %s", at->file, at->part,
                       name);
    }
    return PS_FAIL(PS_EFORMAT, "%s: %s: prepend_scheme %.64s is not supported; known are always, first, never",
                   at->file, at->part, name);
}

ps_status ps_json_get_sequence(const ps_json_where *at, json_t *component, const char *key, int depth, json_t **items)
{
    enum { DEPTH_MAX = 8 };
    char keys[64];
    snprintf(keys, sizeof keys, "type %s", key);
    PS_TRY(ps_json_check_keys(at, component, keys));
    *items = json_object_get(component, key);
    if (!json_is_array(*items) || depth == DEPTH_MAX)
        return PS_FAIL(PS_EFORMAT, "%s: %s Sequence: expected an array \"%s\", at most %d deep", at->file, at->part,
                       key, DEPTH_MAX);
    return PS_OK;
}

ps_status ps_json_refuse(const char *file, const char *what, const char *type)
{
    return PS_FAIL(PS_EFORMAT, "%s: %s %.64s is not supported", file, what, type);
}
