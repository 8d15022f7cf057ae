/* head.h - what a model with these options learns: model.head and model.problem_type together. */
#ifndef PS_OPTION_HEAD_H
#define PS_OPTION_HEAD_H

#include <stdbool.h>

#include "option/options.h"

/* Has the head classes with names: sequence_classification, or token_classification? */
bool ps_head_has_labels(const ps_options *o);
/* Of sequence_classification: model.problem_type, or what its auto stands for. */
ps_config_problem ps_head_problem(const ps_options *o);
/* Is what it learns a choice among classes, with cross-entropy for its loss? */
bool ps_head_has_cross_entropy(const ps_options *o);

#endif
