#include "model/model.h"

ps_activation ps_model_gelu(const ps_options *o)
{
    return o->model_hidden_act == PS_CONFIG_ACTIVATION_GELU ? PS_ACTIVATION_GELU_ERF : PS_ACTIVATION_GELU_TANH;
}

void ps_model_begin_base(ps_builder *b, const ps_options *o, const char *prefix)
{
    if (o->model_head != PS_CONFIG_HEAD_NONE) ps_begin_block(b, prefix, 0);
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

ps_status ps_model_from_config(ps_builder *b, void *user)
{
    const ps_options *o = ps_config_options(user);
    switch (o->model_type) {
    case PS_CONFIG_MODEL_GPT2: return ps_model_gpt2(b, o);
    case PS_CONFIG_MODEL_LLAMA:
    case PS_CONFIG_MODEL_MISTRAL:
    case PS_CONFIG_MODEL_QWEN2:
    case PS_CONFIG_MODEL_QWEN3: return ps_model_llama(b, o);
    case PS_CONFIG_MODEL_BERT: return ps_model_bert(b, o);
    }
    return PS_FAIL(PS_EINVAL, "model.type %d is not known", (int)o->model_type);
}
