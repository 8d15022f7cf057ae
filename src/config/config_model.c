/* config_model.c - the model section: options that follow from a type, a preset or a config.json, the rules between
 * options, and the model that they describe. */
#include "base/mem.h"
#include "config/config_state.h"
#include "config/model/class_weights.h"
#include "config/model/rotary.h"
#include "config/option/head.h"

#include <string.h>

/* ---- defaults ---- */

static void put_default(ps_config *config, ps_option_id id, ps_option_value value)
{
    if (!config->origin[id].given) ps_option_store(&ps_option_table[id], value, &config->options);
}

static void put_defaults(ps_config *config, const ps_family_default *defaults)
{
    for (const ps_family_default *d = defaults; d != NULL && d->id != 0; d++) put_default(config, d->id, d->value);
}

static void put_family_defaults(ps_config *config, const ps_traits *t)
{
    if (t->more != NULL) put_family_defaults(config, t->more);
    put_defaults(config, t->defaults);
}

typedef struct preset {
    ps_config_model type;
    int64_t max_position_embeddings, hidden_size, num_hidden_layers, num_attention_heads;
} preset;

static const preset presets[] = {
#define XX(value, text, type, positions, width, layers, heads)                                                         \
    [value] = {PS_CONFIG_MODEL_##type, positions, width, layers, heads},
    PS_CONFIG_PRESET_MAP(XX)
#undef XX
};

/* Options of presets that differ from their family in more than sizes. */
static const ps_family_default *const preset_defaults[] = {
    /* config.json of meta-llama/Llama-3.1-8B: 8,030,261,248 parameters */
    [PS_CONFIG_PRESET_LLAMA_3_1_8B] =
        (const ps_family_default[]){PS_DEFAULT_INT(vocab_size, 128256),
                                    PS_DEFAULT_INT(intermediate_size, 14336),
                                    PS_DEFAULT_INT(num_key_value_heads, 8),
                                    PS_DEFAULT_DOUBLE(layer_norm_eps, 1e-5),
                                    PS_DEFAULT_DOUBLE(rope_theta, 500000),
                                    PS_DEFAULT_INT(rope_scaling_rope_type, PS_CONFIG_ROPE_LLAMA3),
                                    PS_DEFAULT_DOUBLE(rope_scaling_factor, 8),
                                    PS_DEFAULT_DOUBLE(rope_scaling_low_freq_factor, 1),
                                    PS_DEFAULT_DOUBLE(rope_scaling_high_freq_factor, 4),
                                    PS_DEFAULT_INT(rope_scaling_original_max_position_embeddings, 8192),
                                    {0}},
    /* config.json of Qwen/Qwen3-0.6B: 596,049,920 parameters */
    [PS_CONFIG_PRESET_QWEN3_0_6B] = (const ps_family_default[]){PS_DEFAULT_INT(intermediate_size, 3072),
                                                                PS_DEFAULT_INT(num_key_value_heads, 8),
                                                                PS_DEFAULT_DOUBLE(rope_theta, 1000000),
                                                                PS_DEFAULT_BOOL(tie_word_embeddings, true),
                                                                {0}},
    [PS_ARRAY_LEN(presets) - 1] = NULL};

static void put_preset(ps_config *config, ps_config_preset which)
{
    const preset *p = &presets[which];
    put_default(config, PS_OPTION_model_max_position_embeddings, (ps_option_value){.i = p->max_position_embeddings});
    put_default(config, PS_OPTION_model_hidden_size, (ps_option_value){.i = p->hidden_size});
    put_default(config, PS_OPTION_model_num_hidden_layers, (ps_option_value){.i = p->num_hidden_layers});
    put_default(config, PS_OPTION_model_num_attention_heads, (ps_option_value){.i = p->num_attention_heads});
    put_defaults(config, preset_defaults[which]);
}

static void put_adopted(ps_config *config, ps_option_id id)
{
    if (config->adopted[id].is_set) put_default(config, id, config->adopted[id].value);
}

/* The class names of the model's folder are the default of data.labels; with a new head only where they are real
 * names. */
static void put_labels(ps_config *config)
{
    const ps_options *o = &config->options;
    const ps_config_classes *c = &config->classes;
    if (!ps_head_has_labels(o) || c->text == NULL) return;
    if (c->list.n == o->model_num_labels && (c->are_named || !o->model_new_head))
        put_default(config, PS_OPTION_data_labels, (ps_option_value){.s = c->text});
}

void ps_config_resolve_model(ps_config *config)
{
    const ps_options *o = &config->options;
    const bool has_preset = o->model_preset != PS_CONFIG_PRESET_NONE;
    if (has_preset) put_default(config, PS_OPTION_model_type, (ps_option_value){.i = presets[o->model_preset].type});
    put_adopted(config, PS_OPTION_model_type);
    put_family_defaults(config, &ps_family_of(o)->traits);
    if (has_preset) put_preset(config, o->model_preset);
    for (int i = 0; i < PS_OPTION_COUNT; i++) put_adopted(config, (ps_option_id)i);
    put_labels(config);
}

int64_t ps_config_sequence_length(const ps_options *o)
{
    enum { LONGEST_BY_ITSELF = 2048 };
    if (o->data_sequence_length > 0) return o->data_sequence_length;
    return ps_min_i64(o->model_max_position_embeddings, LONGEST_BY_ITSELF);
}

void ps_config_forget_old_defaults(ps_config *config)
{
    ps_options *o = &config->options;
    if (!ps_rotary_uses_original_positions(o) &&
        o->model_rope_scaling_original_max_position_embeddings == PS_ROTARY_ORIGINAL_OF_LLAMA_3)
        o->model_rope_scaling_original_max_position_embeddings = 0; /* the default before YaRN */
}

/* ---- rules ---- */

/* Options that only some families use, and the value that each has without effect. */
static ps_status check_uses(const ps_config *config)
{
    const ps_options *o = &config->options;
    if (o->model_preset != PS_CONFIG_PRESET_NONE && o->model_from_pretrained[0] != '\0')
        return ps_config_fail_for(config, PS_OPTION_model_preset,
                                  "model.preset and model.from_pretrained both say what the model is: remove one of "
                                  "them");
    for (int i = 0; i < PS_OPTION_COUNT; i++) {
        const ps_option_id id = (ps_option_id)i;
        if (!ps_config_has_default(config, id) && !ps_family_uses(ps_family_of(o), id))
            return ps_config_fail_for(config, id, "%s has no effect with model.type %s; remove it",
                                      ps_option_table[id].key, ps_config_model_names[o->model_type]);
    }
    return PS_OK;
}

static ps_status check_heads(const ps_config *config)
{
    const ps_options *o = &config->options;
    const long long width = o->model_hidden_size, heads = o->model_num_attention_heads;
    if (o->model_head_dim == 0 && width % heads != 0)
        return ps_config_fail_for(config, PS_OPTION_model_num_attention_heads,
                                  "model.hidden_size %lld is not a multiple of model.num_attention_heads %lld", width,
                                  heads);
    const long long shared = ps_model_n_kv_heads(o), head = ps_model_head_size(o);
    if (heads % shared != 0)
        return ps_config_fail_for(config, PS_OPTION_model_num_key_value_heads,
                                  "model.num_attention_heads %lld is not a multiple of model.num_key_value_heads %lld",
                                  heads, shared);
    if (head % 2 != 0 && ps_family_uses(ps_family_of(o), PS_OPTION_model_rope_theta))
        return ps_config_fail_for(config, PS_OPTION_model_head_dim,
                                  "heads of width %lld cannot be rotated in pairs: it must be even", head);
    return PS_OK;
}

static ps_status check_rope(const ps_config *config)
{
    const ps_options *o = &config->options;
    if (o->model_rope_scaling_rope_type == PS_CONFIG_ROPE_LLAMA3 &&
        o->model_rope_scaling_low_freq_factor >= o->model_rope_scaling_high_freq_factor)
        return ps_config_fail_for(config, PS_OPTION_model_rope_scaling_high_freq_factor,
                                  "model.rope_scaling.low_freq_factor %g is not below high_freq_factor %g",
                                  o->model_rope_scaling_low_freq_factor, o->model_rope_scaling_high_freq_factor);
    if (o->model_rope_scaling_rope_type == PS_CONFIG_ROPE_YARN &&
        o->model_rope_scaling_beta_slow >= o->model_rope_scaling_beta_fast)
        return ps_config_fail_for(config, PS_OPTION_model_rope_scaling_beta_slow,
                                  "model.rope_scaling.beta_slow %g is not below beta_fast %g",
                                  o->model_rope_scaling_beta_slow, o->model_rope_scaling_beta_fast);
    return PS_OK;
}

static ps_status check_head(const ps_config *config)
{
    const ps_options *o = &config->options;
    const ps_family *f = ps_family_of(o);
    if (f->class_ends[o->model_head] == NULL)
        return ps_config_fail_for(config, PS_OPTION_model_head, "model.type %s has no head %s",
                                  ps_config_model_names[o->model_type], ps_config_head_names[o->model_head]);
    if (f->is_gated != (o->model_hidden_act == PS_CONFIG_ACTIVATION_SILU))
        return ps_config_fail_for(
            config, PS_OPTION_model_hidden_act, "model.hidden_act %s does not go with model.type %s",
            ps_config_activation_names[o->model_hidden_act], ps_config_model_names[o->model_type]);
    if (o->model_new_head && o->model_from_pretrained[0] == '\0')
        return ps_config_fail_for(config, PS_OPTION_model_new_head,
                                  "model.new_head has no effect without model.from_pretrained; remove it");
    if (o->model_resize_token_embeddings && o->model_from_pretrained[0] == '\0')
        return ps_config_fail_for(config, PS_OPTION_model_resize_token_embeddings,
                                  "model.resize_token_embeddings has no effect without model.from_pretrained; set "
                                  "model.vocab_size");
    if (o->model_pad_to_multiple_of > 0 && !o->model_resize_token_embeddings)
        return ps_config_fail_for(
            config, PS_OPTION_model_pad_to_multiple_of,
            "model.pad_to_multiple_of has no effect without model.resize_token_embeddings; remove it");
    return PS_OK;
}

/* The weights of a head that is not new belong to classes in the order of its folder. */
static ps_status check_labels(const ps_config *config)
{
    const ps_options *o = &config->options;
    const ps_config_classes *c = &config->classes;
    char problem[700];
    ps_label_list given;
    if (o->model_new_head || c->list.n != o->model_num_labels || !config->origin[PS_OPTION_data_labels].given)
        return PS_OK;
    PS_TRY(ps_label_list_parse(o->data_labels, &given));
    const bool is_wrong =
        ps_label_list_contradicts(&given, &c->list, "the model in model.from_pretrained", problem, sizeof problem);
    ps_label_list_deinit(&given);
    return is_wrong ? ps_config_fail_for(config, PS_OPTION_data_labels, "%s, or set model.new_head", problem) : PS_OK;
}

static ps_status check_classes(const ps_config *config)
{
    const ps_options *o = &config->options;
    if (!ps_head_has_labels(o)) return PS_OK;
    if (ps_head_has_cross_entropy(o) && o->model_num_labels == 1)
        return ps_config_fail_for(
            config, PS_OPTION_model_num_labels,
            "model.num_labels = 1: a choice among one class learns nothing; give at least 2%s",
            o->model_head == PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION ? ", or model.problem_type = regression" : "");
    return check_labels(config);
}

/* Options that only cross-entropy losses have. */
static ps_status check_loss(const ps_config *config)
{
    static const ps_option_id of_cross_entropy[] = {PS_OPTION_train_label_smoothing, PS_OPTION_train_z_loss,
                                                    PS_OPTION_train_class_weights};
    const ps_options *o = &config->options;
    const bool is_sequence = o->model_head == PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION;
    for (size_t i = 0; i < PS_ARRAY_LEN(of_cross_entropy); i++) {
        const ps_option_id id = of_cross_entropy[i];
        const bool has_effect =
            ps_head_has_cross_entropy(o) && (id != PS_OPTION_train_class_weights || ps_head_has_labels(o));
        if (has_effect || ps_config_has_default(config, id)) continue;
        return ps_config_fail_for(config, id, "%s has no effect with %s %s; remove it", ps_config_key(config, id),
                                  is_sequence ? "model.problem_type" : "model.head",
                                  is_sequence ? ps_config_problem_names[ps_head_problem(o)]
                                              : ps_config_head_names[o->model_head]);
    }
    if (!ps_head_has_labels(o)) return PS_OK;
    float *weights;
    const ps_status st = ps_class_weights_parse(o->train_class_weights, o->model_num_labels, &weights);
    ps_mem_free(weights);
    return st == PS_EINVAL ? ps_config_fail_for(config, PS_OPTION_train_class_weights, "%s", ps_last_error()) : st;
}

ps_status ps_config_check_model(const ps_config *config)
{
    const ps_options *o = &config->options;
    PS_TRY(check_uses(config));
    PS_TRY(check_heads(config));
    PS_TRY(check_rope(config));
    PS_TRY(check_head(config));
    PS_TRY(check_classes(config));
    PS_TRY(check_loss(config));
    if (o->generation_max_length > o->model_max_position_embeddings)
        return ps_config_fail_for(config, PS_OPTION_generation_max_length,
                                  "generation.max_length %lld exceeds model.max_position_embeddings %lld",
                                  (long long)o->generation_max_length, (long long)o->model_max_position_embeddings);
    if (o->data_sequence_length > o->model_max_position_embeddings)
        return ps_config_fail_for(config, PS_OPTION_data_sequence_length,
                                  "data.sequence_length %lld exceeds model.max_position_embeddings %lld",
                                  (long long)o->data_sequence_length, (long long)o->model_max_position_embeddings);
    if (o->activation_checkpointing_number_checkpoints > o->model_num_hidden_layers)
        return ps_config_fail_for(
            config, PS_OPTION_activation_checkpointing_number_checkpoints,
            "activation_checkpointing.number_checkpoints %lld exceeds model.num_hidden_layers %lld",
            (long long)o->activation_checkpointing_number_checkpoints, (long long)o->model_num_hidden_layers);
    return PS_OK;
}

ps_status ps_model_from_config(ps_builder *b, void *user)
{
    PS_TRY(PS_NEED("builder user", b, user));
    const ps_options *o = ps_config_options(user);
    return ps_family_of(o)->build(b, o);
}
