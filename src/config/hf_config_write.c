/* hf_config_write.c - writes the options of a model as a config.json of Hugging Face's transformers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/mem.h"
#include "config/hf_config.h"
#include "config/hf_config_impl.h"
#include "config/model/rotary.h"

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

/* The derived value of an option. */
static json_t *key_json(const ps_options *o, const ps_family_key *k)
{
    if (k->id == PS_OPTION_model_num_key_value_heads) return json_integer(ps_model_n_kv_heads(o));
    if (k->id == PS_OPTION_model_head_dim) return json_integer(ps_model_head_size(o));
    if (k->id == PS_OPTION_model_intermediate_size && o->model_intermediate_size == 0)
        return k->has_null ? json_null() : json_integer(ps_model_inner_size(o));
    if (k->id == PS_OPTION_model_classifier_dropout && o->model_classifier_dropout < 0) return json_null();
    return option_json(o, k->id);
}

static void write_keys(const ps_options *o, json_t *root)
{
    for (const ps_traits *t = &ps_family_of(o)->traits; t != NULL; t = t->more)
        for (const ps_family_key *k = t->keys; k != NULL && k->key != NULL; k++)
            json_object_set_new(root, k->key, key_json(o, k));
}

/* Options of YaRN whose 0 means absent. */
static bool is_left_out(const ps_options *o, ps_option_id id)
{
    return (id == PS_OPTION_model_rope_scaling_attention_factor && o->model_rope_scaling_attention_factor == 0) ||
           (id == PS_OPTION_model_rope_scaling_mscale && o->model_rope_scaling_mscale == 0) ||
           (id == PS_OPTION_model_rope_scaling_mscale_all_dim && o->model_rope_scaling_mscale_all_dim == 0);
}

/* Write both forms: that of version 5, and that of earlier versions. */
static void write_rope(const ps_options *o, json_t *root)
{
    const bool is_scaled = o->model_rope_scaling_rope_type != PS_CONFIG_ROPE_DEFAULT;
    json_t *rope = json_object();
    json_object_set_new(rope, "rope_type", option_json(o, PS_OPTION_model_rope_scaling_rope_type));
    for (size_t i = 0; i < ps_hf_n_rope_keys; i++) {
        const ps_hf_rope_key *k = &ps_hf_rope_keys[i];
        if ((k->scalings >> o->model_rope_scaling_rope_type & 1) && !is_left_out(o, k->id))
            json_object_set_new(rope, k->key, option_json(o, k->id));
    }
    if (json_object_get(rope, "original_max_position_embeddings") != NULL)
        json_object_set_new(rope, "original_max_position_embeddings", json_integer(ps_rotary_original_positions(o)));
    json_t *old = is_scaled ? json_deep_copy(rope) : json_null();
    (void)json_object_del(old, "rope_theta");
    json_object_set_new(root, "rope_theta", json_real(o->model_rope_theta));
    json_object_set_new(root, "rope_scaling", old);
    json_object_set_new(root, "rope_parameters", rope);
    (void)json_object_del(root, "original_max_position_embeddings");
}

static void write_window(const ps_options *o, json_t *root)
{
    const bool slides = o->model_sliding_window > 0;
    const ps_family_window window = ps_family_of(o)->window;
    if (window != PS_WINDOW_NUMBER && window != PS_WINDOW_SWITCHED) return;
    json_object_set_new(root, "sliding_window", slides ? json_integer(o->model_sliding_window) : json_null());
    json_object_del(root, "layer_types");
    if (window == PS_WINDOW_NUMBER) return;
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
    const ps_family *f = ps_family_of(o);
    json_object_set_new(root, "architectures", json_pack("[s+]", f->class_name, f->class_ends[o->model_head]));
    json_object_set_new(root, "model_type", json_string(ps_config_model_names[o->model_type]));
}

/* The config.json of model.from_pretrained, or an empty object when it no longer exists or is another model now. */
static ps_status read_origin(const ps_config *config, json_t **root)
{
    char *path = NULL, *text = NULL;
    int64_t n_bytes = 0;
    *root = NULL;
    if (config->options.model_from_pretrained[0] != '\0') {
        PS_TRY(ps_folder_join(config->options.model_from_pretrained, "config.json", &path));
        if (ps_file_exists(path) && ps_file_read_all(path, PS_HF_CONFIG_BYTES_MAX, &text, &n_bytes) == PS_OK)
            (void)!ps_hf_config_parse(text, n_bytes, path, root);
        ps_mem_free(text);
        ps_mem_free(path);
    }
    if (!json_is_object(*root)) {
        json_decref(*root);
        *root = json_object();
    }
    return *root != NULL ? PS_OK : PS_FAIL(PS_ENOMEM_HOST, "no memory for a config.json");
}

ps_status ps_hf_config_write(const ps_config *config, const char *dtype, int32_t pad_token, char **json)
{
    const ps_options *o = &config->options;
    json_t *root = NULL;
    *json = NULL;
    PS_TRY(read_origin(config, &root));
    write_architecture(o, root);
    write_keys(o, root);
    if (ps_family_uses(ps_family_of(o), PS_OPTION_model_rope_theta)) write_rope(o, root);
    write_window(o, root);
    ps_status st = ps_hf_classes_write(o, root);
    if (st != PS_OK) {
        json_decref(root);
        return st;
    }
    if (o->model_head == PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION && pad_token >= 0 &&
        !json_is_integer(json_object_get(root, "pad_token_id")))
        json_object_set_new(root, "pad_token_id", json_integer(pad_token));
    json_object_set_new(root, "torch_dtype", json_string(dtype));
    json_object_set_new(root, "dtype", json_string(dtype));
    json_object_del(root, "transformers_version");
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
    json_decref(root);
    if (text == NULL) return PS_FAIL(PS_ENOMEM_HOST, "no memory for a config.json");
    st = ps_mem_strdup(text, json);
    free(text);
    return st;
}
