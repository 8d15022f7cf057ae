/* bert.c - BERT (Devlin et al. 2019): an encoder with post-norm; the batch's attention_mask masks padding. */
#include <stdio.h>

#include "config/model/model.h"

static ps_value embeddings(ps_builder *b, const ps_options *o)
{
    ps_begin_block(b, "embeddings", 0);
    ps_value x = ps_token_embedding(b, "word_embeddings", o->model_vocab_size, o->model_hidden_size);
    x = ps_position_embedding(b, x, "position_embeddings", o->model_max_position_embeddings);
    x = ps_add(b, x,
               ps_token_type_embedding(b, "token_type_embeddings", o->model_type_vocab_size, o->model_hidden_size));
    x = ps_layer_norm(b, x, "LayerNorm", (float)o->model_layer_norm_eps);
    ps_end_block(b);
    return ps_dropout(b, x, (float)o->model_embd_pdrop);
}

static ps_value attention_branch(ps_builder *b, ps_value x, const ps_options *o)
{
    const int64_t H = o->model_num_attention_heads, C = o->model_hidden_size;
    const ps_value q = ps_linear(b, x, "attention.self.query", C, 1);
    const ps_value k = ps_linear(b, x, "attention.self.key", C, 1);
    const ps_value v = ps_linear(b, x, "attention.self.value", C, 1);
    const ps_attention_options attention = {
        .struct_size = sizeof attention, .n_heads = H, .n_kv_heads = H, .dropout_p = (float)o->model_attn_pdrop};
    ps_value y = ps_grouped_attention(b, q, k, v, &attention);
    y = ps_linear(b, y, "attention.output.dense", C, 1);
    return ps_dropout(b, y, (float)o->model_resid_pdrop);
}

static ps_value mlp_branch(ps_builder *b, ps_value x, const ps_options *o)
{
    x = ps_model_activation(b, ps_linear(b, x, "intermediate.dense", ps_model_inner_size(o), 1), o);
    x = ps_linear(b, x, "output.dense", o->model_hidden_size, 1);
    return ps_dropout(b, x, (float)o->model_resid_pdrop);
}

/* Dropout before a classifier. */
static float classifier_dropout(const ps_options *o)
{
    return (float)(o->model_classifier_dropout >= 0 ? o->model_classifier_dropout : o->model_resid_pdrop);
}

static void end_with_tokens(ps_builder *b, ps_value x, const ps_options *o)
{
    x = ps_linear(b, x, "cls.predictions.transform.dense", o->model_hidden_size, 1);
    x = ps_layer_norm(b, ps_model_activation(b, x, o), "cls.predictions.transform.LayerNorm",
                      (float)o->model_layer_norm_eps);
    ps_model_end_tokens(b, x, o,
                        o->model_tie_word_embeddings ? "bert.embeddings.word_embeddings.weight"
                                                     : "cls.predictions.decoder.weight",
                        "cls.predictions.bias");
}

static ps_status end_with_label(ps_builder *b, ps_value x, const ps_options *o)
{
    x = ps_linear(b, ps_pool(b, x, PS_POOLING_FIRST), "bert.pooler.dense", o->model_hidden_size, 1);
    x = ps_dropout(b, ps_tanh(b, x), classifier_dropout(o));
    return ps_model_end_labels(b, x, o, "classifier.weight", "classifier.bias");
}

static ps_status build(ps_builder *b, const ps_options *o)
{
    ps_set_initializer_range(b, o->model_initializer_range);
    ps_model_begin_base(b, o);
    ps_value x = embeddings(b, o);
    for (int64_t i = 0; i < o->model_num_hidden_layers; i++) {
        char name[40];
        snprintf(name, sizeof name, "encoder.layer.%lld", (long long)i);
        ps_begin_block(b, name, 1);
        x = ps_layer_norm(b, ps_add(b, x, attention_branch(b, x, o)), "attention.output.LayerNorm",
                          (float)o->model_layer_norm_eps);
        x = ps_layer_norm(b, ps_add(b, x, mlp_branch(b, x, o)), "output.LayerNorm", (float)o->model_layer_norm_eps);
        ps_end_block(b);
    }
    ps_model_end_base(b, o);
    switch (o->model_head) {
    case PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION: return end_with_label(b, x, o);
    case PS_CONFIG_HEAD_TOKEN_CLASSIFICATION:
        x = ps_dropout(b, x, classifier_dropout(o));
        return ps_model_end_labels(b, x, o, "classifier.weight", "classifier.bias");
    case PS_CONFIG_HEAD_QUESTION_ANSWERING: ps_span_loss(b, x, "qa_outputs.weight", "qa_outputs.bias"); break;
    case PS_CONFIG_HEAD_MASKED_LM: end_with_tokens(b, x, o); break;
    case PS_CONFIG_HEAD_CAUSAL_LM: /* not supported */
    case PS_CONFIG_HEAD_NONE: ps_hidden_states(b, x); break;
    }
    return PS_OK;
}

const ps_family ps_family_bert = {
    .class_name = "Bert",
    .class_ends = {[PS_CONFIG_HEAD_MASKED_LM] = "ForMaskedLM",
                   [PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION] = "ForSequenceClassification",
                   [PS_CONFIG_HEAD_TOKEN_CLASSIFICATION] = "ForTokenClassification",
                   [PS_CONFIG_HEAD_QUESTION_ANSWERING] = "ForQuestionAnswering",
                   [PS_CONFIG_HEAD_NONE] = "Model"},
    .base = "bert",
    .traits = {.more = &ps_model_modern_traits,
               .defaults = (const ps_family_default[]){PS_DEFAULT_INT(head, PS_CONFIG_HEAD_MASKED_LM),
                                                       PS_DEFAULT_INT(vocab_size, 30522),
                                                       PS_DEFAULT_INT(max_position_embeddings, 512),
                                                       PS_DEFAULT_INT(hidden_act, PS_CONFIG_ACTIVATION_GELU),
                                                       PS_DEFAULT_DOUBLE(layer_norm_eps, 1e-12),
                                                       {0}},
               .uses = (const ps_option_id[]){PS_OPTION_model_type_vocab_size, 0},
               .keys = (const ps_family_key[]){PS_KEY("layer_norm_eps", layer_norm_eps),
                                               PS_KEY("type_vocab_size", type_vocab_size),
                                               PS_KEY("hidden_dropout_prob", embd_pdrop),
                                               PS_KEY("hidden_dropout_prob", resid_pdrop),
                                               PS_KEY("attention_probs_dropout_prob", attn_pdrop),
                                               {0}},
               .fixed = (const ps_family_fixed[]){{"add_cross_attention", "false"},
                                                  {"is_decoder", "false"},
                                                  {"position_embedding_type", "\"absolute\""},
                                                  {0}},
               .ties =
                   (const ps_family_tie[]){
                       {"cls.predictions.decoder.weight", "embeddings.word_embeddings.weight", NULL},
                       {"cls.predictions.decoder.bias", "cls.predictions.bias", "cls.predictions.decoder.weight"},
                       {0}},
               /* the pooler is part of the base model, but masked-language models lack it */
               .heads = (const char *const[]){"cls.", "bert.pooler.", NULL},
               .buffers = (const char *const[]){"embeddings.position_ids", NULL},
               .parameter_order = (const char *const[]){"cls.predictions.bias", "cls.predictions.transform.",
                                                        "cls.predictions.decoder.", NULL}},
    .build = build,
};
