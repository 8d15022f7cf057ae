/* model.h - the models a configuration can name. Each is a function on a builder, as a user would write it; parameters
 * have the names, shapes and order of Hugging Face's classes, so that weight files fit as they are. */
#ifndef PS_MODEL_MODEL_H
#define PS_MODEL_MODEL_H

#include "base/status.h"
#include "config/config.h"

/* GPT2LMHeadModel, GPT2ForSequenceClassification, or GPT2Model, as the "model" options say. */
PS_NODISCARD ps_status ps_model_gpt2(ps_builder *b, const ps_options *o);

/* Llama, Mistral, Qwen2 and Qwen3: ...ForCausalLM, ...ForSequenceClassification, ...Model. */
PS_NODISCARD ps_status ps_model_llama(ps_builder *b, const ps_options *o);

/* BertForMaskedLM, BertForSequenceClassification, BertModel (without its pooler). */
PS_NODISCARD ps_status ps_model_bert(ps_builder *b, const ps_options *o);

/* What decoders end with, x being the normalised output of the last block: the next token, from the table `embedding` when
 * it is tied; or a label, from the last token ("score.weight", as Hugging Face's ...ForSequenceClassification); or x. */
void ps_model_end_decoder(ps_builder *b, ps_value x, const ps_options *o, const char *embedding);

/* Of the models that are not gated. Hugging Face has three names for the approximation by tanh. */
ps_activation ps_model_gelu(const ps_options *o);

/* The block around everything but the head: opened unless the head is none, as that class has no prefix. */
void ps_model_begin_base(ps_builder *b, const ps_options *o, const char *prefix);
void ps_model_end_base(ps_builder *b, const ps_options *o);

#endif
