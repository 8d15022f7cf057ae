#include "config/option/head.h"

bool ps_head_has_labels(const ps_options *o)
{
    return o->model_head == PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION ||
           o->model_head == PS_CONFIG_HEAD_TOKEN_CLASSIFICATION;
}

ps_config_problem ps_head_problem(const ps_options *o)
{
    if (o->model_problem_type != PS_CONFIG_PROBLEM_AUTO) return o->model_problem_type;
    return o->model_num_labels == 1 ? PS_CONFIG_PROBLEM_REGRESSION : PS_CONFIG_PROBLEM_SINGLE_LABEL;
}

bool ps_head_has_cross_entropy(const ps_options *o)
{
    switch (o->model_head) {
    case PS_CONFIG_HEAD_CAUSAL_LM:
    case PS_CONFIG_HEAD_MASKED_LM:
    case PS_CONFIG_HEAD_TOKEN_CLASSIFICATION: return true;
    case PS_CONFIG_HEAD_SEQUENCE_CLASSIFICATION: return ps_head_problem(o) == PS_CONFIG_PROBLEM_SINGLE_LABEL;
    case PS_CONFIG_HEAD_QUESTION_ANSWERING:
    case PS_CONFIG_HEAD_NONE: break;
    }
    return false;
}
