/* gpt2.c - GPT-2 (Radford et al. 2019) with the parameter names, layouts and initialisation of Hugging Face. */
#include <math.h>
#include <stdio.h>

#include "config/model/model.h"

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
    x = ps_layer_norm(b, x, "ln_2", (float)o->model_layer_norm_eps);
    ps_set_initializer_range(b, o->model_initializer_range);
    x = ps_conv1d(b, x, "mlp.c_fc", ps_model_inner_size(o), 1);
    x = ps_model_activation(b, x, o);
    ps_set_initializer_range(b, residual_std);
    x = ps_conv1d(b, x, "mlp.c_proj", o->model_hidden_size, 1);
    return ps_dropout(b, x, (float)o->model_resid_pdrop);
}

static ps_status build(ps_builder *b, const ps_options *o)
{
    /* GPT-2 scales the initialisation of residual projections by the number of residual additions. */
    const double residual_std = o->model_initializer_range / sqrt(2.0 * (double)o->model_num_hidden_layers);
    ps_set_initializer_range(b, o->model_initializer_range);
    ps_model_begin_base(b, o);
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
    return ps_model_end_decoder(b, x, o, "transformer.wte.weight", "classifier");
}

const ps_family ps_family_gpt2 = {
    .class_name = "GPT2",
    .class_ends = {[PS_CONFIG_HEAD_CAUSAL_LM] = "LMHeadModel",
                   [PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION] = "ForSequenceClassification",
                   [PS_CONFIG_HEAD_TOKEN_CLASSIFICATION] = "ForTokenClassification",
                   [PS_CONFIG_HEAD_QUESTION_ANSWERING] = "ForQuestionAnswering",
                   [PS_CONFIG_HEAD_NONE] = "Model"},
    .base = "transformer",
    .has_conv1d = true,
    .traits = {.more = &ps_model_traits,
               .keys = (const ps_family_key[]){PS_KEY("n_positions", max_position_embeddings),
                                               PS_KEY("n_embd", hidden_size),
                                               PS_KEY("n_layer", num_hidden_layers),
                                               PS_KEY("n_head", num_attention_heads),
                                               PS_KEY_OR_NULL("n_inner", intermediate_size),
                                               PS_KEY("activation_function", hidden_act),
                                               PS_KEY("layer_norm_epsilon", layer_norm_eps),
                                               PS_KEY("embd_pdrop", embd_pdrop),
                                               PS_KEY("resid_pdrop", resid_pdrop),
                                               PS_KEY("attn_pdrop", attn_pdrop),
                                               {0}},
               .fixed = (const ps_family_fixed[]){{"scale_attn_weights", "true"},
                                                  {"scale_attn_by_inverse_layer_idx", "false"},
                                                  {"add_cross_attention", "false"},
                                                  {0}},
               .ties = (const ps_family_tie[]){{"lm_head.weight", "wte.weight", NULL}, {0}},
               /* the causal mask is a buffer "attn.bias" (unlike "c_attn.bias", a parameter) */
               .buffers = (const char *const[]){"h.#.attn.bias", "h.#.attn.masked_bias", NULL}},
    .build = build,
};
