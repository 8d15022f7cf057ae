#include "config/model/rotary.h"

#include <stdio.h>

const ps_traits ps_rotary_traits = {
    .more = &ps_model_modern_traits,
    .defaults = (const ps_family_default[]){PS_DEFAULT_INT(hidden_size, 4096),
                                            PS_DEFAULT_INT(num_hidden_layers, 32),
                                            PS_DEFAULT_INT(num_attention_heads, 32),
                                            PS_DEFAULT_INT(hidden_act, PS_CONFIG_ACTIVATION_SILU),
                                            PS_DEFAULT_DOUBLE(layer_norm_eps, 1e-6),
                                            PS_DEFAULT_DOUBLE(embd_pdrop, 0),
                                            PS_DEFAULT_DOUBLE(resid_pdrop, 0),
                                            PS_DEFAULT_DOUBLE(attn_pdrop, 0),
                                            PS_DEFAULT_BOOL(tie_word_embeddings, false),
                                            {0}},
    .uses =
        (const ps_option_id[]){PS_OPTION_model_num_key_value_heads, PS_OPTION_model_head_dim,
                               PS_OPTION_model_rope_theta, PS_OPTION_model_rope_scaling_rope_type,
                               PS_OPTION_model_rope_scaling_factor, PS_OPTION_model_rope_scaling_low_freq_factor,
                               PS_OPTION_model_rope_scaling_high_freq_factor,
                               PS_OPTION_model_rope_scaling_original_max_position_embeddings,
                               PS_OPTION_model_rope_scaling_beta_fast, PS_OPTION_model_rope_scaling_beta_slow,
                               PS_OPTION_model_rope_scaling_attention_factor, PS_OPTION_model_rope_scaling_mscale,
                               PS_OPTION_model_rope_scaling_mscale_all_dim, PS_OPTION_model_rope_scaling_truncate, 0},
    .keys = (const ps_family_key[]){PS_KEY("rms_norm_eps", layer_norm_eps),
                                    PS_KEY("num_key_value_heads", num_key_value_heads),
                                    PS_KEY("head_dim", head_dim),
                                    PS_KEY("attention_dropout", attn_pdrop),
                                    {0}},
    .fixed = (const ps_family_fixed[]){{"partial_rotary_factor", "1.0"}, {0}},
    .ties = (const ps_family_tie[]){{"lm_head.weight", "embed_tokens.weight", NULL}, {0}},
    .buffers = (const char *const[]){"rotary_emb.inv_freq", NULL},
    .parameter_order =
        (const char *const[]){"self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj.", "self_attn.o_proj.",
                              "self_attn.q_norm.", "self_attn.k_norm.", "mlp.", "input_layernorm.",
                              "post_attention_layernorm.", "post_feedforward_layernorm.", NULL},
};

int64_t ps_rotary_original_positions(const ps_options *o)
{
    const int64_t given = o->model_rope_scaling_original_max_position_embeddings;
    if (given > 0) return given;
    return o->model_rope_scaling_rope_type == PS_CONFIG_ROPE_YARN ? o->model_max_position_embeddings
                                                                  : PS_ROTARY_ORIGINAL_OF_LLAMA_3;
}

bool ps_rotary_uses_original_positions(const ps_options *o)
{
    const ps_config_rope type = o->model_rope_scaling_rope_type;
    return type == PS_CONFIG_ROPE_LLAMA3 || type == PS_CONFIG_ROPE_YARN;
}

ps_rotary ps_rotary_of(const ps_options *o)
{
    static const ps_rope_scaling scalings[] = {[PS_CONFIG_ROPE_DEFAULT] = PS_ROPE_UNSCALED,
                                               [PS_CONFIG_ROPE_LINEAR] = PS_ROPE_LINEAR,
                                               [PS_CONFIG_ROPE_LLAMA3] = PS_ROPE_LLAMA3,
                                               [PS_CONFIG_ROPE_YARN] = PS_ROPE_YARN};
    return (ps_rotary){.o = o,
                       .H = o->model_num_attention_heads,
                       .KV = ps_model_n_kv_heads(o),
                       .D = ps_model_head_size(o),
                       .eps = (float)o->model_layer_norm_eps,
                       .rope = {.struct_size = sizeof(ps_rope),
                                .theta = o->model_rope_theta,
                                .scaling = scalings[o->model_rope_scaling_rope_type],
                                .factor = o->model_rope_scaling_factor,
                                .low_freq_factor = o->model_rope_scaling_low_freq_factor,
                                .high_freq_factor = o->model_rope_scaling_high_freq_factor,
                                .original_positions = ps_rotary_original_positions(o),
                                .beta_fast = o->model_rope_scaling_beta_fast,
                                .beta_slow = o->model_rope_scaling_beta_slow,
                                .attention_factor = o->model_rope_scaling_attention_factor,
                                .mscale = o->model_rope_scaling_mscale,
                                .mscale_all_dim = o->model_rope_scaling_mscale_all_dim,
                                .truncate = o->model_rope_scaling_truncate}};
}

ps_value ps_rotary_begin(ps_builder *b, const ps_rotary *m)
{
    const ps_options *o = m->o;
    ps_set_initializer_range(b, o->model_initializer_range);
    ps_model_begin_base(b, o);
    const ps_value x = ps_token_embedding(b, "embed_tokens", o->model_vocab_size, o->model_hidden_size);
    return ps_dropout(b, x, (float)o->model_embd_pdrop);
}

void ps_rotary_begin_layer(ps_builder *b, int64_t layer)
{
    char name[32];
    snprintf(name, sizeof name, "layers.%lld", (long long)layer);
    ps_begin_block(b, name, 1);
}

ps_status ps_rotary_end(ps_builder *b, ps_value x, const ps_rotary *m)
{
    x = ps_rms_norm(b, x, "norm", 0, m->eps);
    ps_model_end_base(b, m->o);
    return ps_model_end_decoder(b, x, m->o, "model.embed_tokens.weight", "score");
}

ps_value ps_rotary_attention(ps_builder *b, ps_value q, ps_value k, ps_value v, const ps_rotary *m, int64_t layer)
{
    const ps_options *o = m->o;
    const ps_attention_options attention = {.struct_size = sizeof attention,
                                            .n_heads = m->H,
                                            .n_kv_heads = m->KV,
                                            .causal = 1,
                                            .window = layer >= o->model_max_window_layers ? o->model_sliding_window : 0,
                                            .dropout_p = (float)o->model_attn_pdrop};
    return ps_linear(b, ps_grouped_attention(b, q, k, v, &attention), "self_attn.o_proj", o->model_hidden_size,
                     o->model_attention_bias);
}

ps_value ps_rotary_mlp(ps_builder *b, ps_value x, const ps_rotary *m)
{
    const ps_options *o = m->o;
    const int64_t inner = ps_model_inner_size(o);
    const ps_value gate = ps_linear(b, x, "mlp.gate_proj", inner, o->model_mlp_bias);
    const ps_value up = ps_linear(b, x, "mlp.up_proj", inner, o->model_mlp_bias);
    return ps_linear(b, ps_swiglu(b, gate, up), "mlp.down_proj", o->model_hidden_size, o->model_mlp_bias);
}
