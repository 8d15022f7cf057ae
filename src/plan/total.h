/* total.h - what lies on some tier at any time, and whether all tiers together hold it: arithmetic, before any search. */
#ifndef PS_PLAN_TOTAL_H
#define PS_PLAN_TOTAL_H

#include "graph/program.h"
#include "settings/settings.h"

/* The largest budget that a configuration may say. */
#define PS_BUDGET_MAX ((int64_t)1 << 60)

/* Of a rank that owns most: parameters as operators read them, and what the optimizer keeps of those that are trained.
 * Gradients, activations and what is left over of chunks come on top. */
int64_t ps_total_bytes(const ps_settings *s, const ps_program *program);

/* PS_EBUDGET with the numbers when that is more than all tiers of the budgets hold together. */
PS_NODISCARD ps_status ps_total_check(const ps_settings *s, const ps_program *program, const ps_budgets *budgets);

/* So many of total_bytes the tier must hold, as the others hold no more than their budgets. */
int64_t ps_total_left_to(int64_t total_bytes, const ps_budgets *budgets, ps_tier tier);

#endif
