/* model_data_min.h - model data that lies on some tier at any time, and whether all tiers together hold it: arithmetic,
 * before any search. */
#ifndef PS_PLAN_MODEL_DATA_MIN_H
#define PS_PLAN_MODEL_DATA_MIN_H

#include "graph/program.h"
#include "settings/settings.h"

/* The largest budget that a configuration may say. */
#define PS_BUDGET_MAX ((int64_t)1 << 60)

/* Of a rank that owns most: parameters as operators read them, and optimizer states of those that are trained.
 * Gradients, activations and unused ends of chunks come on top. */
int64_t ps_model_data_min_bytes(const ps_settings *s, const ps_program *program);

/* PS_EBUDGET with the numbers when that is more than all tiers of the budgets hold together. */
PS_NODISCARD ps_status ps_model_data_min_check(const ps_settings *s, const ps_program *program,
                                               const ps_budgets *budgets);

/* So many of these bytes the tier must hold, as the others hold no more than their budgets. */
int64_t ps_model_data_min_left_to(int64_t min_bytes, const ps_budgets *budgets, ps_tier tier);

#endif
