/* adapter_config.c - reads and writes peft's adapter_config.json.
 *
 * Keys as in peft.LoraConfig (its 0.14 was tried). A key that would change the result and has no counterpart
 * in the section lora is refused by name, never ignored; an unknown key is refused, too, unless it asks for nothing
 * (null, false, an empty list). */
#include "config/adapter_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/glob.h"
#include "base/lora.h"
#include "base/mem.h"
#include "base/printable.h"
#include "config/config_state.h"
#include "config/hf_config_impl.h"
#include "config/model/family.h"

typedef struct reader {
    const char *path;
    json_t *root;
    ps_config_adapter *out;
} reader;

static ps_status fail_value(const reader *r, const char *key, const char *problem)
{
    return PS_FAIL(PS_EFORMAT, "%s: \"%s\": %s", r->path, key, problem);
}

/* By the rules of the option; an absent key and null are its default. */
static ps_status read_value(const reader *r, ps_option_id id, ps_option_value *value, char **text)
{
    const ps_option *option = &ps_option_table[id];
    const char *const key = strrchr(option->key, '.') + 1;
    char problem[PS_OPTION_TEXT_MAX + 160];
    json_t *json = json_object_get(r->root, key),
           *joined = ps_option_join_names(option, json != NULL ? json : json_null());
    if (joined == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for %s of %s", key, r->path);
    ps_status st = PS_OK;
    if (!ps_option_read(option, joined, value, problem, sizeof problem))
        st = fail_value(r, key, problem);
    else if (text != NULL)
        st = ps_mem_strdup(value->s, text);
    json_decref(joined);
    return st;
}

/* peft takes names of modules, in a string a regular expression, and as keys of patterns only these. A name has a '.'
 * which stands for itself here. */
static ps_status check_names(const reader *r, const char *key, const char *names)
{
    const size_t n = strcspn(names, "\\^$|()[]{}+?*");
    if (names[n] == '\0') return PS_OK;
    char text[160], printable[160];
    snprintf(text, sizeof text, "%.120s", names);
    return PS_FAIL(PS_EINVAL,
                   "%s: \"%s\": %s has a '%c', as a regular expression; only names of modules are supported here: list "
                   "them",
                   r->path, key, ps_printable_copy(text, printable, sizeof printable), names[n]);
}

static ps_status read_names(const reader *r, ps_option_id id, char **out)
{
    ps_option_value value;
    PS_TRY(read_value(r, id, &value, out));
    return check_names(r, strrchr(ps_option_table[id].key, '.') + 1, *out);
}

static ps_status read_targets(const reader *r)
{
    const json_t *json = json_object_get(r->root, "target_modules");
    if (json == NULL || json_is_null(json) || (json_is_array(json) && json_array_size(json) == 0))
        return PS_FAIL(PS_EFORMAT, "%s: \"target_modules\" is missing or empty: no layer has an adapter", r->path);
    if (json_is_string(json) && strcmp(json_string_value(json), "all-linear") != 0)
        return PS_FAIL(PS_EINVAL,
                       "%s: \"target_modules\" is a string, which is a regular expression; only a list of names, or "
                       "all-linear, is supported here",
                       r->path);
    return read_names(r, PS_OPTION_lora_target_modules, &r->out->target_modules);
}

/* Some ways to begin change the weights of the layers themselves, so that the adapter does not go with the base. */
static ps_status check_init(const reader *r)
{
    static const char *const harmless[] = {"gaussian", "eva", "orthogonal", "true", "false"};
    const char *text = json_string_value(json_object_get(r->root, "init_lora_weights"));
    for (size_t i = 0; text != NULL && i < PS_ARRAY_LEN(harmless); i++)
        if (strcmp(text, harmless[i]) == 0) return PS_OK;
    if (text == NULL) return PS_OK;
    return PS_FAIL(PS_EINVAL,
                   "%s: \"init_lora_weights\" is \"%.40s\", which may have changed the base's weights: convert the "
                   "adapter by peft (save_pretrained with path_initial_model_for_weight_conversion)",
                   r->path, text);
}

/* The rank is peft's default where it is missing. */
static ps_status read_rank(const reader *r)
{
    ps_option_value *const value = &r->out->r;
    PS_TRY(read_value(r, PS_OPTION_lora_r, value, NULL));
    if (json_object_get(r->root, "r") == NULL) value->i = 8;
    return value->i > 0 ? PS_OK : fail_value(r, "r", "expected a whole number of at least 1");
}

/* Keys that say nothing about the weights. */
static bool is_description(const char *key)
{
    static const char *const keys[] = {"peft_type",
                                       "peft_version",
                                       "task_type",
                                       "auto_mapping",
                                       "revision",
                                       "inference_mode",
                                       "base_model_name_or_path",
                                       "fan_in_fan_out",
                                       "init_lora_weights",
                                       "megatron_core",
                                       "qalora_group_size"};
    for (size_t i = 0; i < PS_ARRAY_LEN(keys); i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
}

static bool asks_for_nothing(const json_t *json)
{
    return json_is_null(json) || json_is_false(json) || (json_is_array(json) && json_array_size(json) == 0) ||
           (json_is_object(json) && json_object_size(json) == 0);
}

/* Keys other than the options of the section. */
static ps_status check_key(const reader *r, const char *key, const json_t *json)
{
    char full[PS_OPTION_KEY_MAX], printable[PS_OPTION_KEY_MAX];
    const ps_option_alias *alias = NULL;
    snprintf(full, sizeof full, "lora.%s", key);
    const ps_option_id id = ps_option_find(full, &alias);
    if (is_description(key) || (id != PS_OPTION_COUNT && alias == NULL && id != PS_OPTION_lora_from_pretrained))
        return PS_OK;
    const ps_unsupported *entry = ps_unsupported_find(full);
    if (entry != NULL && ps_unsupported_is_harmless(entry, json)) return PS_OK;
    if (entry != NULL) return PS_FAIL(PS_EINVAL, "%s: \"%s\" is not supported: %s", r->path, key, entry->reason);
    if (asks_for_nothing(json)) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s: \"%s\" is not known here, and may change what the adapters compute", r->path,
                   ps_printable_copy(key, printable, sizeof printable));
}

static ps_status read_all(const reader *r)
{
    const char *type, *key;
    json_t *json;
    ps_config_adapter *a = r->out;
    if (!json_is_object(r->root)) return PS_FAIL(PS_EFORMAT, "%s: not a JSON object", r->path);
    type = json_string_value(json_object_get(r->root, "peft_type"));
    if (type == NULL || strcmp(type, "LORA") != 0)
        return PS_FAIL(PS_EINVAL, "%s: \"peft_type\" is %s%.40s%s: only LORA is supported", r->path,
                       type != NULL ? "\"" : "", type != NULL ? type : "missing", type != NULL ? "\"" : "");
    json_object_foreach(r->root, key, json) PS_TRY(check_key(r, key, json));
    PS_TRY(check_init(r));
    PS_TRY(read_rank(r));
    PS_TRY(read_value(r, PS_OPTION_lora_lora_alpha, &a->lora_alpha, NULL));
    PS_TRY(read_value(r, PS_OPTION_lora_lora_dropout, &a->lora_dropout, NULL));
    PS_TRY(read_value(r, PS_OPTION_lora_use_rslora, &a->use_rslora, NULL));
    PS_TRY(read_targets(r));
    PS_TRY(read_names(r, PS_OPTION_lora_rank_pattern, &a->rank_pattern));
    PS_TRY(read_names(r, PS_OPTION_lora_alpha_pattern, &a->alpha_pattern));
    PS_TRY(read_names(r, PS_OPTION_lora_modules_to_save, &a->modules_to_save));
    a->is_set = true;
    return PS_OK;
}

void ps_adapter_config_forget(ps_config_adapter *a)
{
    ps_mem_free(a->target_modules);
    ps_mem_free(a->rank_pattern);
    ps_mem_free(a->alpha_pattern);
    ps_mem_free(a->modules_to_save);
    *a = (ps_config_adapter){0};
}

ps_status ps_adapter_config_read(const char *text, int64_t n_bytes, const char *name, ps_config_adapter *out)
{
    json_t *root = NULL;
    *out = (ps_config_adapter){0};
    PS_TRY(ps_hf_config_parse(text, n_bytes, name, &root));
    const ps_status st = read_all(&(reader){.path = name, .root = root, .out = out});
    json_decref(root);
    if (st != PS_OK) ps_adapter_config_forget(out);
    return st;
}

ps_status ps_adapter_config_load(const char *folder, ps_config_adapter *out)
{
    char *path = NULL, *text = NULL;
    int64_t n_bytes = 0;
    ps_status st;
    *out = (ps_config_adapter){0};
    PS_TRY_GOTO(ps_folder_join(folder, PS_ADAPTER_CONFIG, &path));
    PS_TRY_GOTO(ps_file_read_all(path, PS_HF_CONFIG_BYTES_MAX, &text, &n_bytes));
    PS_TRY_GOTO(ps_adapter_config_read(text, n_bytes, path, out));
out:
    ps_mem_free(text);
    ps_mem_free(path);
    return st;
}

/* ---- writing ---- */

static bool has_wildcards(const char *patterns)
{
    return strpbrk(patterns, "*?[") != NULL;
}

static json_t *list_names(const char *names)
{
    char name[PS_OPTION_TEXT_MAX];
    json_t *list = json_array();
    for (int i = 0; ps_glob_get(names, i, name, sizeof name); i++) json_array_append_new(list, json_string(name));
    return list;
}

static bool has_text(const json_t *list, const char *text)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), text) == 0) return true;
    return false;
}

/* all-linear as the ends of the layers' names, as peft resolves it; patterns as the layers that they name. */
static json_t *write_targets(const ps_options *o, const char *const *modules, int n)
{
    const bool is_all = strcmp(o->lora_target_modules, "all-linear") == 0;
    if (!is_all && !has_wildcards(o->lora_target_modules)) return list_names(o->lora_target_modules);
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        const char *dot = is_all ? strrchr(modules[i], '.') : NULL;
        const char *name = dot != NULL ? dot + 1 : modules[i];
        if (!is_all || !has_text(list, name)) json_array_append_new(list, json_string(name));
    }
    return list;
}

/* Of the layers whose number is not the usual one. */
static json_t *write_numbers(const char *patterns, const char *const *modules, int n)
{
    char name[PS_OPTION_TEXT_MAX];
    int64_t number;
    json_t *object = json_object();
    for (int i = 0; !has_wildcards(patterns) && ps_glob_get_number(patterns, i, name, sizeof name, &number); i++)
        if (json_object_get(object, name) == NULL) /* the first one counts */
            json_object_set_new(object, name, json_integer((json_int_t)number));
    for (int i = 0; has_wildcards(patterns) && i < n; i++)
        if (ps_glob_find_number(patterns, modules[i], &number))
            json_object_set_new(object, modules[i], json_integer((json_int_t)number));
    return object;
}

static bool has_saved(const ps_adapter_modules *m, const char *name)
{
    for (int i = 0; i < m->n_saved; i++)
        if (ps_lora_saves(name, m->saved[i])) return true;
    return false;
}

/* Patterns as the modules of the file that they name. */
static json_t *write_saved(const ps_options *o, const ps_adapter_modules *m)
{
    const bool is_pattern = has_wildcards(o->lora_modules_to_save);
    json_t *list = is_pattern ? json_array() : list_names(o->lora_modules_to_save);
    for (int i = 0; is_pattern && i < m->n_saved; i++)
        if (ps_lora_saves(o->lora_modules_to_save, m->saved[i]) && !has_text(list, m->saved[i]))
            json_array_append_new(list, json_string(m->saved[i]));
    static const char *const heads[][3] = {[PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION] = {"classifier", "score"},
                                           [PS_CONFIG_HEAD_TOKEN_CLASSIFICATION] = {"classifier", "score"},
                                           [PS_CONFIG_HEAD_QUESTION_ANSWERING] = {"qa_outputs"},
                                           [PS_CONFIG_HEAD_NONE] = {NULL}};
    for (int i = 0; heads[o->model_head][i] != NULL; i++)
        if (has_saved(m, heads[o->model_head][i]) && !has_text(list, heads[o->model_head][i]))
            json_array_append_new(list, json_string(heads[o->model_head][i]));
    if (json_array_size(list) > 0) return list;
    json_decref(list);
    return json_null();
}

static json_t *write_task(const ps_options *o)
{
    static const char *const tasks[] = {[PS_CONFIG_HEAD_CAUSAL_LM] = "CAUSAL_LM",
                                        [PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION] = "SEQ_CLS",
                                        [PS_CONFIG_HEAD_TOKEN_CLASSIFICATION] = "TOKEN_CLS",
                                        [PS_CONFIG_HEAD_QUESTION_ANSWERING] = "QUESTION_ANS",
                                        [PS_CONFIG_HEAD_NONE] = "FEATURE_EXTRACTION"};
    return tasks[o->model_head] != NULL ? json_string(tasks[o->model_head]) : json_null();
}

ps_status ps_adapter_config_write(const ps_config *config, const ps_adapter_modules *m, char **json)
{
    const ps_options *o = &config->options;
    const double alpha = o->lora_lora_alpha;
    const bool is_whole = alpha == (double)(json_int_t)alpha;
    *json = NULL;
    json_t *root = json_pack(
        "{s:s, s:s, s:o, s:I, s:o, s:f, s:s, s:b, s:b, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:b, s:n, s:n, s:n}",
        "peft_type", "LORA", "base_model_name_or_path", o->model_from_pretrained, "task_type", write_task(o), "r",
        (json_int_t)o->lora_r, "lora_alpha", is_whole ? json_integer((json_int_t)alpha) : json_real(alpha),
        "lora_dropout", o->lora_lora_dropout, "bias", "none", "use_rslora", (int)o->lora_use_rslora, "use_dora", 0,
        "fan_in_fan_out", (int)ps_family_of(o)->has_conv1d, "inference_mode", 1, "target_modules",
        write_targets(o, m->layers, m->n), "rank_pattern", write_numbers(o->lora_rank_pattern, m->layers, m->n),
        "alpha_pattern", write_numbers(o->lora_alpha_pattern, m->layers, m->n), "modules_to_save", write_saved(o, m),
        "init_lora_weights",
        o->lora_init_lora_weights == PS_CONFIG_ADAPTER_INIT_TRUE ? json_true() : json_string("gaussian"), "lora_bias",
        0, "layers_to_transform", "layers_pattern", "revision");
    /* not sorted: of patterns that name a layer, the first one counts */
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(root);
    if (text == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for " PS_ADAPTER_CONFIG);
    const ps_status st = ps_mem_strdup(text, json);
    free(text);
    return st;
}
