/* staging.h - how much memory pieces of a checkpoint may take on their way to disk (memory.save_buffer). */
#ifndef PS_PLAN_STAGING_H
#define PS_PLAN_STAGING_H

#include "plan/trial.h"

/* ps_search_blueprint in s->budgets, with s->staging_bytes set: to the size configured; with "auto" to what the step
 * leaves free of the tier, at most all that a checkpoint holds, at least 8 MiB, or 0 where so much does not fit. */
PS_NODISCARD ps_status ps_staging_find_blueprint(ps_settings *s, const ps_program *program, const ps_code *code,
                                                 ps_deadline *deadline, ps_blueprint **out, ps_forecast *forecast);

#endif
