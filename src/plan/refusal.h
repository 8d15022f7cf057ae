/* refusal.h - why a model does not fit, and what would make it fit. */
#ifndef PS_PLAN_REFUSAL_H
#define PS_PLAN_REFUSAL_H

#include "run/blueprint.h"

/* After a refusal: the same with the smallest changes that fit added to the last error's text: a larger device budget
 * (exact to the byte), a smaller micro-batch, checkpointing, a disk tier; each was tried. Returns PS_EBUDGET. */
PS_NODISCARD ps_status ps_refusal_explain(const ps_settings *s, ps_model_func model, void *user,
                                          const ps_program *program, const ps_code *code);

#endif
