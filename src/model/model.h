/* model.h - what families of models are built from. Each is a function on a builder, as a user would write it;
 * parameters have the names, shapes and order of Hugging Face's classes, so that weight files fit as they are. */
#ifndef PS_MODEL_MODEL_H
#define PS_MODEL_MODEL_H

#include "model/family.h"

/* ---- sizes: an option, or what its 0 stands for ---- */

int64_t ps_model_inner_size(const ps_options *o); /* model.intermediate_size */
int64_t ps_model_n_kv_heads(const ps_options *o); /* model.num_key_value_heads */
int64_t ps_model_head_size(const ps_options *o);  /* model.head_dim */

/* ---- parts ---- */

/* What all families have; what those have whose config.json says hidden_size (all but gpt2). */
extern const ps_traits ps_model_traits;
extern const ps_traits ps_model_modern_traits;

/* What decoders end with, x being the normalised output of the last block: the next token, from the table `embedding`
 * when it is tied; or a label, from the last token ("score.weight", as Hugging Face's ...ForSequenceClassification); or
 * x. */
void ps_model_end_decoder(ps_builder *b, ps_value x, const ps_options *o, const char *embedding);

/* Of the models that are not gated. Hugging Face has three names for the approximation by tanh. */
ps_activation ps_model_gelu(const ps_options *o);

/* The block around everything but the head, named by the family's base: opened unless the head is none. */
void ps_model_begin_base(ps_builder *b, const ps_options *o);
void ps_model_end_base(ps_builder *b, const ps_options *o);

#endif
