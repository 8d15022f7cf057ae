/* config_json.c - reads JSON text into a ps_config: jansson parses, then a walk over the keys. */
#include "base/printable.h"
#include "config/config_state.h"
#include "config/json_locate.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    ps_config *config;
    const char *text;
    size_t n_bytes;
} reader;

enum which { AT_KEY, AT_VALUE };

static void line_column(const reader *r, const ps_json_path *path, enum which which, int *line, int *column)
{
    ps_json_position position;
    ps_json_locate(r->text, r->n_bytes, path, &position);
    ps_json_line_column(r->text, which == AT_KEY ? position.key_offset : position.value_offset, line, column);
}

/* PS_EINVAL with "file:line:column: message". */
__attribute__((format(printf, 4, 5))) static ps_status fail_at(const reader *r, const ps_json_path *path,
                                                               enum which which, const char *format, ...)
{
    char message[768];
    int line, column;
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof message, format, ap);
    va_end(ap);
    line_column(r, path, which, &line, &column);
    return PS_FAIL(PS_EINVAL, "%s:%d:%d: %s", r->config->name, line, column, message);
}

/* The option was given before under another name. If one of the names is a scaled alias, a default value, or a value
 * equal to the other one, is ignored. *counts: use the present value. */
static ps_status read_again(const reader *r, ps_option_id id, const ps_option_alias *alias, ps_option_value value,
                            const ps_json_path *path, bool *counts)
{
    const ps_option *option = &ps_option_table[id];
    const ps_config_origin *first = &r->config->origin[id];
    const ps_option_value before = ps_option_load(option, &r->config->options);
    const bool is_scaled = (alias != NULL && alias->is_scaled) || (first->alias != NULL && first->alias->is_scaled);
    *counts = is_scaled && ps_option_is_equal(option, before, option->value);
    if (*counts ||
        (is_scaled && (ps_option_is_equal(option, value, before) || ps_option_is_equal(option, value, option->value))))
        return PS_OK;
    return fail_at(r, path, AT_KEY, "%s and %s, which line %d gives, are the same option; keep one",
                   alias != NULL ? alias->key : option->key, ps_config_key(r->config, id), first->line);
}

static ps_status read_value(const reader *r, ps_option_id id, const ps_option_alias *alias, const ps_json_path *path,
                            const json_t *json)
{
    char problem[PS_OPTION_TEXT_MAX + 160];
    ps_option_value value;
    bool counts = true;
    if (r->config->origin[id].replaces || ps_option_leaves(alias, json)) return PS_OK;
    if (!ps_option_read_under(&ps_option_table[id], alias, json, &value, problem, sizeof problem))
        return fail_at(r, path, AT_VALUE, "%s", problem);
    if (r->config->origin[id].given) PS_TRY(read_again(r, id, alias, value, path, &counts));
    if (!counts) return PS_OK;
    ps_config_origin origin = {.given = !json_is_null(json), .alias = alias};
    line_column(r, path, AT_VALUE, &origin.line, &origin.column);
    return ps_config_put(r->config, id, value, origin);
}

static ps_status read_option(const reader *r, ps_option_id id, const ps_option_alias *alias, const ps_json_path *path,
                             json_t *json)
{
    json_t *joined = ps_option_join_names(&ps_option_table[id], json);
    if (joined == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for %s", ps_option_table[id].key);
    const ps_status st = read_value(r, id, alias, path, joined);
    json_decref(joined);
    return st;
}

/* A key that is neither an option nor a section. */
static ps_status read_unknown(const reader *r, const char *key, const ps_json_path *path, const json_t *json)
{
    char printable[PS_OPTION_KEY_MAX], suggestion[PS_OPTION_KEY_MAX];
    const ps_unsupported *entry = ps_unsupported_find(key);
    if (entry != NULL) {
        if (ps_unsupported_is_harmless(entry, json) || ps_config_ignores(r->config, entry, json)) return PS_OK;
        if (entry->accept == PS_ACCEPT_IGNORED)
            return fail_at(r, path, AT_VALUE, "%s has a value of another type than %s", entry->key, entry->value);
        return fail_at(r, path, AT_KEY, "%s is not supported: %s", entry->key, entry->reason);
    }
    ps_printable_copy(key, printable, sizeof printable);
    if (strchr(path->key, '.') != NULL)
        return fail_at(r, path, AT_KEY, "unknown key '%s'; in a file sections are objects, not dots", printable);
    if (ps_option_suggest(key, suggestion))
        return fail_at(r, path, AT_KEY, "unknown key '%s'; did you mean '%s'?", printable, suggestion);
    return fail_at(r, path, AT_KEY, "unknown key '%s'; --help-config lists the keys", printable);
}

/* A value where a section's object is expected: {"bf16": true}, {"model": "org/name"}. */
static ps_status fail_section(const reader *r, const ps_json_path *path, const char *key, const json_t *json)
{
    char member[PS_OPTION_KEY_MAX], *value = json_dumps(json, JSON_ENCODE_ANY);
    const bool is_short = value != NULL && strlen(value) < 200;
    const ps_status st = ps_option_of_section(key, json, member) && is_short
                             ? fail_at(r, path, AT_VALUE, "%s must be an object that holds its options: {\"%s\": %s}",
                                       key, member, value)
                             : fail_at(r, path, AT_VALUE, "%s must be an object that holds its options", key);
    free(value);
    return st;
}

/* The members of one object; prefix is its key with a '.' after it, or "". Recurses only into known sections. */
static ps_status read_object(const reader *r, json_t *object, const ps_json_path *parent, const char *prefix)
{
    const char *member;
    json_t *json;
    json_object_foreach(object, member, json)
    {
        const ps_json_path path = {.parent = parent, .key = member};
        char key[2 * PS_OPTION_KEY_MAX]; /* a truncated key is too long to be valid */
        snprintf(key, sizeof key, "%s%s", prefix, member);
        const bool known = strchr(member, '.') == NULL;
        const ps_option_alias *alias = NULL;
        const ps_option_id id = known ? ps_option_find(key, &alias) : PS_OPTION_COUNT;
        const bool is_section = known && ps_option_is_section(key);
        if (id != PS_OPTION_COUNT && !(is_section && json_is_object(json))) { /* "memory" may be either */
            PS_TRY(read_option(r, id, alias, &path, json));
        } else if (is_section) {
            if (!json_is_object(json)) return fail_section(r, &path, key, json);
            char section[PS_OPTION_KEY_MAX + 1];
            snprintf(section, sizeof section, "%.*s.", PS_OPTION_KEY_MAX - 1, key);
            PS_TRY(read_object(r, json, &path, section));
        } else {
            PS_TRY(read_unknown(r, key, &path, json));
        }
    }
    return PS_OK;
}

ps_status ps_config_read_json(ps_config *config, const char *text, size_t n_bytes)
{
    const reader r = {.config = config, .text = text, .n_bytes = n_bytes};
    json_error_t error;
    json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        char printable[sizeof error.text];
        return PS_FAIL(PS_EFORMAT, "%s:%d:%d: %s", config->name, error.line, error.column > 0 ? error.column : 1,
                       ps_printable_copy(error.text, printable, sizeof printable));
    }
    const ps_status st = json_is_object(root)
                             ? read_object(&r, root, NULL, "")
                             : fail_at(&r, NULL, AT_VALUE, "a configuration must be an object, { ... }");
    json_decref(root);
    return st;
}
