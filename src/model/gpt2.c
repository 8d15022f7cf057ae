/* gpt2.c - GPT-2 (Radford et al. 2019) with the parameter names, layouts and initialisation of Hugging Face. */
#include <math.h>
#include <stdio.h>

#include "config/config.h"
#include "model/model.h"

static ps_value attention_branch(ps_builder *b, ps_value x, const ps_options *o, double residual_std)
{
    const double std = o->model_initializer_range;
    x = ps_layer_norm(b, x, "ln_1", (float)o->model_layer_norm_eps);
    ps_set_initializer_range(b, std);
    x = ps_conv1d(b, x, "attn.c_attn", 3 * o->model_hidden_size, 1);
    x = ps_attention(b, x, o->model_num_attention_heads, 1, (float)o->model_attn_pdrop);
    ps_set_initializer_range(b, residual_std);
    x = ps_conv1d(b, x, "attn.c_proj", o->model_hidden_size, 1);
    return ps_dropout(b, x, (float)o->model_resid_pdrop);
}

static ps_value mlp_branch(ps_builder *b, ps_value x, const ps_options *o, double residual_std)
{
    const int64_t n_inner = o->model_intermediate_size > 0 ? o->model_intermediate_size : 4 * o->model_hidden_size;
    x = ps_layer_norm(b, x, "ln_2", (float)o->model_layer_norm_eps);
    ps_set_initializer_range(b, o->model_initializer_range);
    x = ps_conv1d(b, x, "mlp.c_fc", n_inner, 1);
    x = ps_gelu(b, x, ps_model_gelu(o));
    ps_set_initializer_range(b, residual_std);
    x = ps_conv1d(b, x, "mlp.c_proj", o->model_hidden_size, 1);
    return ps_dropout(b, x, (float)o->model_resid_pdrop);
}

ps_status ps_model_gpt2(ps_builder *b, const ps_options *o)
{
    /* GPT-2 scales what enters the residual stream by the number of additions to it. */
    const double residual_std = o->model_initializer_range / sqrt(2.0 * (double)o->model_num_hidden_layers);
    ps_set_initializer_range(b, o->model_initializer_range);
    ps_model_begin_base(b, o, "transformer");
    ps_value x = ps_token_embedding(b, "wte", o->model_vocab_size, o->model_hidden_size);
    x = ps_position_embedding(b, x, "wpe", o->model_max_position_embeddings);
    x = ps_dropout(b, x, (float)o->model_embd_pdrop);
    for (int64_t i = 0; i < o->model_num_hidden_layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "h.%lld", (long long)i);
        ps_begin_block(b, name, 1);
        x = ps_add(b, x, attention_branch(b, x, o, residual_std));
        x = ps_add(b, x, mlp_branch(b, x, o, residual_std));
        ps_end_block(b);
    }
    x = ps_layer_norm(b, x, "ln_f", (float)o->model_layer_norm_eps);
    ps_model_end_base(b, o);
    ps_model_end_decoder(b, x, o, "transformer.wte.weight");
    return PS_OK;
}
