#include "model/model.h"

int64_t ps_model_inner_size(const ps_options *o)
{
    return o->model_intermediate_size > 0 ? o->model_intermediate_size : 4 * o->model_hidden_size;
}

int64_t ps_model_n_kv_heads(const ps_options *o)
{
    return o->model_num_key_value_heads > 0 ? o->model_num_key_value_heads : o->model_num_attention_heads;
}

int64_t ps_model_head_size(const ps_options *o)
{
    return o->model_head_dim > 0 ? o->model_head_dim : o->model_hidden_size / o->model_num_attention_heads;
}

const ps_traits ps_model_traits = {
    .keys = (const ps_family_key[]){PS_KEY("vocab_size", vocab_size),
                                    PS_KEY("initializer_range", initializer_range),
                                    PS_KEY("tie_word_embeddings", tie_word_embeddings),
                                    {0}},
    .fixed =
        (const ps_family_fixed[]){
            {"is_encoder_decoder", "false"}, {"quantization_config", "null"}, {"pruned_heads", "{}"}, {0}},
    .heads = (const char *const[]){"lm_head.", "score.", "classifier.", "qa_outputs.", NULL},
};

const ps_traits ps_model_modern_traits = {
    .more = &ps_model_traits,
    .keys = (const ps_family_key[]){PS_KEY("max_position_embeddings", max_position_embeddings),
                                    PS_KEY("hidden_size", hidden_size),
                                    PS_KEY("num_hidden_layers", num_hidden_layers),
                                    PS_KEY("num_attention_heads", num_attention_heads),
                                    PS_KEY("intermediate_size", intermediate_size),
                                    PS_KEY("hidden_act", hidden_act),
                                    {0}},
};

ps_activation ps_model_gelu(const ps_options *o)
{
    return o->model_hidden_act == PS_CONFIG_ACTIVATION_GELU ? PS_ACTIVATION_GELU_ERF : PS_ACTIVATION_GELU_TANH;
}

void ps_model_begin_base(ps_builder *b, const ps_options *o)
{
    if (o->model_head != PS_CONFIG_HEAD_NONE) ps_begin_block(b, ps_family_of(o)->base, 0);
}

void ps_model_end_base(ps_builder *b, const ps_options *o)
{
    if (o->model_head != PS_CONFIG_HEAD_NONE) ps_end_block(b);
}

void ps_model_end_decoder(ps_builder *b, ps_value x, const ps_options *o, const char *embedding)
{
    ps_set_initializer_range(b, o->model_initializer_range);
    if (o->model_head == PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION)
        ps_cross_entropy(b, ps_pool(b, x, PS_POOLING_LAST), "score.weight", NULL, o->model_num_labels);
    else if (o->model_head == PS_CONFIG_HEAD_NONE)
        ps_hidden_states(b, x);
    else
        ps_lm_loss(b, x, o->model_tie_word_embeddings ? embedding : "lm_head.weight", o->model_vocab_size);
}
