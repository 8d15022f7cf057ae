/* refusal.h - why a model does not fit, and what would make it fit. */
#ifndef PS_PLAN_REFUSAL_H
#define PS_PLAN_REFUSAL_H

#include "base/deadline.h"
#include "run/blueprint.h"

/* After a refusal: why, as the last error's text. Returns PS_EBUDGET. */
PS_NODISCARD ps_status ps_refusal_describe(const ps_settings *s, const ps_program *program, const ps_code *code,
                                           ps_deadline *deadline);

/* The same with the smallest changes that fit added to the text: a larger device budget (exact to the byte), a smaller
 * micro-batch, checkpointing, a disk tier; each was tried, for some seconds. */
PS_NODISCARD ps_status ps_refusal_explain(const ps_settings *s, ps_model_func model, void *user,
                                          const ps_program *program, const ps_code *code);

/* The smallest budget of a tier with which the model fits, the other budgets as they are; 0: none. When time is up it
 * is one that fits, but perhaps not the smallest. */
PS_NODISCARD ps_status ps_refusal_least_budget(const ps_settings *s, const ps_program *program, const ps_code *code,
                                               ps_tier tier, ps_deadline *deadline, int64_t *bytes);

#endif
