#include "config/config.h"
#include "base/mem.h"
#include "base/printable.h"
#include "config/config_state.h"
#include "config/config_text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Default folder of the disk tier. Unlike /tmp it is rarely RAM, and it is not cleaned while a program runs. */
#define USUAL_DISK_FOLDER "/var/tmp"

ps_status ps_config_create(ps_config **out)
{
    PS_TRY(PS_NEED("out", out));
    PS_TRY(ps_mem_alloc(1, sizeof **out, out));
    ps_config_resolve(*out);
    return PS_OK;
}

void ps_config_destroy(ps_config *config)
{
    if (config == NULL) return;
    ps_config_forget_adopted(config);
    ps_adapter_config_forget(&config->adapter);
    for (int i = 0; i < PS_OPTION_COUNT; i++) ps_mem_free(config->text[i]);
    ps_mem_free(config->name);
    ps_mem_free(config->disk_folder);
    ps_mem_free(config);
}

/* ---- the machine ---- */

void ps_config_know_machine(ps_config *config, const ps_hardware *machine)
{
    config->knows_machine = true;
    config->machine = *machine;
}

static ps_status set_folder_name(char **name, const char *folder)
{
    char *copy;
    PS_TRY(ps_mem_strdup(folder, &copy));
    ps_mem_free(*name);
    *name = copy;
    return PS_OK;
}

ps_status ps_config_set_disk_folder(ps_config *config, const char *folder)
{
    PS_TRY(PS_NEED("config folder", config, folder));
    return set_folder_name(&config->disk_folder, folder);
}

ps_status ps_config_allow_speculation(ps_config *config)
{
    PS_TRY(PS_NEED("config", config));
    config->allows_speculation = true;
    return PS_OK;
}

bool ps_config_allows_speculation(const ps_config *config)
{
    return config->allows_speculation;
}

const char *ps_config_disk_folder(const ps_config *config)
{
    return config->disk_folder != NULL ? config->disk_folder : USUAL_DISK_FOLDER;
}

ps_status ps_config_hardware(const ps_config *config, ps_hardware *room, const ps_hardware **out)
{
    const char *said = config->options.hardware;
    *out = NULL;
    if (strcmp(said, "auto") == 0 || !ps_config_gives(config, PS_OPTION_hardware)) {
        if (config->knows_machine) *out = &config->machine;
        return PS_OK;
    }
    if (said[0] == '\0' || strcmp(said, "none") == 0) return PS_OK;
    PS_TRY(ps_hardware_load(said, room));
    *out = room;
    return PS_OK;
}

/* ---- reading ---- */

/* *config has the assignments that override the text. On failure it is destroyed and set to NULL. */
static ps_status read_into(ps_config **config, const char *text, size_t n_bytes, const char *name)
{
    ps_status st;
    PS_TRY_GOTO(ps_mem_strdup(name, &(*config)->name));
    PS_TRY_GOTO(ps_config_read_json(*config, text, n_bytes));
    PS_TRY_GOTO(ps_config_adopt(*config));
    PS_TRY_GOTO(ps_config_adopt_adapter(*config));
    ps_config_resolve(*config);
    ps_config_forget_old_defaults(*config);
    PS_TRY_GOTO(ps_config_validate(*config));
    return PS_OK;
out:
    ps_config_destroy(*config);
    *config = NULL;
    return st;
}

static ps_status parse_bytes(const char *text, size_t n_bytes, const char *name, ps_config **out)
{
    PS_TRY(ps_config_create(out));
    return read_into(out, text, n_bytes, name);
}

ps_status ps_config_parse(const char *text, const char *name, ps_config **out)
{
    PS_TRY(PS_NEED_FOR(out, "text name out", text, name, out));
    return parse_bytes(text, strlen(text), name, out);
}

static ps_status fail_section(const char *key, const char *word)
{
    char member[PS_OPTION_KEY_MAX];
    json_t *json = json_loads(word, JSON_DECODE_ANY, NULL);
    if (json == NULL) json = json_string(word);
    const bool has_member = ps_option_of_section(key, json, member);
    json_decref(json);
    if (has_member) return PS_FAIL(PS_EINVAL, "'%s' is a section: %s.%s=%.200s", key, key, member, word);
    return PS_FAIL(PS_EINVAL, "'%s' is a section; set one of its keys, as in %s.KEY=VALUE", key, key);
}

static ps_status fail_unknown(const char *key, const char *word)
{
    char printable[PS_OPTION_KEY_MAX], suggestion[PS_OPTION_KEY_MAX];
    const ps_unsupported *entry = ps_unsupported_find(key);
    if (entry != NULL) return PS_FAIL(PS_EINVAL, "%s is not supported: %s", entry->key, entry->reason);
    if (ps_option_is_section(key)) return fail_section(key, word);
    ps_printable_copy(key, printable, sizeof printable);
    if (ps_option_suggest(key, suggestion))
        return PS_FAIL(PS_EINVAL, "unknown key '%s'; did you mean '%s'?", printable, suggestion);
    return PS_FAIL(PS_EINVAL, "unknown key '%s'; --help-config lists the keys", printable);
}

/* An unknown key. */
static ps_status set_unknown(ps_config *config, const char *key, const char *word)
{
    const ps_unsupported *entry = ps_unsupported_find(key);
    if (entry == NULL || entry->accept != PS_ACCEPT_IGNORED) return fail_unknown(key, word);
    json_t *json = json_loads(word, JSON_DECODE_ANY, NULL);
    if (json == NULL) json = json_string(word);
    const bool is_accepted = json != NULL && ps_config_ignores(config, entry, json);
    json_decref(json);
    if (is_accepted) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s has a value of another type than %s", entry->key, entry->value);
}

/* Sets an option without the effects of a new model.from_pretrained. */
static ps_status set_option(ps_config *config, const char *key, const char *word, bool replaces)
{
    char problem[PS_OPTION_TEXT_MAX + 160];
    const ps_option_alias *alias;
    const ps_option_id id = ps_option_find(key, &alias);
    if (id == PS_OPTION_COUNT) return set_unknown(config, key, word);
    const ps_option *option = &ps_option_table[id], under = ps_option_under(option, alias);
    json_t *json = ps_option_json_from_word(&under, word, problem, sizeof problem);
    if (json == NULL) return PS_FAIL(PS_EINVAL, "%s", problem);
    json_t *joined = ps_option_join_names(option, json);
    json_decref(json);
    if (joined == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for %s", option->key);
    ps_option_value read;
    ps_status st;
    const ps_config_origin origin = {.given = !json_is_null(joined), .replaces = replaces, .alias = alias};
    if (ps_option_read_under(option, alias, joined, &read, problem, sizeof problem))
        st = ps_config_put(config, id, read, origin);
    else
        st = PS_FAIL(PS_EINVAL, "%s", problem);
    json_decref(joined);
    return st;
}

/* Sets model.from_pretrained and the options of its folder; a folder that cannot be read changes nothing. */
static ps_status set_folder(ps_config *config, const char *word)
{
    const ps_option_id id = PS_OPTION_model_from_pretrained;
    ps_config before = *config; /* owns the state that is moved from config here */
    config->text[id] = NULL;
    config->classes = (ps_config_classes){0};
    ps_status st = set_option(config, ps_option_table[id].key, word, false);
    if (st == PS_OK) st = ps_config_adopt(config);
    if (st == PS_OK) {
        ps_config_resolve(config);
    } else {
        const ps_config failed = *config;
        *config = before;
        before = failed;
    }
    ps_config_forget_adopted(&before);
    ps_mem_free(before.text[id]);
    return st;
}

/* The same for lora.from_pretrained. */
static ps_status set_adapter(ps_config *config, const char *word)
{
    const ps_option_id id = PS_OPTION_lora_from_pretrained;
    ps_config before = *config;
    config->text[id] = NULL;
    config->adapter = (ps_config_adapter){0};
    ps_status st = set_option(config, ps_option_table[id].key, word, false);
    if (st == PS_OK) st = ps_config_adopt_adapter(config);
    if (st == PS_OK) {
        ps_config_resolve(config);
    } else {
        const ps_config failed = *config;
        *config = before;
        before = failed;
    }
    ps_adapter_config_forget(&before.adapter);
    ps_mem_free(before.text[id]);
    return st;
}

static ps_status find_option(const char *key, ps_option_id *id)
{
    const ps_option_alias *alias;
    char near[PS_OPTION_KEY_MAX];
    *id = ps_option_find(key, &alias);
    if (*id != PS_OPTION_COUNT) return PS_OK;
    const bool has_near = ps_option_suggest(key, near);
    return PS_FAIL(PS_EINVAL, "there is no option %s%s%s%s", key, has_near ? "; did you mean " : "",
                   has_near ? near : "", has_near ? "?" : "");
}

/* The option of a key, which must have one of two types. */
static ps_status find_value(const ps_config *config, const char *key, const char *wanted, ps_option_type a,
                            ps_option_type b, ps_option_type c, const ps_option **option, ps_option_value *value)
{
    ps_option_id id;
    PS_TRY(find_option(key, &id));
    *option = &ps_option_table[id];
    const ps_option_type type = (*option)->type;
    if (type != a && type != b && type != c) return PS_FAIL(PS_EINVAL, "option %s is no %s", key, wanted);
    *value = ps_option_load(*option, &config->options);
    return PS_OK;
}

ps_status ps_config_get_int(const ps_config *config, const char *key, int64_t *out)
{
    PS_TRY(PS_NEED("config key out", config, key, out));
    const ps_option *option = NULL;
    ps_option_value v;
    *out = 0;
    PS_TRY(find_value(config, key, "whole number, size or truth value", PS_OPTION_INT, PS_OPTION_BYTES, PS_OPTION_BOOL,
                      &option, &v));
    *out = option->type == PS_OPTION_BOOL ? v.b : v.i;
    return PS_OK;
}

ps_status ps_config_get_double(const ps_config *config, const char *key, double *out)
{
    PS_TRY(PS_NEED("config key out", config, key, out));
    const ps_option *option = NULL;
    ps_option_value v;
    *out = 0;
    PS_TRY(find_value(config, key, "number", PS_OPTION_INT, PS_OPTION_BYTES, PS_OPTION_DOUBLE, &option, &v));
    *out = option->type == PS_OPTION_DOUBLE ? v.d[0] : (double)v.i;
    return PS_OK;
}

ps_status ps_config_get_range(const ps_config *config, const char *key, int64_t *first, int64_t *last)
{
    PS_TRY(PS_NEED("config key first last", config, key, first, last));
    const ps_option *option = NULL;
    ps_option_value v;
    *first = *last = 0;
    PS_TRY(find_value(config, key, "range", PS_OPTION_RANGE, PS_OPTION_RANGE, PS_OPTION_RANGE, &option, &v));
    *first = v.r[0];
    *last = v.r[1];
    return PS_OK;
}

ps_status ps_config_is_given(const ps_config *config, const char *key, int32_t *yes)
{
    PS_TRY(PS_NEED("config key yes", config, key, yes));
    ps_option_id id;
    *yes = 0;
    PS_TRY(find_option(key, &id));
    *yes = ps_config_gives(config, id);
    return PS_OK;
}

int64_t ps_config_get_sequence_length(const ps_config *config)
{
    return ps_config_sequence_length(&config->options);
}

ps_status ps_config_get_string(const ps_config *config, const char *key, const char **out)
{
    PS_TRY(PS_NEED("config key out", config, key, out));
    const ps_option *option = NULL;
    ps_option_value v;
    *out = NULL;
    PS_TRY(find_value(config, key, "text or name", PS_OPTION_STRING, PS_OPTION_ENUM, PS_OPTION_ENUM, &option, &v));
    *out = option->type == PS_OPTION_ENUM ? option->names[v.i] : v.s;
    return PS_OK;
}

ps_status ps_config_set(ps_config *config, const char *key, const char *value)
{
    PS_TRY(PS_NEED("config key value", config, key, value));
    const ps_option_alias *alias;
    if (ps_option_find(key, &alias) == PS_OPTION_model_from_pretrained) return set_folder(config, value);
    if (ps_option_find(key, &alias) == PS_OPTION_lora_from_pretrained) return set_adapter(config, value);
    return set_option(config, key, value, false);
}

/* "key=value" */
static ps_status assign(ps_config *config, const char *assignment)
{
    char key[256];
    const char *equals = strchr(assignment, '=');
    if (equals == NULL || equals == assignment || (size_t)(equals - assignment) >= sizeof key)
        return PS_FAIL(PS_EINVAL, "'%s' is not of the form key=value", assignment);
    snprintf(key, sizeof key, "%.*s", (int)(equals - assignment), assignment);
    return set_option(config, key, equals + 1, true);
}

ps_status ps_config_load_assigned(const char *path, char *const *assignments, int n, ps_config **out)
{
    PS_TRY(PS_NEED_FOR(out, "path out assignments", path, out, PS_NEED_IF(n > 0, assignments)));
    ps_status st = PS_OK;
    char *text = NULL;
    size_t n_bytes = 0;
    PS_TRY(ps_config_text(path, &text, &n_bytes));
    PS_TRY_GOTO(ps_config_create(out));
    for (int i = 0; i < n && st == PS_OK; i++) st = assign(*out, assignments[i]);
    if (st == PS_OK) {
        st = read_into(out, text, n_bytes, path);
    } else {
        ps_config_destroy(*out);
        *out = NULL;
    }
out:
    ps_mem_free(text);
    return st;
}

ps_status ps_config_load(const char *path, ps_config **out)
{
    PS_TRY(PS_NEED_FOR(out, "path out", path, out));
    return ps_config_load_assigned(path, NULL, 0, out);
}
