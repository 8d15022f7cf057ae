/* hardware.c - reads hardware descriptions: jansson parses JSON, then a walk over the keys; and key=value. */
#include "config/hardware.h"

#include <stdarg.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/printable.h"
#include "config/hardware_table.h"
#include "config/json_locate.h"
#include "config/machines.h"

enum { FILE_MAX_BYTES = 1 << 20, PROBLEM_MAX = PS_OPTION_TEXT_MAX + 160 };

typedef struct reader {
    ps_hardware *hw;
    const char *text, *name;
    size_t n_bytes;
} reader;

enum which { AT_KEY, AT_VALUE };

/* PS_EINVAL with "file:line:column: message". */
__attribute__((format(printf, 4, 5))) static ps_status fail_at(const reader *r, const ps_json_path *path,
                                                               enum which which, const char *format, ...)
{
    char message[768];
    ps_json_position position;
    int line, column;
    va_list ap;
    va_start(ap, format);
    vsnprintf(message, sizeof message, format, ap);
    va_end(ap);
    ps_json_locate(r->text, r->n_bytes, path, &position);
    ps_json_line_column(r->text, which == AT_KEY ? position.key_offset : position.value_offset, &line, &column);
    return PS_FAIL(PS_EINVAL, "%s:%d:%d: %s", r->name, line, column, message);
}

/* Like ps_option_read; null is the default, where there is one. */
static bool read_value(const ps_hardware_key *key, const json_t *json, ps_option_value *value, char *problem,
                       size_t problem_bytes)
{
    char expected[PS_OPTION_TEXT_MAX];
    if (key->is_required && json_is_null(json)) {
        snprintf(problem, problem_bytes, "%s must be %s, not null", key->option.key,
                 ps_option_expectation(&key->option, expected));
        return false;
    }
    if (!ps_option_read(&key->option, json, value, problem, problem_bytes)) return false;
    if (key->option.type != PS_OPTION_STRING || strlen(value->s) < key->string_bytes) return true;
    snprintf(problem, problem_bytes, "%s must be a string of at most %zu bytes, not of %zu", key->option.key,
             key->string_bytes - 1, strlen(value->s));
    return false;
}

static ps_status read_key(const reader *r, int id, const ps_json_path *path, const json_t *json)
{
    char problem[PROBLEM_MAX];
    ps_option_value value;
    if (!read_value(&ps_hardware_keys[id], json, &value, problem, sizeof problem))
        return fail_at(r, path, AT_VALUE, "%s", problem);
    ps_hardware_store(&ps_hardware_keys[id], value, r->hw);
    return PS_OK;
}

/* "unknown key 'device.byte'; did you mean 'device.bytes'?" */
static void describe_unknown(const char *key, char *problem, size_t problem_bytes)
{
    char printable[PS_OPTION_KEY_MAX], suggestion[PS_OPTION_KEY_MAX];
    ps_printable_copy(key, printable, sizeof printable);
    if (ps_hardware_suggest(key, suggestion))
        snprintf(problem, problem_bytes, "unknown key '%s'; did you mean '%s'?", printable, suggestion);
    else
        snprintf(problem, problem_bytes, "unknown key '%s'; doc/hardware.md lists the keys", printable);
}

static ps_status read_unknown(const reader *r, const char *key, const ps_json_path *path)
{
    char problem[PROBLEM_MAX], printable[PS_OPTION_KEY_MAX];
    if (strchr(path->key, '.') != NULL)
        return fail_at(r, path, AT_KEY, "unknown key '%s'; in a file sections are objects, not dots",
                       ps_printable_copy(key, printable, sizeof printable));
    describe_unknown(key, problem, sizeof problem);
    return fail_at(r, path, AT_KEY, "%s", problem);
}

/* Check that a section has all required keys and sections. */
static ps_status check_complete(const reader *r, const json_t *object, int section, const ps_json_path *path)
{
    const size_t n_prefix = section > 0 ? strlen(ps_hardware_sections[section].key) + 1 : 0;
    char expected[PS_OPTION_TEXT_MAX];
    for (int i = 0; i < ps_hardware_n_keys; i++) {
        const ps_hardware_key *key = &ps_hardware_keys[i];
        if (!key->is_required || ps_hardware_section_of(key->option.key) != section) continue;
        if (json_object_get(object, key->option.key + n_prefix) == NULL)
            return fail_at(r, path, AT_VALUE, "%s is missing; it must be %s", key->option.key,
                           ps_option_expectation(&key->option, expected));
    }
    for (int i = 1; i < ps_hardware_n_sections; i++) {
        const char *key = ps_hardware_sections[i].key;
        if (ps_hardware_sections[i].is_optional || ps_hardware_section_of(key) != section) continue;
        if (json_object_get(object, key + n_prefix) == NULL)
            return fail_at(r, path, AT_VALUE, "%s is missing; it must be an object", key);
    }
    return PS_OK;
}

/* Read the members of a section's object, or of the whole. Recurses only into known sections. */
static ps_status read_section(const reader *r, json_t *object, int section, const ps_json_path *parent)
{
    const char *prefix = ps_hardware_sections[section].key, *member;
    json_t *json;
    ps_hardware_put_section(r->hw, section, true);
    json_object_foreach(object, member, json)
    {
        const ps_json_path path = {.parent = parent, .key = member};
        char key[2 * PS_OPTION_KEY_MAX]; /* a truncated key is too long to be valid */
        snprintf(key, sizeof key, "%s%s%s", prefix, section > 0 ? "." : "", member);
        const bool is_known = strchr(member, '.') == NULL;
        const int id = is_known ? ps_hardware_find_key(key) : -1;
        const int inner = is_known ? ps_hardware_find_section(key) : -1;
        if (id >= 0)
            PS_TRY(read_key(r, id, &path, json));
        else if (inner < 0)
            return read_unknown(r, key, &path);
        else if (json_is_object(json))
            PS_TRY(read_section(r, json, inner, &path));
        else if (!json_is_null(json) || !ps_hardware_sections[inner].is_optional)
            return fail_at(r, &path, AT_VALUE, "%s must be an object%s", key,
                           ps_hardware_sections[inner].is_optional ? ", or null" : "");
    }
    return check_complete(r, object, section, parent);
}

/* PS_EINVAL at the key that was read, or at the section that lacks it. */
static ps_status fail_conflict(const reader *r, const char *key, const char *problem)
{
    char words[PS_OPTION_KEY_MAX];
    ps_json_path path[4];
    int n = 0;
    snprintf(words, sizeof words, "%s", key);
    for (char *word = words, *dot; word != NULL; word = dot, n++) {
        dot = strchr(word, '.');
        if (dot != NULL) *dot++ = '\0';
        path[n] = (ps_json_path){.parent = n > 0 ? &path[n - 1] : NULL, .key = word};
    }
    ps_json_position position;
    while (n > 0 && !ps_json_locate(r->text, r->n_bytes, &path[n - 1], &position)) n--;
    return fail_at(r, n > 0 ? &path[n - 1] : NULL, AT_VALUE, "%s", problem);
}

static ps_status read_json(const reader *r)
{
    char problem[PROBLEM_MAX];
    json_error_t error;
    json_t *root = json_loadb(r->text, r->n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        char printable[sizeof error.text];
        return PS_FAIL(PS_EFORMAT, "%s:%d:%d: %s", r->name, error.line, error.column > 0 ? error.column : 1,
                       ps_printable_copy(error.text, printable, sizeof printable));
    }
    ps_status st = json_is_object(root) ? read_section(r, root, 0, NULL)
                                        : fail_at(r, NULL, AT_VALUE, "a description must be an object, { ... }");
    json_decref(root);
    if (st != PS_OK) return st;
    const char *key = ps_hardware_conflict(r->hw, problem, sizeof problem);
    return key == NULL ? PS_OK : fail_conflict(r, key, problem);
}

static ps_status parse_bytes(const char *text, size_t n_bytes, const char *name, ps_hardware *out)
{
    const reader r = {.hw = out, .text = text, .name = name, .n_bytes = n_bytes};
    *out = (ps_hardware){0};
    return read_json(&r);
}

ps_status ps_hardware_parse(const char *text, const char *name, ps_hardware *out)
{
    return parse_bytes(text, strlen(text), name, out);
}

ps_status ps_hardware_load(const char *path, ps_hardware *out)
{
    char *text = NULL;
    int64_t n_bytes = 0;
    if (!ps_file_exists(path) && strchr(path, '/') == NULL) {
        const char *known = ps_machine_description(path);
        if (known != NULL) return ps_hardware_parse(known, path, out);
        return PS_FAIL(PS_EIO, "hardware '%s' is no file here and no machine known by name; expected %s", path,
                       ps_machine_names);
    }
    PS_TRY(ps_file_read_all(path, FILE_MAX_BYTES, &text, &n_bytes));
    const ps_status st = parse_bytes(text, (size_t)n_bytes, path, out);
    ps_mem_free(text);
    return st;
}

/* The value of a whole section on a command line: null removes it. */
static ps_status set_section(ps_hardware *hw, int section, const char *word)
{
    const ps_hardware_section *s = &ps_hardware_sections[section];
    if (!s->is_optional || strcmp(word, "null") != 0)
        return PS_FAIL(PS_EINVAL, "'%s' is a section; set one of its keys, as in %s.KEY=VALUE%s", s->key, s->key,
                       s->is_optional ? ", or null to take it away" : "");
    ps_hardware_put_section(hw, section, false);
    return PS_OK;
}

ps_status ps_hardware_set(ps_hardware *hw, const char *key, const char *word)
{
    char problem[PROBLEM_MAX];
    const int id = ps_hardware_find_key(key), section = ps_hardware_find_section(key);
    if (section >= 0) return set_section(hw, section, word);
    if (id < 0) {
        describe_unknown(key, problem, sizeof problem);
        return PS_FAIL(PS_EINVAL, "%s", problem);
    }
    const ps_hardware_key *entry = &ps_hardware_keys[id];
    const int outer = ps_hardware_section_of(key);
    if (!ps_hardware_has_section(hw, outer))
        return PS_FAIL(PS_EINVAL, "%s cannot be set: the description has no %s; add it to the file", key,
                       ps_hardware_sections[outer].key);
    json_t *json = ps_option_json_from_word(&entry->option, word, problem, sizeof problem);
    if (json == NULL) return PS_FAIL(PS_EINVAL, "%s", problem);
    ps_option_value value;
    const bool is_read = read_value(entry, json, &value, problem, sizeof problem);
    if (is_read) ps_hardware_store(entry, value, hw);
    json_decref(json);
    return is_read ? PS_OK : PS_FAIL(PS_EINVAL, "%s", problem);
}

ps_status ps_hardware_check(const ps_hardware *hw)
{
    char problem[PROBLEM_MAX];
    return ps_hardware_conflict(hw, problem, sizeof problem) == NULL ? PS_OK : PS_FAIL(PS_EINVAL, "%s", problem);
}

/* With both directions in use, a second moves what either direction alone would move in at_once / alone seconds; both
 * together: 2 - contention. */
double ps_hardware_contention(const double alone[2], const double at_once[2], bool full_duplex)
{
    if (at_once[0] <= 0 || at_once[1] <= 0) return full_duplex ? 0 : 1;
    const double contention = 2 - at_once[0] / alone[0] - at_once[1] / alone[1];
    return contention < 0 ? 0 : contention > 1 ? 1 : contention;
}

/* On a machine without GPUs the device's share of memory has its own limits. */
static int64_t usable_bytes(const ps_hardware *hw, bool is_device)
{
    const int64_t device = hw->device.bytes - hw->device.reserved_bytes;
    const int64_t host = hw->host.bytes - hw->host.reserved_bytes;
    if (hw->gpus_per_node == 0) return ps_max_i64(0, ps_min_i64(device, host));
    return is_device ? device : host;
}

int64_t ps_hardware_device_bytes(const ps_hardware *hw)
{
    return usable_bytes(hw, true);
}

int64_t ps_hardware_host_bytes(const ps_hardware *hw)
{
    return usable_bytes(hw, false);
}
