/* model.h - what families of models are built from. Each is a function on a builder, as a user would write it;
 * parameters have the names, shapes and order of Hugging Face's classes, so that weight files fit as they are. */
#ifndef PS_MODEL_MODEL_H
#define PS_MODEL_MODEL_H

#include "model/family.h"

/* ---- sizes: an option, or what its 0 stands for ---- */

int64_t ps_model_inner_size(const ps_options *o); /* model.intermediate_size */
int64_t ps_model_n_kv_heads(const ps_options *o); /* model.num_key_value_heads */
int64_t ps_model_head_size(const ps_options *o);  /* model.head_dim */

/* ---- traits ---- */

/* Of all families; and of those whose config.json says hidden_size (all but gpt2), which include the former. */
extern const ps_traits ps_model_traits;
extern const ps_traits ps_model_modern_traits;

/* ---- what models are put together from ---- */

/* The head of a decoder, x being the normalised output of the last block. By model.head: the next token, with the table
 * `embedding` when it is tied, else "lm_head.weight"; what is learnt of a text, from the last token ("score.weight", as
 * Hugging Face's ...ForSequenceClassification); a label for each token (`tokens`, "score" or "classifier", with a
 * bias); a span ("qa_outputs"); or none: x is the result. */
PS_NODISCARD ps_status ps_model_end_decoder(ps_builder *b, ps_value x, const ps_options *o, const char *embedding,
                                            const char *tokens);

/* Ends with model.num_labels outputs of x by `weight` and `bias` (NULL: none), and the loss that the head and
 * model.problem_type say, with train.label_smoothing and alike. */
PS_NODISCARD ps_status ps_model_end_labels(ps_builder *b, ps_value x, const ps_options *o, const char *weight,
                                           const char *bias);
/* Cross-entropy over the vocabulary, likewise. */
void ps_model_end_tokens(ps_builder *b, ps_value x, const ps_options *o, const char *weight, const char *bias);

/* model.hidden_act of x, in families that are not gated: "gelu" is the one with erf; for the approximation by tanh
 * Hugging Face has three names. */
ps_value ps_model_activation(ps_builder *b, ps_value x, const ps_options *o);

/* The block around everything but the head, named by ps_family_base. With the head none there is no such block. */
void ps_model_begin_base(ps_builder *b, const ps_options *o);
void ps_model_end_base(ps_builder *b, const ps_options *o);

#endif
