/* hf_config.c - reads the options of a model from Hugging Face's config.json; hf_config_write.c writes them.
 *
 * Keys as in transformers' configuration classes, of version 5 (rope_parameters, layer_types, dtype) and those before
 * (rope_theta and rope_scaling, torch_dtype). A key that would change the result and has no counterpart here is refused
 * by name, never ignored. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "base/model_folder.h"
#include "base/printable.h"
#include "config/hf_config_impl.h"
#include "config/model/family.h"

/* Suffixes of class names: "architectures": ["BertForMaskedLM"]. */
static const struct {
    const char *end;
    ps_config_head head;
} heads[] = {
    {"ForSequenceClassification", PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION},
    {"ForTokenClassification", PS_CONFIG_HEAD_TOKEN_CLASSIFICATION},
    {"ForQuestionAnswering", PS_CONFIG_HEAD_QUESTION_ANSWERING},
    {"ForCausalLM", PS_CONFIG_HEAD_CAUSAL_LM},
    {"LMHeadModel", PS_CONFIG_HEAD_CAUSAL_LM},
    {"ForMaskedLM", PS_CONFIG_HEAD_MASKED_LM},
    {"ForPreTraining", PS_CONFIG_HEAD_MASKED_LM},
    {"Model", PS_CONFIG_HEAD_NONE},
};

typedef struct hf_reader {
    ps_config *config;
    const char *path;
    json_t *root;
    const ps_family *family;
} hf_reader;

static void adopt(const hf_reader *r, ps_option_id id, ps_option_value value)
{
    r->config->adopted[id] = (ps_config_adopted){.is_set = true, .value = value};
}

/* An absent key and null leave the option unchanged. */
static ps_status adopt_json(const hf_reader *r, ps_option_id id, const char *key, const json_t *json)
{
    char problem[PS_OPTION_TEXT_MAX + 160];
    ps_option_value value;
    if (json == NULL || json_is_null(json)) return PS_OK;
    if (!ps_option_read(&ps_option_table[id], json, &value, problem, sizeof problem))
        return PS_FAIL(PS_EFORMAT, "%s: \"%s\": %s", r->path, key, problem);
    adopt(r, id, value);
    return PS_OK;
}

/* "gpt2, llama and bert" */
static void list_types(char *text, size_t bytes)
{
    int n = 0;
    for (int i = 0; ps_family_at(i) != NULL && n < (int)bytes; i++)
        n += snprintf(text + n, bytes - (size_t)n, "%s%s",
                      i == 0                        ? ""
                      : ps_family_at(i + 1) != NULL ? ", "
                                                    : " and ",
                      ps_config_model_names[i]);
}

static ps_status read_type(hf_reader *r)
{
    const ps_options *o = &r->config->options;
    const char *name = json_string_value(json_object_get(r->root, "model_type"));
    ps_config_model type = PS_CONFIG_MODEL_GPT2;
    char known[512];
    if (name == NULL) return PS_FAIL(PS_EFORMAT, "%s: no \"model_type\"", r->path);
    r->family = ps_family_find(name, &type);
    list_types(known, sizeof known);
    if (r->family == NULL)
        return PS_FAIL(PS_EINVAL, "%s: model_type \"%.40s\" is not supported; %s are", r->path, name, known);
    if (ps_config_gives(r->config, PS_OPTION_model_type) && o->model_type != type)
        return PS_FAIL(PS_EINVAL, "%s is a %s, but model.type is %s; leave model.type out", r->path, name,
                       ps_config_model_names[o->model_type]);
    adopt(r, PS_OPTION_model_type, (ps_option_value){.i = type});
    return PS_OK;
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), n_end = strlen(end);
    return n >= n_end && strcmp(s + n - n_end, end) == 0;
}

static ps_status read_head(const hf_reader *r)
{
    const char *name = json_string_value(json_array_get(json_object_get(r->root, "architectures"), 0));
    for (size_t i = 0; name != NULL && i < PS_ARRAY_LEN(heads); i++) {
        if (!ends_with(name, heads[i].end)) continue;
        adopt(r, PS_OPTION_model_head, (ps_option_value){.i = heads[i].head});
        return PS_OK;
    }
    if (name == NULL || ps_config_gives(r->config, PS_OPTION_model_head)) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s: the head of %.80s is not known here; give model.head (and model.new_head)", r->path,
                   name);
}

static ps_config_head head_used(const hf_reader *r)
{
    const ps_config_adopted *head = &r->config->adopted[PS_OPTION_model_head];
    const bool is_given = ps_config_gives(r->config, PS_OPTION_model_head) || !head->is_set;
    return is_given ? r->config->options.model_head : (ps_config_head)head->value.i;
}

/* Whether the model uses the classifier of the folder with its weights. Another head, or a new one, ignores its
 * names. */
static bool uses_classes(const hf_reader *r)
{
    const ps_config_head head = head_used(r);
    const bool has_labels =
        head == PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION || head == PS_CONFIG_HEAD_TOKEN_CLASSIFICATION;
    return has_labels && !r->config->options.model_new_head;
}

static ps_status read_classes(const hf_reader *r)
{
    PS_TRY(adopt_json(r, PS_OPTION_model_num_labels, "num_labels", json_object_get(r->root, "num_labels")));
    PS_TRY(ps_hf_classes_read(r->root, r->path, &r->config->classes));
    if (json_object_size(json_object_get(r->root, "id2label")) +
            json_object_size(json_object_get(r->root, "label2id")) >
        0)
        adopt(r, PS_OPTION_model_num_labels, (ps_option_value){.i = r->config->classes.list.n});
    if (!uses_classes(r) || head_used(r) != PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION) return PS_OK;
    return adopt_json(r, PS_OPTION_model_problem_type, "problem_type", json_object_get(r->root, "problem_type"));
}

/* Errors in classes are reported only where the classes are used. */
static ps_status read_classes_if_used(const hf_reader *r)
{
    const ps_status st = read_classes(r);
    if (st != PS_EFORMAT || uses_classes(r)) return st;
    ps_hf_classes_forget(&r->config->classes);
    return PS_OK;
}

/* Weights in bitsandbytes' 4 bits are loaded as their values. */
static ps_status check_quantization(const hf_reader *r)
{
    const json_t *q = json_object_get(r->root, "quantization_config");
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    const bool is_4bit = json_is_true(json_object_get(q, "load_in_4bit"));
    if (q == NULL || json_is_null(q) || (method != NULL && strcmp(method, "bitsandbytes") == 0 && is_4bit))
        return PS_OK;
    return PS_FAIL(
        PS_EINVAL,
        "%s: \"quantization_config\": quant_method is \"%.40s\"%s: of quantized models those of bitsandbytes "
        "with load_in_4bit are supported; take the model that is not quantized, or dequantize it in Python",
        r->path, method != NULL ? method : "", is_4bit ? "" : " without load_in_4bit");
}

static ps_status check_fixed(const hf_reader *r, const ps_family_fixed *fixed)
{
    const json_t *have = json_object_get(r->root, fixed->key);
    if (have == NULL || json_is_null(have)) return PS_OK;
    json_t *wanted = json_loads(fixed->value, JSON_DECODE_ANY, NULL);
    const bool same = wanted != NULL && json_equal(have, wanted);
    json_decref(wanted);
    if (same) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s: \"%s\" is supported as %s only", r->path, fixed->key, fixed->value);
}

static ps_status read_keys(const hf_reader *r)
{
    PS_TRY(check_quantization(r));
    for (const ps_traits *t = &r->family->traits; t != NULL; t = t->more)
        for (const ps_family_fixed *f = t->fixed; f != NULL && f->key != NULL; f++) PS_TRY(check_fixed(r, f));
    for (const ps_traits *t = &r->family->traits; t != NULL; t = t->more)
        for (const ps_family_key *k = t->keys; k != NULL && k->key != NULL; k++)
            PS_TRY(adopt_json(r, k->id, k->key, json_object_get(r->root, k->key)));
    return PS_OK;
}

/* Without a factor, YaRN's factor is the quotient of the two lengths. */
static void adopt_yarn_factor(const hf_reader *r, const json_t *rope)
{
    const ps_config_adopted *type = &r->config->adopted[PS_OPTION_model_rope_scaling_rope_type],
                            *original =
                                &r->config->adopted[PS_OPTION_model_rope_scaling_original_max_position_embeddings];
    const json_t *longest = json_object_get(r->root, "max_position_embeddings");
    if (!type->is_set || type->value.i != PS_CONFIG_ROPE_YARN || json_is_number(json_object_get(rope, "factor")))
        return;
    if (original->is_set && original->value.i > 0 && json_is_integer(longest))
        adopt(r, PS_OPTION_model_rope_scaling_factor,
              (ps_option_value){.d = {(double)json_integer_value(longest) / (double)original->value.i}});
}

static ps_status check_rope_parts(const hf_reader *r, json_t *rope)
{
    const char *key;
    json_t *value;
    json_object_foreach(rope, key, value)
    {
        if (json_is_object(value))
            return PS_FAIL(PS_EINVAL, "%s: rope parameters of their own for layers of type \"%.40s\" are not supported",
                           r->path, key);
        if (strcmp(key, "partial_rotary_factor") == 0 && json_is_number(value) && json_number_value(value) != 1)
            return PS_FAIL(PS_EINVAL, "%s: \"partial_rotary_factor\" is supported as 1.0 only", r->path);
    }
    return PS_OK;
}

static ps_status read_rope(const hf_reader *r)
{
    json_t *rope = json_object_get(r->root, "rope_parameters");
    if (!json_is_object(rope)) rope = json_object_get(r->root, "rope_scaling");
    PS_TRY(adopt_json(r, PS_OPTION_model_rope_theta, "rope_theta", json_object_get(r->root, "rope_theta")));
    if (!json_is_object(rope)) return PS_OK;
    PS_TRY(check_rope_parts(r, rope));
    for (size_t i = 0; i < ps_hf_n_rope_keys; i++)
        PS_TRY(adopt_json(r, ps_hf_rope_keys[i].id, ps_hf_rope_keys[i].key,
                          json_object_get(rope, ps_hf_rope_keys[i].key)));
    const char *outside = "original_max_position_embeddings"; /* has precedence over the inner key, as in
                                                                 transformers */
    PS_TRY(adopt_json(r, PS_OPTION_model_rope_scaling_original_max_position_embeddings, outside,
                      json_object_get(r->root, outside)));
    const json_t *type = json_object_get(rope, "rope_type");
    if (type == NULL) type = json_object_get(rope, "type");
    PS_TRY(adopt_json(r, PS_OPTION_model_rope_scaling_rope_type, "rope_type", type));
    adopt_yarn_factor(r, rope);
    return PS_OK;
}

/* "layer_types": only full attention in the first layers and sliding in the others is supported; *n_full is the first
 * sliding layer. */
static ps_status read_layer_types(const hf_reader *r, const json_t *types, int64_t *n_full)
{
    size_t i;
    const json_t *type;
    bool slides = false;
    *n_full = 0;
    json_array_foreach(types, i, type)
    {
        const char *name = json_string_value(type);
        const bool full = name != NULL && strcmp(name, "full_attention") == 0;
        if (!full && (name == NULL || strcmp(name, "sliding_attention") != 0))
            return PS_FAIL(PS_EINVAL, "%s: \"layer_types\"[%zu] is neither full_attention nor sliding_attention",
                           r->path, i);
        if (full && slides)
            return PS_FAIL(PS_EINVAL,
                           "%s: \"layer_types\" has full attention after sliding attention at %zu; only the other "
                           "order is supported",
                           r->path, i);
        slides = slides || !full;
        *n_full += full;
    }
    return PS_OK;
}

static ps_status read_window(const hf_reader *r)
{
    const bool is_switched = r->family->window != PS_WINDOW_NUMBER;
    const json_t *window = json_object_get(r->root, "sliding_window"),
                 *use = json_object_get(r->root, "use_sliding_window");
    const json_t *types = json_object_get(r->root, "layer_types");
    int64_t n_full = 0;
    bool slides = json_is_integer(window) && (!is_switched || json_is_true(use));
    if (json_is_array(types)) {
        PS_TRY(read_layer_types(r, types, &n_full));
        slides = n_full < (int64_t)json_array_size(types);
    } else if (slides && is_switched) {
        n_full = json_integer_value(json_object_get(r->root, "max_window_layers"));
    }
    adopt(r, PS_OPTION_model_sliding_window, (ps_option_value){.i = 0});
    if (!slides) return PS_OK;
    PS_TRY(adopt_json(r, PS_OPTION_model_sliding_window, "sliding_window", window));
    json_t *first = json_integer(n_full);
    const ps_status st = adopt_json(r, PS_OPTION_model_max_window_layers, "max_window_layers", first);
    json_decref(first);
    return st;
}

static ps_status read_all(hf_reader *r)
{
    if (!json_is_object(r->root)) return PS_FAIL(PS_EFORMAT, "%s: not a JSON object", r->path);
    PS_TRY(read_type(r));
    PS_TRY(read_keys(r));
    PS_TRY(read_head(r));
    PS_TRY(read_classes_if_used(r));
    if (ps_family_uses(r->family, PS_OPTION_model_rope_theta)) PS_TRY(read_rope(r));
    return r->family->window != PS_WINDOW_NEVER ? read_window(r) : PS_OK;
}

ps_status ps_hf_config_parse(const char *text, int64_t n_bytes, const char *path, json_t **root)
{
    json_error_t error;
    *root = json_loadb(text, (size_t)n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (*root != NULL) return PS_OK;
    char printable[sizeof error.text];
    return PS_FAIL(PS_EFORMAT, "%s:%d:%d: %s", path, error.line, error.column > 0 ? error.column : 1,
                   ps_printable_copy(error.text, printable, sizeof printable));
}

/* A dumped configuration has values of at least these options, in every version; the file is then not needed. */
static bool is_complete(const ps_config *config)
{
#define XX(field) PS_OPTION_model_##field,
    static const ps_option_id always[] = {
        XX(type) XX(head) XX(new_head) XX(num_labels) XX(preset) XX(vocab_size) XX(max_position_embeddings)
            XX(hidden_size) XX(num_hidden_layers) XX(num_attention_heads) XX(num_key_value_heads) XX(head_dim)
                XX(intermediate_size) XX(hidden_act) XX(layer_norm_eps) XX(type_vocab_size) XX(rope_theta)
                    XX(rope_scaling_rope_type) XX(rope_scaling_factor) XX(sliding_window) XX(max_window_layers)
                        XX(attention_bias) XX(mlp_bias) XX(embd_pdrop) XX(resid_pdrop) XX(attn_pdrop)
                            XX(classifier_dropout) XX(tie_word_embeddings) XX(initializer_range)};
#undef XX
    for (size_t i = 0; i < PS_ARRAY_LEN(always); i++)
        if (!config->origin[always[i]].given) return false;
    return true;
}

ps_status ps_hf_config_read(ps_config *config, const char *text, int64_t n_bytes, const char *name)
{
    json_t *root = NULL;
    ps_config_forget_adopted(config);
    PS_TRY(ps_hf_config_parse(text, n_bytes, name, &root));
    hf_reader r = {.config = config, .path = name, .root = root};
    const ps_status st = read_all(&r);
    json_decref(root);
    if (st != PS_OK) ps_config_forget_adopted(config);
    return st;
}

void ps_config_forget_adopted(ps_config *config)
{
    memset(config->adopted, 0, sizeof config->adopted);
    ps_hf_classes_forget(&config->classes);
}

ps_status ps_config_adopt(ps_config *config)
{
    ps_status st;
    char *path = NULL, *text = NULL, hint[PS_MODEL_FOLDER_HINT_BYTES];
    int64_t n_bytes = 0;
    ps_config_forget_adopted(config);
    if (config->options.model_from_pretrained[0] == '\0' || is_complete(config)) return PS_OK;
    PS_TRY_GOTO(ps_model_folder_check("model.from_pretrained", config->options.model_from_pretrained));
    PS_TRY_GOTO(ps_folder_join(config->options.model_from_pretrained, "config.json", &path));
    if (ps_model_folder_rest_hint(path, hint)[0] != '\0' && !ps_file_exists(path)) {
        st = PS_FAIL(PS_EIO, "%s: there is no such file%s", path, hint);
        goto out;
    }
    PS_TRY_GOTO(ps_file_read_all(path, PS_HF_CONFIG_BYTES_MAX, &text, &n_bytes));
    PS_TRY_GOTO(ps_hf_config_read(config, text, n_bytes, path));
out:
    ps_mem_free(text);
    ps_mem_free(path);
    return st;
}
