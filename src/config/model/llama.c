/* llama.c - Llama (Touvron et al. 2023; Grattafiori et al. 2024): RMS norm before each branch, rotary positions,
 * grouped queries, SwiGLU. */
#include "config/model/llama.h"

/* Queries or keys: projected, optionally normalised per head, rotated. */
static ps_value rotated(ps_builder *b, ps_value x, const ps_rotary *m, ps_llama_variant variant, const char *projection,
                        const char *norm, int64_t heads)
{
    x = ps_linear(b, x, projection, heads * m->D, m->o->model_attention_bias || variant.has_qkv_bias);
    if (variant.normalises_heads) x = ps_rms_norm(b, x, norm, m->D, m->eps);
    return ps_rotary_embedding(b, x, m->D, &m->rope);
}

static ps_value attention_branch(ps_builder *b, ps_value x, const ps_rotary *m, ps_llama_variant variant, int64_t layer)
{
    x = ps_rms_norm(b, x, "input_layernorm", 0, m->eps);
    const ps_value q = rotated(b, x, m, variant, "self_attn.q_proj", "self_attn.q_norm", m->H);
    const ps_value k = rotated(b, x, m, variant, "self_attn.k_proj", "self_attn.k_norm", m->KV);
    const ps_value v =
        ps_linear(b, x, "self_attn.v_proj", m->KV * m->D, m->o->model_attention_bias || variant.has_qkv_bias);
    x = ps_rotary_attention(b, q, k, v, m, layer);
    return ps_dropout(b, x, (float)m->o->model_resid_pdrop);
}

static ps_value mlp_branch(ps_builder *b, ps_value x, const ps_rotary *m)
{
    x = ps_rms_norm(b, x, "post_attention_layernorm", 0, m->eps);
    return ps_dropout(b, ps_rotary_mlp(b, x, m), (float)m->o->model_resid_pdrop);
}

ps_status ps_llama_build(ps_builder *b, const ps_options *o, ps_llama_variant variant)
{
    const ps_rotary m = ps_rotary_of(o);
    ps_value x = ps_rotary_begin(b, &m);
    for (int64_t i = 0; i < o->model_num_hidden_layers; i++) {
        ps_rotary_begin_layer(b, i);
        x = ps_add(b, x, attention_branch(b, x, &m, variant, i));
        x = ps_add(b, x, mlp_branch(b, x, &m));
        ps_end_block(b);
    }
    return ps_rotary_end(b, x, &m);
}

static ps_status build(ps_builder *b, const ps_options *o)
{
    return ps_llama_build(b, o, (ps_llama_variant){0});
}

const ps_family ps_family_llama = {
    .class_name = "Llama",
    .class_ends = PS_ROTARY_CLASS_ENDS,
    .base = "model",
    .base_of_questions = "transformer",
    .is_gated = true,
    .window = PS_WINDOW_UNKNOWN_TO_CLASS,
    .traits = {.more = &ps_rotary_traits,
               .defaults = (const ps_family_default[]){PS_DEFAULT_INT(vocab_size, 32000),
                                                       PS_DEFAULT_INT(intermediate_size, 11008),
                                                       PS_DEFAULT_INT(max_position_embeddings, 2048),
                                                       {0}},
               .uses = (const ps_option_id[]){PS_OPTION_model_sliding_window, PS_OPTION_model_max_window_layers,
                                              PS_OPTION_model_attention_bias, PS_OPTION_model_mlp_bias, 0},
               .keys = (const ps_family_key[]){PS_KEY("attention_bias", attention_bias),
                                               PS_KEY("mlp_bias", mlp_bias),
                                               {0}}},
    .build = build,
};
