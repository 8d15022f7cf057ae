/* llama.c - Llama (Touvron et al. 2023; Grattafiori et al. 2024) and its relatives: Mistral (Jiang et al. 2023) has a
 * sliding window, Qwen2 (Yang et al. 2024) biases on queries, keys and values, Qwen3 (Yang et al. 2025) normalises each head
 * of queries and keys. RMS norm before each branch, rotary positions, grouped queries, SwiGLU. */
#include <stdio.h>

#include "config/config.h"
#include "model/model.h"

typedef struct llama {
    const ps_options *o;
    int64_t H, KV, D;
    float eps;
    int qkv_bias, o_bias;
    ps_rope rope;
} llama;

static llama llama_of(const ps_options *o)
{
    static const ps_rope_scaling scalings[] = {[PS_CONFIG_ROPE_DEFAULT] = PS_ROPE_UNSCALED,
                                               [PS_CONFIG_ROPE_LINEAR] = PS_ROPE_LINEAR,
                                               [PS_CONFIG_ROPE_LLAMA3] = PS_ROPE_LLAMA3,
                                               [PS_CONFIG_ROPE_YARN] = PS_ROPE_YARN};
    const int64_t H = o->model_num_attention_heads;
    return (llama){.o = o,
                   .H = H,
                   .KV = o->model_num_key_value_heads > 0 ? o->model_num_key_value_heads : H,
                   .D = o->model_head_dim > 0 ? o->model_head_dim : o->model_hidden_size / H,
                   .eps = (float)o->model_layer_norm_eps,
                   .qkv_bias = o->model_attention_bias || o->model_type == PS_CONFIG_MODEL_QWEN2,
                   .o_bias = o->model_attention_bias,
                   .rope = {.theta = o->model_rope_theta,
                            .scaling = scalings[o->model_rope_scaling_rope_type],
                            .factor = o->model_rope_scaling_factor,
                            .low_freq_factor = o->model_rope_scaling_low_freq_factor,
                            .high_freq_factor = o->model_rope_scaling_high_freq_factor,
                            .original_positions = ps_config_rope_original(o),
                            .beta_fast = o->model_rope_scaling_beta_fast,
                            .beta_slow = o->model_rope_scaling_beta_slow,
                            .attention_factor = o->model_rope_scaling_attention_factor,
                            .mscale = o->model_rope_scaling_mscale,
                            .mscale_all_dim = o->model_rope_scaling_mscale_all_dim,
                            .truncate = o->model_rope_scaling_truncate}};
}

/* Queries or keys: projected, normalised a head at a time in Qwen3, rotated. */
static ps_value rotated(ps_builder *b, ps_value x, const llama *m, const char *projection, const char *norm,
                        int64_t heads)
{
    x = ps_linear(b, x, projection, heads * m->D, m->qkv_bias);
    if (m->o->model_type == PS_CONFIG_MODEL_QWEN3) x = ps_rms_norm(b, x, norm, m->D, m->eps);
    return ps_rotary_embedding(b, x, m->D, &m->rope);
}

static ps_value attention_branch(ps_builder *b, ps_value x, const llama *m, int64_t layer)
{
    const ps_options *o = m->o;
    const ps_attention_options attention = {.n_heads = m->H,
                                            .n_kv_heads = m->KV,
                                            .causal = 1,
                                            .window = layer >= o->model_max_window_layers ? o->model_sliding_window : 0,
                                            .dropout_p = (float)o->model_attn_pdrop};
    x = ps_rms_norm(b, x, "input_layernorm", 0, m->eps);
    const ps_value q = rotated(b, x, m, "self_attn.q_proj", "self_attn.q_norm", m->H);
    const ps_value k = rotated(b, x, m, "self_attn.k_proj", "self_attn.k_norm", m->KV);
    const ps_value v = ps_linear(b, x, "self_attn.v_proj", m->KV * m->D, m->qkv_bias);
    x = ps_grouped_attention(b, q, k, v, &attention);
    x = ps_linear(b, x, "self_attn.o_proj", o->model_hidden_size, m->o_bias);
    return ps_dropout(b, x, (float)o->model_resid_pdrop);
}

static ps_value mlp_branch(ps_builder *b, ps_value x, const llama *m)
{
    const ps_options *o = m->o;
    const int64_t inner = o->model_intermediate_size > 0 ? o->model_intermediate_size : 4 * o->model_hidden_size;
    x = ps_rms_norm(b, x, "post_attention_layernorm", 0, m->eps);
    const ps_value gate = ps_linear(b, x, "mlp.gate_proj", inner, o->model_mlp_bias);
    const ps_value up = ps_linear(b, x, "mlp.up_proj", inner, o->model_mlp_bias);
    x = ps_linear(b, ps_swiglu(b, gate, up), "mlp.down_proj", o->model_hidden_size, o->model_mlp_bias);
    return ps_dropout(b, x, (float)o->model_resid_pdrop);
}

ps_status ps_model_llama(ps_builder *b, const ps_options *o)
{
    const llama m = llama_of(o);
    ps_set_initializer_range(b, o->model_initializer_range);
    ps_model_begin_base(b, o, "model");
    ps_value x = ps_token_embedding(b, "embed_tokens", o->model_vocab_size, o->model_hidden_size);
    x = ps_dropout(b, x, (float)o->model_embd_pdrop);
    for (int64_t i = 0; i < o->model_num_hidden_layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%lld", (long long)i);
        ps_begin_block(b, name, 1);
        x = ps_add(b, x, attention_branch(b, x, &m, i));
        x = ps_add(b, x, mlp_branch(b, x, &m));
        ps_end_block(b);
    }
    x = ps_rms_norm(b, x, "norm", 0, m.eps);
    ps_model_end_base(b, o);
    ps_model_end_decoder(b, x, o, "model.embed_tokens.weight");
    return PS_OK;
}
