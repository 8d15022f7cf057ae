/* olmo2.c - OLMo-2 (OLMo Team 2024): Llama with norms after each branch, not before it, and over all of a token's
 * queries or keys before they are split into heads. */
#include "config/model/rotary.h"

/* Queries or keys: projected, normalised, rotated. */
static ps_value rotated(ps_builder *b, ps_value x, const ps_rotary *m, const char *projection, const char *norm,
                        int64_t heads)
{
    x = ps_linear(b, x, projection, heads * m->D, m->o->model_attention_bias);
    return ps_rotary_embedding(b, ps_rms_norm(b, x, norm, 0, m->eps), m->D, &m->rope);
}

static ps_value attention_branch(ps_builder *b, ps_value x, const ps_rotary *m, int64_t layer)
{
    const ps_value q = rotated(b, x, m, "self_attn.q_proj", "self_attn.q_norm", m->H);
    const ps_value k = rotated(b, x, m, "self_attn.k_proj", "self_attn.k_norm", m->KV);
    const ps_value v = ps_linear(b, x, "self_attn.v_proj", m->KV * m->D, m->o->model_attention_bias);
    x = ps_rms_norm(b, ps_rotary_attention(b, q, k, v, m, layer), "post_attention_layernorm", 0, m->eps);
    return ps_dropout(b, x, (float)m->o->model_resid_pdrop);
}

static ps_value mlp_branch(ps_builder *b, ps_value x, const ps_rotary *m)
{
    x = ps_rms_norm(b, ps_rotary_mlp(b, x, m), "post_feedforward_layernorm", 0, m->eps);
    return ps_dropout(b, x, (float)m->o->model_resid_pdrop);
}

static ps_status build(ps_builder *b, const ps_options *o)
{
    const ps_rotary m = ps_rotary_of(o);
    ps_value x = ps_rotary_begin(b, &m);
    for (int64_t i = 0; i < o->model_num_hidden_layers; i++) {
        ps_rotary_begin_layer(b, i);
        x = ps_add(b, x, attention_branch(b, x, &m, i));
        x = ps_add(b, x, mlp_branch(b, x, &m));
        ps_end_block(b);
    }
    return ps_rotary_end(b, x, &m);
}

const ps_family ps_family_olmo2 = {
    .class_name = "Olmo2",
    .class_ends = {[PS_CONFIG_HEAD_CAUSAL_LM] = "ForCausalLM",
                   [PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION] = "ForSequenceClassification",
                   [PS_CONFIG_HEAD_NONE] = "Model"},
    .base = "model",
    .is_gated = true,
    .traits = {.more = &ps_rotary_traits,
               .defaults = (const ps_family_default[]){PS_DEFAULT_INT(vocab_size, 50304),
                                                       PS_DEFAULT_INT(intermediate_size, 11008),
                                                       PS_DEFAULT_INT(max_position_embeddings, 2048),
                                                       PS_DEFAULT_DOUBLE(layer_norm_eps, 1e-5),
                                                       {0}},
               .uses = (const ps_option_id[]){PS_OPTION_model_attention_bias, 0},
               .keys = (const ps_family_key[]){PS_KEY("attention_bias", attention_bias), {0}}},
    .build = build,
};
