/* refusal.h - why a model does not fit, and what would make it fit. */
#ifndef PS_PLAN_REFUSAL_H
#define PS_PLAN_REFUSAL_H

#include "base/deadline.h"
#include "train/run/exec_plan.h"

/* How the text of each refusal begins. */
#define PS_REFUSAL_VERDICT "Does not fit: "

/* After a refusal: why, as the last error's text. Returns PS_EBUDGET. */
PS_NODISCARD ps_status ps_refusal_describe(const ps_settings *s, const ps_program *program, const ps_code *code,
                                           ps_deadline *deadline);

/* The same with the smallest changes that fit added to the text: a disk tier, a larger budget, a smaller micro-batch,
 * checkpointing. Each is key=value, or several of them with a space between, which can be given as they are:
 * "memory.device=42.6MB memory.disk=auto (249 MB used)"; except the hint that a folder has too little room,
 * "memory.disk=auto in a memory.disk_path with 280MB free". Each was tried, for some seconds in all, as a start with it
 * would be: s is of config. A change for which the text has no room is left out. */
PS_NODISCARD ps_status ps_refusal_explain(const ps_settings *s, const ps_config *config, ps_model_func model,
                                          void *user, const ps_program *program, const ps_code *code);

/* The smallest budget of a tier with which the model fits, the other budgets as they are; 0: none. When time is up it
 * is one that fits, but perhaps not the smallest. */
PS_NODISCARD ps_status ps_refusal_least_budget(const ps_settings *s, const ps_program *program, const ps_code *code,
                                               ps_tier tier, ps_deadline *deadline, int64_t *bytes);

#endif
