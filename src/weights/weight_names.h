/* weight_names.h - matches the tensors of a file to the parameters of a model, by name.
 *
 * Names are those of the state_dict of Hugging Face's classes, "transformer.h.0.attn.c_attn.weight". For each tensor of
 * a file the first matching rule applies:
 *
 *   1 same name              the model has it
 *   2 almost the same name   with or without a base's prefix ("transformer.", "model.", "bert.", of whatever family),
 *                            and with the names of layer norms that old BERT files have (gamma, beta: weight, bias)
 *                            (for all rules: without the "module.", "_orig_mod." or "base_model.model." of a wrapper)
 *   3 tied                   lm_head.weight, cls.predictions.decoder.{weight,bias}, when the model has only what they
 *                            are tied to: a copy, or the value itself if the file has no other. Of a BERT with an
 *                            output table of its own decoder.bias is the value, also where the file has
 *                            cls.predictions.bias: transformers 5 writes that too and does not use it
 *   4 buffer                 what is no parameter: causal masks, position numbers, rotary frequencies: ignored
 *   5 a head the model lacks with allow_new_head ignored, else an error
 *   6 anything else          an error naming it
 *
 * A parameter without a tensor is an error, unless the caller says that it may lack one (of adapters, a base's; of a
 * base, an adapter's), or it is in a head and allow_new_head is given: then it keeps its
 * initial values (fine-tuning). Heads: lm_head, score, classifier, qa_outputs, cls, and BERT's pooler. What is a base,
 * a head, tied or a buffer is defined by all families of config/model/ together. */
#ifndef PS_WEIGHTS_WEIGHT_NAMES_H
#define PS_WEIGHTS_WEIGHT_NAMES_H

#include <stdbool.h>

#include "base/status.h"

enum { PS_WEIGHT_NAME_MAX = 512 };

bool ps_weight_is_buffer(const char *name); /* rule 4 */
bool ps_weight_is_head(const char *name);   /* not in the base model, with or without its prefix */

/* The i-th name, i = 0, 1, ..., that a model may have for the tensor `name` of a file (rules 1 and 2), in `out`. Names
 * may repeat. False when there is no i-th; names that are too long have no alternatives. */
bool ps_weight_name_candidate(const char *name, int i, char out[PS_WEIGHT_NAME_MAX]);

/* Whether the tensor has a row or element for each token of the vocabulary: embeddings, output layers of a language
 * model and their biases. */
bool ps_weight_is_vocabulary(const char *name);

/* The reverse of rule 3: the i-th additional name of the tensor `name` in the class of a model_type, for a language
 * model that ties them; NULL: no more. *untied_with (NULL: none): where a model has this tensor, the class has two
 * separate tensors, and needs both names. */
const char *ps_weight_tied_name(const char *model_type, const char *name, int i, const char **untied_with);

/* `name` with the base's prefix of the class of a model_type ("gpt2", "llama", "bert", ...). Returns out, or name
 * itself when there is nothing to add. */
const char *ps_weight_class_name(const char *model_type, const char *name, char out[PS_WEIGHT_NAME_MAX]);

/* The order of model.parameters() of the class in transformers, which PyTorch's optimizers use: order[i] is the number
 * of the i-th parameter. names: as the model describes them; models of an unknown family keep their order. */
void ps_weight_parameter_order(const char *const *names, int32_t n, int32_t *order);

enum {
    PS_WEIGHT_IGNORED = -1, /* in of_have: unused */
    PS_WEIGHT_NEW = -1,     /* in of_want: not in the file */
};

typedef struct ps_weight_match {
    int32_t *of_have; /* [n_have] parameter of each tensor of the file */
    int32_t *of_want; /* [n_want] tensor of each parameter */
    int32_t *copy_of; /* [n_have] for an ignored tied tensor: the parameter it must be equal to; else -1 */
    int n_loaded, n_new, n_ignored;
    int first_new; /* a parameter, -1: none */
} ps_weight_match;

/* have: names in the file; want: names of the model; both unique. may_lack [n_want]: those that need no tensor; NULL:
 * none. PS_EFORMAT names `path` and the tensor that does not match. Call deinit also after a failure. */
PS_NODISCARD ps_status ps_weight_match_init(ps_weight_match *m, const char *path, const char *const *have, int n_have,
                                            const char *const *want, int n_want, const bool *may_lack,
                                            bool allow_new_head);
void ps_weight_match_deinit(ps_weight_match *m);

#endif
