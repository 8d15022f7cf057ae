/* staging.h - what is settled while the first blueprint is searched: how much memory pieces of a checkpoint may take on
 * their way to disk (memory.save_buffer), and whether the disk tier is needed (memory.disk = auto). */
#ifndef PS_PLAN_STAGING_H
#define PS_PLAN_STAGING_H

#include "plan/trial.h"

/* ps_search_blueprint in s->budgets, with s->staging_bytes set: to the size configured; with "auto" to what the step
 * leaves free of the tier, at most all that a checkpoint holds, at least 8 MiB, or 0 where so much does not fit. Where
 * RAM does not suffice s->budgets get the spare disk, if there is one (ps_settings_take_spare_disk). */
PS_NODISCARD ps_status ps_staging_find_blueprint(ps_settings *s, const ps_program *program, const ps_code *code,
                                                 ps_deadline *deadline, ps_blueprint **out, ps_forecast *forecast);

#endif
