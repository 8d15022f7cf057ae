/* model_data_min.h - model data that must be stored on some tier at any time, and whether all tiers together hold it:
 * arithmetic, before any search. */
#ifndef PS_PLAN_MODEL_DATA_MIN_H
#define PS_PLAN_MODEL_DATA_MIN_H

#include "train/graph/program.h"
#include "train/settings/settings.h"

/* The largest budget of a configuration. */
#define PS_BUDGET_MAX ((int64_t)1 << 60)

/* Of the rank that owns most: parameters as operators read them, and optimizer states of trained ones. Gradients,
 * activations and unused ends of chunks are not included. */
int64_t ps_model_data_min_bytes(const ps_settings *s, const ps_program *program);

enum { PS_BUDGETS_TEXT_MAX = 128 };

/* "device 40 MB, host 20 MB, no disk". Returns text. */
const char *ps_budgets_format(const ps_budgets *budgets, char text[PS_BUDGETS_TEXT_MAX]);

/* PS_EBUDGET, "139 MB of model data, room for 60 MB (device 40 MB, host 20 MB, no disk)",
 * when that is more than the budgets of all tiers; "22.9 MB of model data, 40 kB more than there is (device 22.9 MB,
 * no host, no disk)" when both would read the same. */
PS_NODISCARD ps_status ps_model_data_min_check(const ps_settings *s, const ps_program *program,
                                               const ps_budgets *budgets);

/* The part of these bytes that the tier must hold, as the others hold no more than their budgets. */
int64_t ps_model_data_min_left_to(int64_t min_bytes, const ps_budgets *budgets, ps_tier tier);

#endif
