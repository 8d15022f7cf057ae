/* staging.h - decided while the first execution plan is searched: the size of staging memory for checkpoints
 * (memory.save_buffer), whether there is memory for copies of a step's micro-batches, and whether the disk tier is
 * needed (memory.disk = auto). */
#ifndef PS_PLAN_STAGING_H
#define PS_PLAN_STAGING_H

#include "train/plan/trial.h"

/* ps_search_exec_plan in s->budgets, with s->staging_bytes set: to the configured size; with "auto" to the memory that
 * the step leaves free on the tier, at most the bytes of a checkpoint, at least 8 MiB, or 0 where that does not fit. So
 * is s->batch_copies_bytes: 0 where they do not fit, are never needed, or the program has operators of its own.
 * Where RAM does not suffice s->budgets get the spare disk, if there is one (ps_settings_take_spare_disk). */
PS_NODISCARD ps_status ps_staging_find_exec_plan(ps_settings *s, const ps_program *program, const ps_code *code,
                                                 ps_deadline *deadline, ps_exec_plan **out, ps_forecast *forecast);

#endif
