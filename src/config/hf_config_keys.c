/* hf_config_keys.c - the keys of a config.json that are options, under the names that each class gives them. */
#include "base/base.h"
#include "config/hf_config_impl.h"

const ps_hf_key ps_hf_keys[] = {
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
const size_t ps_hf_n_keys = PS_ARRAY_LEN(ps_hf_keys);

#define SCALING(type) (1u << PS_CONFIG_ROPE_##type)

const ps_hf_rope_key ps_hf_rope_keys[] = {
#define KEY(key, scalings)                                                                                             \
    {                                                                                                                  \
#key, PS_OPTION_model_rope_scaling_##key, scalings                                                             \
    }
    {"rope_theta", PS_OPTION_model_rope_theta, SCALING(DEFAULT) | SCALING(LINEAR) | SCALING(LLAMA3) | SCALING(YARN)},
    KEY(factor, SCALING(LINEAR) | SCALING(LLAMA3) | SCALING(YARN)),
    KEY(low_freq_factor, SCALING(LLAMA3)),
    KEY(high_freq_factor, SCALING(LLAMA3)),
    KEY(original_max_position_embeddings, SCALING(LLAMA3) | SCALING(YARN)),
    KEY(beta_fast, SCALING(YARN)),
    KEY(beta_slow, SCALING(YARN)),
    KEY(attention_factor, SCALING(YARN)),
    KEY(mscale, SCALING(YARN)),
    KEY(mscale_all_dim, SCALING(YARN)),
    KEY(truncate, SCALING(YARN)),
#undef KEY
};
const size_t ps_hf_n_rope_keys = PS_ARRAY_LEN(ps_hf_rope_keys);

const char *const ps_hf_class_names[] = {
    [PS_CONFIG_MODEL_GPT2] = "GPT2",   [PS_CONFIG_MODEL_LLAMA] = "Llama", [PS_CONFIG_MODEL_MISTRAL] = "Mistral",
    [PS_CONFIG_MODEL_QWEN2] = "Qwen2", [PS_CONFIG_MODEL_QWEN3] = "Qwen3", [PS_CONFIG_MODEL_BERT] = "Bert"};
const size_t ps_hf_n_class_names = PS_ARRAY_LEN(ps_hf_class_names);
