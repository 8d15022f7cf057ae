/* trial.h - runs an execution plan on simulated tiers before memory is allocated: does it fit, and how long does a step
 * take? */
#ifndef PS_PLAN_TRIAL_H
#define PS_PLAN_TRIAL_H

#include "base/deadline.h"
#include "train/run/forecast.h"
#include "train/run/runner.h"

/* Run steps of the execution plan on simulated tiers of these budgets. keeps_dump: after a failure ps_last_memory_dump
 * describes the memory of the trial. PS_EBUDGET when it does not fit; also when the deadline has passed, which
 * `deadline` records. */
PS_NODISCARD ps_status ps_trial_run(const ps_exec_plan *b, const ps_budgets *budgets, bool keeps_dump,
                                    ps_deadline *deadline, ps_forecast *f);

/* Does b, which fits from its own beginning, also fit from the state in which `from` is between steps? Chunks are on
 * other tiers then, and in memory that is full to the last chunk two may not be able to swap. PS_EBUDGET if not. from's
 * store must be synchronized (ps_store_synchronize); *from stays unchanged. */
PS_NODISCARD ps_status ps_trial_change(const ps_runner *from, const ps_exec_plan *b);

/* Run an execution plan that fits again, and record steps first to last, counted from 1, in estimated time. */
PS_NODISCARD ps_status ps_trial_record(const ps_exec_plan *b, const ps_budgets *budgets, int64_t first, int64_t last,
                                       ps_profile *profile);

#endif
