/* config_match.c - compares the models of two dumped configurations, which may be of an earlier version. */
#include <jansson.h>
#include <string.h>

#include "config/config_state.h"
#include "config/model/rotary.h"

/* Options that may differ for the same model: names of sizes, the folder of the first weights, which may have moved, and
 * options that affect training only. */
static bool may_differ(ps_option_id id)
{
    static const ps_option_id ids[] = {
        PS_OPTION_model_preset,         PS_OPTION_model_embd_pdrop,         PS_OPTION_model_resid_pdrop,
        PS_OPTION_model_attn_pdrop,     PS_OPTION_model_classifier_dropout, PS_OPTION_model_initializer_range,
        PS_OPTION_model_from_pretrained};
    /* of adapters what decides their weights and results */
    static const ps_option_id of_adapters[] = {PS_OPTION_lora_r,
                                               PS_OPTION_lora_lora_alpha,
                                               PS_OPTION_lora_target_modules,
                                               PS_OPTION_lora_rank_pattern,
                                               PS_OPTION_lora_alpha_pattern,
                                               PS_OPTION_lora_use_rslora,
                                               PS_OPTION_lora_modules_to_save};
    for (size_t i = 0; i < PS_ARRAY_LEN(of_adapters); i++)
        if (of_adapters[i] == id) return false;
    bool may = strncmp(ps_option_table[id].key, "model.", 6) != 0;
    for (size_t i = 0; i < PS_ARRAY_LEN(ids); i++) may |= ids[i] == id;
    return may;
}

/* The value at "section.key" of an object, NULL: none. */
static const json_t *find(const json_t *object, const char *key)
{
    char section[PS_OPTION_KEY_MAX];
    for (const char *dot; (dot = strchr(key, '.')) != NULL; key = dot + 1) {
        snprintf(section, sizeof section, "%.*s", (int)(dot - key), key);
        object = json_object_get(object, section);
    }
    return json_object_get(object, key);
}

/* The options of the model. Options that the text lacks have the type's defaults; unknown keys are ignored. */
static ps_status read_model(const char *text, const char *name, ps_config **out)
{
    char problem[PS_OPTION_TEXT_MAX + 160];
    ps_status st = PS_OK;
    *out = NULL;
    json_t *root = json_loads(text, 0, NULL);
    if (root == NULL) return PS_FAIL(PS_EFORMAT, "%s: the configuration in it is no JSON", name);
    PS_TRY_GOTO(ps_config_create(out));
    for (int i = 0; i < PS_OPTION_COUNT; i++) {
        ps_option_value value;
        const ps_option *option = &ps_option_table[i];
        const json_t *json = may_differ((ps_option_id)i) ? NULL : find(root, option->key);
        if (json == NULL) continue;
        if (!ps_option_read(option, json, &value, problem, sizeof problem)) {
            st = PS_FAIL(PS_EFORMAT, "%s: %s", name, problem);
            goto out;
        }
        PS_TRY_GOTO(ps_config_put(*out, (ps_option_id)i, value, (ps_config_origin){.given = true}));
    }
    ps_config_forget_old_defaults(*out);
out:
    json_decref(root);
    return st;
}

/* The effective value of an option of the model. */
static ps_option_value value_of(const ps_config *config, ps_option_id id)
{
    ps_option_value value = ps_option_load(&ps_option_table[id], &config->options);
    if (id == PS_OPTION_model_rope_scaling_original_max_position_embeddings)
        value.i =
            ps_rotary_uses_original_positions(&config->options) ? ps_rotary_original_positions(&config->options) : 0;
    return value;
}

static const char *value_text(ps_option_id id, ps_option_value value, char *text, size_t bytes)
{
    memset(text, 0, bytes);
    FILE *out = fmemopen(text, bytes - 1, "w");
    if (out == NULL) return "?";
    ps_option_write_value(&ps_option_table[id], value, out);
    fclose(out);
    return text;
}

ps_status ps_config_match_model(const char *saved, const char *now, const char *name)
{
    ps_config *a = NULL, *b = NULL;
    ps_status st = PS_OK;
    PS_TRY_GOTO(read_model(saved, name, &a));
    PS_TRY_GOTO(read_model(now, "the configuration", &b));
    for (int i = 0; i < PS_OPTION_COUNT && st == PS_OK; i++) {
        const ps_option_id id = (ps_option_id)i;
        const ps_option_value was = value_of(a, id), is = value_of(b, id);
        char was_text[100], is_text[100];
        if (may_differ(id) || ps_option_is_equal(&ps_option_table[id], was, is)) continue;
        st =
            PS_FAIL(PS_EINVAL, "%s: saved with %s = %s, but it is %s now: another model", name, ps_option_table[id].key,
                    value_text(id, was, was_text, sizeof was_text), value_text(id, is, is_text, sizeof is_text));
    }
out:
    ps_config_destroy(a);
    ps_config_destroy(b);
    return st;
}
