/* hf_config.c - Hugging Face's config.json <-> the options of a model.
 *
 * Keys as in transformers' configuration classes, of version 5 (rope_parameters, layer_types, dtype) and those before
 * (rope_theta and rope_scaling, torch_dtype). What would change the result and has no counterpart here is refused by name,
 * never ignored. */
#include "config/hf_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "config/config_state.h"

#define CONFIG_BYTES_MAX (16 * PS_MIB)

#define BIT(type) (1u << PS_CONFIG_MODEL_##type)
#define LLAMA_FAMILY (BIT(LLAMA) | BIT(MISTRAL) | BIT(QWEN2) | BIT(QWEN3))
#define MODERN (LLAMA_FAMILY | BIT(BERT))

/* ---- keys that are options under some name ---- */

typedef struct hf_key {
    const char *key;
    unsigned types;
    ps_option_id id;
} hf_key;

static const hf_key hf_keys[] = {
#define KEY(key, types, field)                                                                                         \
    {                                                                                                                  \
        key, types, PS_OPTION_model_##field                                                                            \
    }
    KEY("vocab_size", MODERN | BIT(GPT2), vocab_size),
    KEY("initializer_range", MODERN | BIT(GPT2), initializer_range),
    KEY("tie_word_embeddings", MODERN | BIT(GPT2), tie_word_embeddings),
    KEY("n_positions", BIT(GPT2), max_position_embeddings),
    KEY("n_embd", BIT(GPT2), hidden_size),
    KEY("n_layer", BIT(GPT2), num_hidden_layers),
    KEY("n_head", BIT(GPT2), num_attention_heads),
    KEY("n_inner", BIT(GPT2), intermediate_size),
    KEY("activation_function", BIT(GPT2), hidden_act),
    KEY("layer_norm_epsilon", BIT(GPT2), layer_norm_eps),
    KEY("embd_pdrop", BIT(GPT2), embd_pdrop),
    KEY("resid_pdrop", BIT(GPT2), resid_pdrop),
    KEY("attn_pdrop", BIT(GPT2), attn_pdrop),
    KEY("max_position_embeddings", MODERN, max_position_embeddings),
    KEY("hidden_size", MODERN, hidden_size),
    KEY("num_hidden_layers", MODERN, num_hidden_layers),
    KEY("num_attention_heads", MODERN, num_attention_heads),
    KEY("intermediate_size", MODERN, intermediate_size),
    KEY("hidden_act", MODERN, hidden_act),
    KEY("layer_norm_eps", BIT(BERT), layer_norm_eps),
    KEY("type_vocab_size", BIT(BERT), type_vocab_size),
    KEY("hidden_dropout_prob", BIT(BERT), embd_pdrop),
    KEY("hidden_dropout_prob", BIT(BERT), resid_pdrop),
    KEY("attention_probs_dropout_prob", BIT(BERT), attn_pdrop),
    KEY("classifier_dropout", BIT(BERT), classifier_dropout),
    KEY("rms_norm_eps", LLAMA_FAMILY, layer_norm_eps),
    KEY("num_key_value_heads", LLAMA_FAMILY, num_key_value_heads),
    KEY("head_dim", LLAMA_FAMILY, head_dim),
    KEY("attention_dropout", LLAMA_FAMILY, attn_pdrop),
    KEY("attention_bias", BIT(LLAMA) | BIT(QWEN3), attention_bias),
    KEY("mlp_bias", BIT(LLAMA), mlp_bias),
#undef KEY
};

/* Under "rope_parameters" (version 5), or "rope_scaling". */
static const struct {
    const char *key;
    ps_option_id id;
} rope_keys[] = {
    {"rope_theta", PS_OPTION_model_rope_theta},
    {"factor", PS_OPTION_model_rope_scaling_factor},
    {"low_freq_factor", PS_OPTION_model_rope_scaling_low_freq_factor},
    {"high_freq_factor", PS_OPTION_model_rope_scaling_high_freq_factor},
    {"original_max_position_embeddings", PS_OPTION_model_rope_scaling_original_max_position_embeddings},
};

/* Keys that must have this value, where they are there. */
static const struct {
    const char *key;
    unsigned types;
    const char *value; /* JSON */
} fixed_keys[] = {
    {"scale_attn_weights", BIT(GPT2), "true"},
    {"scale_attn_by_inverse_layer_idx", BIT(GPT2), "false"},
    {"add_cross_attention", BIT(GPT2) | BIT(BERT), "false"},
    {"is_decoder", BIT(BERT), "false"},
    {"is_encoder_decoder", MODERN | BIT(GPT2), "false"},
    {"position_embedding_type", BIT(BERT), "\"absolute\""},
    {"partial_rotary_factor", LLAMA_FAMILY, "1.0"},
    {"attention_bias", BIT(MISTRAL) | BIT(QWEN2), "false"},
    {"mlp_bias", BIT(MISTRAL) | BIT(QWEN2) | BIT(QWEN3), "false"},
    {"quantization_config", MODERN | BIT(GPT2), "null"},
    {"pruned_heads", MODERN | BIT(GPT2), "{}"},
};

/* Ends of class names: "architectures": ["BertForMaskedLM"]. */
static const struct {
    const char *end;
    ps_config_head head;
} heads[] = {
    {"ForSequenceClassification", PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION},
    {"ForCausalLM", PS_CONFIG_HEAD_CAUSAL_LM},
    {"LMHeadModel", PS_CONFIG_HEAD_CAUSAL_LM},
    {"ForMaskedLM", PS_CONFIG_HEAD_MASKED_LM},
    {"ForPreTraining", PS_CONFIG_HEAD_MASKED_LM},
    {"Model", PS_CONFIG_HEAD_NONE},
};

static const char *const class_names[] = {
    [PS_CONFIG_MODEL_GPT2] = "GPT2",   [PS_CONFIG_MODEL_LLAMA] = "Llama", [PS_CONFIG_MODEL_MISTRAL] = "Mistral",
    [PS_CONFIG_MODEL_QWEN2] = "Qwen2", [PS_CONFIG_MODEL_QWEN3] = "Qwen3", [PS_CONFIG_MODEL_BERT] = "Bert"};

/* ---- reading ---- */

typedef struct hf_reader {
    ps_config *config;
    const char *path;
    const json_t *root;
    ps_config_model type;
} hf_reader;

static void adopt(const hf_reader *r, ps_option_id id, ps_option_value value)
{
    r->config->adopted[id] = (ps_config_adopted){.is_set = true, .value = value};
}

/* Absent and null leave the option alone. */
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

static ps_status read_type(hf_reader *r)
{
    const char *name = json_string_value(json_object_get(r->root, "model_type"));
    if (name == NULL) return PS_FAIL(PS_EFORMAT, "%s: no \"model_type\"", r->path);
    for (int i = 0; i < (int)PS_ARRAY_LEN(class_names); i++) {
        if (strcmp(name, ps_config_model_names[i]) != 0) continue;
        const ps_options *o = &r->config->options;
        if (ps_config_is_given(r->config, PS_OPTION_model_type) && o->model_type != (ps_config_model)i)
            return PS_FAIL(PS_EINVAL, "%s is a %s, but model.type is %s; leave model.type out", r->path, name,
                           ps_config_model_names[o->model_type]);
        r->type = (ps_config_model)i;
        adopt(r, PS_OPTION_model_type, (ps_option_value){.i = i});
        return PS_OK;
    }
    return PS_FAIL(PS_EINVAL,
                   "%s: model_type \"%.40s\" is not supported; gpt2, llama, mistral, qwen2, qwen3 and bert are",
                   r->path, name);
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
    if (name == NULL || ps_config_is_given(r->config, PS_OPTION_model_head)) return PS_OK;
    return PS_FAIL(PS_EINVAL, "%s: the head of %.80s is not known here; give model.head (and model.new_head)", r->path,
                   name);
}

static ps_status read_labels(const hf_reader *r)
{
    const json_t *labels = json_object_get(r->root, "id2label");
    PS_TRY(adopt_json(r, PS_OPTION_model_num_labels, "num_labels", json_object_get(r->root, "num_labels")));
    if (json_object_size(labels) > 0)
        adopt(r, PS_OPTION_model_num_labels, (ps_option_value){.i = (int64_t)json_object_size(labels)});
    return PS_OK;
}

static ps_status check_fixed(const hf_reader *r)
{
    for (size_t i = 0; i < PS_ARRAY_LEN(fixed_keys); i++) {
        const json_t *have = json_object_get(r->root, fixed_keys[i].key);
        if (!(fixed_keys[i].types >> r->type & 1) || have == NULL || json_is_null(have)) continue;
        json_t *wanted = json_loads(fixed_keys[i].value, JSON_DECODE_ANY, NULL);
        const bool same = wanted != NULL && json_equal(have, wanted);
        json_decref(wanted);
        if (!same)
            return PS_FAIL(PS_EINVAL, "%s: \"%s\" is supported as %s only", r->path, fixed_keys[i].key,
                           fixed_keys[i].value);
    }
    return PS_OK;
}

static ps_status read_rope(const hf_reader *r)
{
    const json_t *rope = json_object_get(r->root, "rope_parameters");
    if (!json_is_object(rope)) rope = json_object_get(r->root, "rope_scaling");
    PS_TRY(adopt_json(r, PS_OPTION_model_rope_theta, "rope_theta", json_object_get(r->root, "rope_theta")));
    if (!json_is_object(rope)) return PS_OK;
    for (size_t i = 0; i < PS_ARRAY_LEN(rope_keys); i++)
        PS_TRY(adopt_json(r, rope_keys[i].id, rope_keys[i].key, json_object_get(rope, rope_keys[i].key)));
    const json_t *type = json_object_get(rope, "rope_type");
    if (type == NULL) type = json_object_get(rope, "type");
    return adopt_json(r, PS_OPTION_model_rope_scaling_rope_type, "rope_type", type);
}

/* "layer_types": first full attention, then sliding, is what we have; *n_full is where it changes. */
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

/* Mistral slides where sliding_window is a number; Qwen when use_sliding_window says so, from max_window_layers on. */
static ps_status read_window(const hf_reader *r)
{
    const json_t *window = json_object_get(r->root, "sliding_window"),
                 *use = json_object_get(r->root, "use_sliding_window");
    const json_t *types = json_object_get(r->root, "layer_types");
    int64_t n_full = 0;
    bool slides = json_is_integer(window) && (r->type == PS_CONFIG_MODEL_MISTRAL || json_is_true(use));
    if (json_is_array(types)) {
        PS_TRY(read_layer_types(r, types, &n_full));
        slides = n_full < (int64_t)json_array_size(types);
    } else if (slides && r->type != PS_CONFIG_MODEL_MISTRAL) {
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
    PS_TRY(check_fixed(r));
    for (size_t i = 0; i < PS_ARRAY_LEN(hf_keys); i++)
        if (hf_keys[i].types >> r->type & 1)
            PS_TRY(adopt_json(r, hf_keys[i].id, hf_keys[i].key, json_object_get(r->root, hf_keys[i].key)));
    PS_TRY(read_head(r));
    PS_TRY(read_labels(r));
    if (LLAMA_FAMILY >> r->type & 1) {
        PS_TRY(read_rope(r));
        PS_TRY(read_window(r));
    }
    return PS_OK;
}

static ps_status config_path(const char *folder, char **out)
{
    const size_t bytes = strlen(folder) + sizeof "/config.json";
    PS_TRY(ps_mem_alloc(bytes, 1, out));
    snprintf(*out, bytes, "%s/config.json", folder);
    return PS_OK;
}

static ps_status parse_json(const char *text, int64_t n_bytes, const char *path, json_t **root)
{
    json_error_t error;
    *root = json_loadb(text, (size_t)n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (*root != NULL) return PS_OK;
    char printable[sizeof error.text];
    return PS_FAIL(PS_EFORMAT, "%s:%d:%d: %s", path, error.line, error.column > 0 ? error.column : 1,
                   ps_option_printable(error.text, printable, sizeof printable));
}

/* Is every option of the model given? Then the file has nothing to say: so it is for a configuration that was dumped. */
static bool is_complete(const ps_config *config)
{
    for (int i = 0; i < PS_OPTION_COUNT; i++)
        if (strncmp(ps_option_table[i].key, "model.", 6) == 0 && !config->origin[i].given) return false;
    return true;
}

ps_status ps_hf_config_read(ps_config *config, const char *text, int64_t n_bytes, const char *name)
{
    json_t *root = NULL;
    memset(config->adopted, 0, sizeof config->adopted);
    PS_TRY(parse_json(text, n_bytes, name, &root));
    hf_reader r = {.config = config, .path = name, .root = root};
    const ps_status st = read_all(&r);
    json_decref(root);
    if (st != PS_OK) memset(config->adopted, 0, sizeof config->adopted);
    return st;
}

ps_status ps_config_adopt(ps_config *config)
{
    ps_status st;
    char *path = NULL, *text = NULL;
    int64_t n_bytes = 0;
    memset(config->adopted, 0, sizeof config->adopted);
    if (config->options.model_from_pretrained[0] == '\0' || is_complete(config)) return PS_OK;
    PS_TRY_GOTO(config_path(config->options.model_from_pretrained, &path));
    PS_TRY_GOTO(ps_file_read_all(path, CONFIG_BYTES_MAX, &text, &n_bytes));
    PS_TRY_GOTO(ps_hf_config_read(config, text, n_bytes, path));
out:
    ps_mem_free(text);
    ps_mem_free(path);
    return st;
}

/* ---- writing ---- */

static json_t *option_json(const ps_options *o, ps_option_id id)
{
    const ps_option *option = &ps_option_table[id];
    const ps_option_value value = ps_option_load(option, o);
    switch (option->type) {
    case PS_OPTION_BOOL: return json_boolean(value.b);
    case PS_OPTION_INT:
    case PS_OPTION_BYTES: return json_integer(value.i);
    case PS_OPTION_DOUBLE: return json_real(value.d[0]);
    case PS_OPTION_ENUM: return json_string(option->names[value.i]);
    case PS_OPTION_PAIR:
    case PS_OPTION_RANGE:
    case PS_OPTION_STRING: break;
    }
    return NULL;
}

/* Options whose zero stands for something. */
static int64_t or_else(int64_t value, int64_t otherwise)
{
    return value > 0 ? value : otherwise;
}

static void write_sizes(const ps_options *o, json_t *root)
{
    const int64_t heads_all = o->model_num_attention_heads;
    if (o->model_type == PS_CONFIG_MODEL_GPT2) {
        if (o->model_intermediate_size == 0) json_object_set_new(root, "n_inner", json_null());
        return;
    }
    json_object_set_new(root, "intermediate_size",
                        json_integer(or_else(o->model_intermediate_size, 4 * o->model_hidden_size)));
    if (o->model_type == PS_CONFIG_MODEL_BERT) {
        if (o->model_classifier_dropout < 0) json_object_set_new(root, "classifier_dropout", json_null());
        return;
    }
    json_object_set_new(root, "num_key_value_heads", json_integer(or_else(o->model_num_key_value_heads, heads_all)));
    json_object_set_new(root, "head_dim", json_integer(or_else(o->model_head_dim, o->model_hidden_size / heads_all)));
}

/* Both spellings: that of version 5, and that of those before. */
static void write_rope(const ps_options *o, json_t *root)
{
    json_t *rope = json_object();
    json_object_set_new(rope, "rope_type", option_json(o, PS_OPTION_model_rope_scaling_rope_type));
    if (o->model_rope_scaling_rope_type != PS_CONFIG_ROPE_DEFAULT)
        json_object_set_new(rope, "factor", option_json(o, PS_OPTION_model_rope_scaling_factor));
    if (o->model_rope_scaling_rope_type == PS_CONFIG_ROPE_LLAMA3)
        for (size_t i = 2; i < PS_ARRAY_LEN(rope_keys); i++)
            json_object_set_new(rope, rope_keys[i].key, option_json(o, rope_keys[i].id));
    json_object_set_new(root, "rope_theta", json_real(o->model_rope_theta));
    json_object_set_new(root, "rope_scaling",
                        o->model_rope_scaling_rope_type == PS_CONFIG_ROPE_DEFAULT ? json_null() : json_deep_copy(rope));
    json_object_set_new(rope, "rope_theta", json_real(o->model_rope_theta));
    json_object_set_new(root, "rope_parameters", rope);
}

static void write_window(const ps_options *o, json_t *root)
{
    const bool slides = o->model_sliding_window > 0;
    if (o->model_type == PS_CONFIG_MODEL_LLAMA) return;
    json_object_set_new(root, "sliding_window", slides ? json_integer(o->model_sliding_window) : json_null());
    json_object_del(root, "layer_types");
    if (o->model_type == PS_CONFIG_MODEL_MISTRAL) return;
    json_object_set_new(root, "use_sliding_window", json_boolean(slides));
    json_object_set_new(root, "max_window_layers",
                        json_integer(slides ? o->model_max_window_layers : o->model_num_hidden_layers));
    json_t *types = json_array();
    for (int64_t i = 0; i < o->model_num_hidden_layers; i++)
        json_array_append_new(
            types, json_string(slides && i >= o->model_max_window_layers ? "sliding_attention" : "full_attention"));
    json_object_set_new(root, "layer_types", types);
}

static void write_architecture(const ps_options *o, json_t *root)
{
    static const char *const ends[] = {[PS_CONFIG_HEAD_CAUSAL_LM] = "ForCausalLM",
                                       [PS_CONFIG_HEAD_MASKED_LM] = "ForMaskedLM",
                                       [PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION] = "ForSequenceClassification",
                                       [PS_CONFIG_HEAD_NONE] = "Model"};
    const bool is_gpt2_lm = o->model_type == PS_CONFIG_MODEL_GPT2 && o->model_head == PS_CONFIG_HEAD_CAUSAL_LM;
    json_object_set_new(
        root, "architectures",
        json_pack("[s+]", class_names[o->model_type], is_gpt2_lm ? "LMHeadModel" : ends[o->model_head]));
    json_object_set_new(root, "model_type", json_string(ps_config_model_names[o->model_type]));
}

/* The i-th of the names with commas between them in data.labels, or LABEL_i. */
static void label_name(const ps_options *o, int64_t i, char *out, size_t bytes)
{
    const char *names = o->data_labels;
    snprintf(out, bytes, "LABEL_%lld", (long long)i);
    for (; *names != '\0' && i > 0; i--) {
        names += strcspn(names, ",");
        if (*names == ',') names++;
    }
    if (*names != '\0') snprintf(out, bytes, "%.*s", (int)strcspn(names, ","), names);
}

/* Names of the labels that the model came with are kept when there are as many as classes. */
static void write_labels(const ps_options *o, json_t *root)
{
    const bool has_names = (int64_t)json_object_size(json_object_get(root, "id2label")) == o->model_num_labels;
    if (o->model_head != PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION || (has_names && o->data_labels[0] == '\0')) return;
    json_t *names = json_object(), *ids = json_object();
    for (int64_t i = 0; i < o->model_num_labels; i++) {
        char id[24], name[256];
        snprintf(id, sizeof id, "%lld", (long long)i);
        label_name(o, i, name, sizeof name);
        json_object_set_new(names, id, json_string(name));
        json_object_set_new(ids, name, json_integer(i));
    }
    json_object_set_new(root, "id2label", names);
    json_object_set_new(root, "label2id", ids);
}

/* What the folder that the model came from says, or an empty object: it may be gone, or be another one by now. */
static ps_status read_origin(const ps_config *config, json_t **root)
{
    char *path = NULL, *text = NULL;
    int64_t n_bytes = 0;
    *root = NULL;
    if (config->options.model_from_pretrained[0] != '\0') {
        PS_TRY(config_path(config->options.model_from_pretrained, &path));
        if (ps_file_exists(path) && ps_file_read_all(path, CONFIG_BYTES_MAX, &text, &n_bytes) == PS_OK)
            (void)!parse_json(text, n_bytes, path, root);
        ps_mem_free(text);
        ps_mem_free(path);
    }
    if (!json_is_object(*root)) {
        json_decref(*root);
        *root = json_object();
    }
    return *root != NULL ? PS_OK : PS_FAIL(PS_ENOMEM_HOST, "no memory for a config.json");
}

ps_status ps_hf_config_write(const ps_config *config, const char *dtype, char **json)
{
    const ps_options *o = &config->options;
    json_t *root = NULL;
    *json = NULL;
    PS_TRY(read_origin(config, &root));
    write_architecture(o, root);
    for (size_t i = 0; i < PS_ARRAY_LEN(hf_keys); i++)
        if (hf_keys[i].types >> o->model_type & 1)
            json_object_set_new(root, hf_keys[i].key, option_json(o, hf_keys[i].id));
    write_sizes(o, root);
    if (LLAMA_FAMILY >> o->model_type & 1) {
        write_rope(o, root);
        write_window(o, root);
    }
    write_labels(o, root);
    json_object_set_new(root, "torch_dtype", json_string(dtype));
    json_object_set_new(root, "dtype", json_string(dtype));
    json_object_del(root, "transformers_version");
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
    json_decref(root);
    if (text == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for a config.json");
    const ps_status st = ps_mem_strdup(text, json);
    free(text);
    return st;
}
