#include "config/model/model.h"

#include <stdio.h>

#include "base/mem.h"
#include "config/model/class_weights.h"
#include "config/option/head.h"

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
                                    PS_KEY_OR_NULL("classifier_dropout", classifier_dropout),
                                    {0}},
    .fixed = (const ps_family_fixed[]){{"is_encoder_decoder", "false"}, {"pruned_heads", "{}"}, {0}},
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

ps_value ps_model_activation(ps_builder *b, ps_value x, const ps_options *o)
{
    switch (o->model_hidden_act) {
    case PS_CONFIG_ACTIVATION_RELU: return ps_relu(b, x);
    case PS_CONFIG_ACTIVATION_GELU: return ps_gelu(b, x, PS_ACTIVATION_GELU_ERF);
    case PS_CONFIG_ACTIVATION_SILU: /* gated families only */
    case PS_CONFIG_ACTIVATION_GELU_NEW:
    case PS_CONFIG_ACTIVATION_GELU_PYTORCH_TANH:
    case PS_CONFIG_ACTIVATION_GELU_FAST: break;
    }
    return ps_gelu(b, x, PS_ACTIVATION_GELU_TANH);
}

void ps_model_begin_base(ps_builder *b, const ps_options *o)
{
    if (o->model_head != PS_CONFIG_HEAD_NONE) ps_begin_block(b, ps_family_base(ps_family_of(o), o->model_head), 0);
}

void ps_model_end_base(ps_builder *b, const ps_options *o)
{
    if (o->model_head != PS_CONFIG_HEAD_NONE) ps_end_block(b);
}

static ps_cross_entropy_options cross_entropy_of(const ps_options *o)
{
    return (ps_cross_entropy_options){.struct_size = sizeof(ps_cross_entropy_options),
                                      .label_smoothing = (float)o->train_label_smoothing,
                                      .z_loss = (float)o->train_z_loss};
}

static ps_status end_with_classes(ps_builder *b, ps_value x, const ps_options *o, const char *weight, const char *bias)
{
    ps_cross_entropy_options options = cross_entropy_of(o);
    float *weights = NULL;
    PS_TRY(ps_class_weights_parse(o->train_class_weights, o->model_num_labels, &weights));
    options.class_weights = weights;
    ps_cross_entropy(b, x, weight, bias, o->model_num_labels, &options);
    ps_mem_free(weights);
    return PS_OK;
}

ps_status ps_model_end_labels(ps_builder *b, ps_value x, const ps_options *o, const char *weight, const char *bias)
{
    if (ps_head_has_cross_entropy(o)) return end_with_classes(b, x, o, weight, bias);
    if (ps_head_problem(o) == PS_CONFIG_PROBLEM_REGRESSION)
        ps_mse_loss(b, x, weight, bias, o->model_num_labels);
    else
        ps_bce_with_logits_loss(b, x, weight, bias, o->model_num_labels);
    return PS_OK;
}

void ps_model_end_tokens(ps_builder *b, ps_value x, const ps_options *o, const char *weight, const char *bias)
{
    const ps_cross_entropy_options options = cross_entropy_of(o);
    ps_cross_entropy(b, x, weight, bias, o->model_vocab_size, &options);
}

ps_status ps_model_end_decoder(ps_builder *b, ps_value x, const ps_options *o, const char *embedding,
                               const char *tokens)
{
    /* transformers' default */
    const double p = o->model_classifier_dropout >= 0 ? o->model_classifier_dropout : 0.1;
    char weight[32], bias[32];
    ps_set_initializer_range(b, o->model_initializer_range);
    switch (o->model_head) {
    case PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION:
        return ps_model_end_labels(b, ps_pool(b, x, PS_POOLING_LAST), o, "score.weight", NULL);
    case PS_CONFIG_HEAD_TOKEN_CLASSIFICATION:
        snprintf(weight, sizeof weight, "%s.weight", tokens);
        snprintf(bias, sizeof bias, "%s.bias", tokens);
        return ps_model_end_labels(b, ps_dropout(b, x, (float)p), o, weight, bias);
    case PS_CONFIG_HEAD_QUESTION_ANSWERING: ps_span_loss(b, x, "qa_outputs.weight", "qa_outputs.bias"); break;
    case PS_CONFIG_HEAD_NONE: ps_hidden_states(b, x); break;
    case PS_CONFIG_HEAD_CAUSAL_LM:
    case PS_CONFIG_HEAD_MASKED_LM:
        ps_model_end_tokens(b, x, o, o->model_tie_word_embeddings ? embedding : "lm_head.weight", NULL);
        break;
    }
    return PS_OK;
}
