/* weight_names.h - when the tensors of a file meet the parameters of a model: what goes where, by name alone.
 *
 * Names are those of the state_dict of Hugging Face's classes, "transformer.h.0.attn.c_attn.weight". For each tensor of
 * a file the first rule that applies decides:
 *
 *   1 same name              the model has it
 *   2 almost the same name   with or without a base's prefix ("transformer.", "model.", "bert.", of whatever family),
 *                            and with the names of layer norms that old BERT files have (gamma, beta: weight, bias)
 *                            (for all rules: without the "module." or "_orig_mod." of a wrapper)
 *   3 tied                   lm_head.weight, cls.predictions.decoder.{weight,bias}, when the model has only what they
 *                            are tied to: a copy, or the value itself if the file has no other. Of a BERT with an
 *                            output table of its own decoder.bias is the value, also where the file has
 *                            cls.predictions.bias: transformers 5 writes that too and does not use it
 *   4 buffer                 what is no parameter: causal masks, position numbers, rotary frequencies: ignored
 *   5 a head the model lacks with allow_new_head ignored, else an error
 *   6 anything else          an error naming it
 *
 * A parameter of the model that nothing goes to is an error, unless it is in a head and allow_new_head is given: then
 * it keeps its random start (fine-tuning). Heads: lm_head, score, classifier, qa_outputs, cls, and BERT's pooler. What
 * is a base, a head, tied or a buffer is what any family of model/ says. */
#ifndef PS_WEIGHTS_WEIGHT_NAMES_H
#define PS_WEIGHTS_WEIGHT_NAMES_H

#include <stdbool.h>

#include "base/status.h"

enum { PS_WEIGHT_NAME_MAX = 512 };

bool ps_weight_is_buffer(const char *name); /* rule 4 */
bool ps_weight_is_head(const char *name);   /* outside of the base model, with or without its prefix */

/* The i-th name, i = 0, 1, ..., under which a model may have what a file calls `name` (rules 1 and 2), in `out`. A
 * name that differs from it by nothing may come again. False when there is no i-th; names that are too long have no
 * others. */
bool ps_weight_name_candidate(const char *name, int i, char out[PS_WEIGHT_NAME_MAX]);

/* A row or element for each token of the vocabulary: embeddings, output layers of a language model and their biases. */
bool ps_weight_is_vocabulary(const char *name);

/* Rule 3 the other way round: the i-th name that the class of a model_type has for the tensor `name`, of a model of
 * language that ties them; NULL: no more. *untied_with (NULL: none): where a model has this tensor, the class takes the
 * two names for tensors of their own, and wants both. */
const char *ps_weight_tied_name(const char *model_type, const char *name, int i, const char **untied_with);

/* `name` as the class of a model_type ("gpt2", "llama", "bert", ...) has it: with its base's prefix. Returns out, or
 * name itself when nothing is to be added. */
const char *ps_weight_class_name(const char *model_type, const char *name, char out[PS_WEIGHT_NAME_MAX]);

/* Parameters in the order of the model.parameters() of their class in transformers, which is that of the optimizers of
 * PyTorch: order[i] is the number of the i-th. names: as the model describes them; one of no known family keeps that
 * order. */
void ps_weight_parameter_order(const char *const *names, int32_t n, int32_t *order);

enum {
    PS_WEIGHT_IGNORED = -1, /* in of_have: not used */
    PS_WEIGHT_NEW = -1,     /* in of_want: in no file */
};

typedef struct ps_weight_match {
    int32_t *of_have; /* [n_have] number of the parameter that a tensor of the file goes to */
    int32_t *of_want; /* [n_want] number of the tensor that a parameter comes from */
    int32_t *copy_of; /* [n_have] ignored, because tied: number of the parameter it must be equal to; else -1 */
    int n_loaded, n_new, n_ignored;
    int first_new; /* a parameter, -1: none */
} ps_weight_match;

/* have: names in the file; want: names of the model; no name twice in either. PS_EFORMAT names `path` and the tensor
 * that does not fit. Deinit also after a failure. */
PS_NODISCARD ps_status ps_weight_match_init(ps_weight_match *m, const char *path, const char *const *have, int n_have,
                                            const char *const *want, int n_want, bool allow_new_head);
void ps_weight_match_deinit(ps_weight_match *m);

#endif
