/* model.h - building blocks of model families. Each is a function on a builder, as in a user's program. Parameters have
 * the names, shapes and order of Hugging Face's classes, so that weight files need no conversion. */
#ifndef PS_MODEL_MODEL_H
#define PS_MODEL_MODEL_H

#include "config/model/family.h"

/* ---- sizes: an option, or the size that its 0 resolves to ---- */

int64_t ps_model_inner_size(const ps_options *o); /* model.intermediate_size */
int64_t ps_model_n_kv_heads(const ps_options *o); /* model.num_key_value_heads */
int64_t ps_model_head_size(const ps_options *o);  /* model.head_dim */

/* ---- traits ---- */

/* Traits of all families; and of those whose config.json has hidden_size (all but gpt2), which include the former. */
extern const ps_traits ps_model_traits;
extern const ps_traits ps_model_modern_traits;

/* ---- parts of models ---- */

/* The head of a decoder, x being the normalised output of the last block. By model.head: the next token, with the table
 * `embedding` when it is tied, else "lm_head.weight"; sequence classification or regression from the last token
 * ("score.weight", as Hugging Face's ...ForSequenceClassification); a label for each token (`tokens`, "score" or
 * "classifier", with a bias); question answering ("qa_outputs"); or none: x is the output. */
PS_NODISCARD ps_status ps_model_end_decoder(ps_builder *b, ps_value x, const ps_options *o, const char *embedding,
                                            const char *tokens);

/* A head with model.num_labels outputs of x by `weight` and `bias` (NULL: none), and the loss of the head and
 * model.problem_type, with train.label_smoothing and the other options of losses. */
PS_NODISCARD ps_status ps_model_end_labels(ps_builder *b, ps_value x, const ps_options *o, const char *weight,
                                           const char *bias);
/* The same with cross-entropy over the vocabulary. */
void ps_model_end_tokens(ps_builder *b, ps_value x, const ps_options *o, const char *weight, const char *bias);

/* model.hidden_act of x, in families that are not gated. "gelu" is the exact function with erf; Hugging Face has three
 * names for the approximation by tanh. */
ps_value ps_model_activation(ps_builder *b, ps_value x, const ps_options *o);

/* The block around everything but the head, named by ps_family_base. With the head none there is no block. */
void ps_model_begin_base(ps_builder *b, const ps_options *o);
void ps_model_end_base(ps_builder *b, const ps_options *o);

#endif
