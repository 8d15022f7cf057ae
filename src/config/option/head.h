/* head.h - the task of a model, from model.head and model.problem_type. */
#ifndef PS_OPTION_HEAD_H
#define PS_OPTION_HEAD_H

#include <stdbool.h>

#include "config/option/options.h"

/* Whether the head has named classes: sequence_classification or token_classification. */
bool ps_head_has_labels(const ps_options *o);
/* For sequence_classification: model.problem_type, or the type that its auto resolves to. */
PS_PRIVATE_API ps_config_problem ps_head_problem(const ps_options *o);
/* Whether the task is a choice among classes, with cross-entropy as loss. */
bool ps_head_has_cross_entropy(const ps_options *o);

#endif
