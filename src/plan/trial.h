/* trial.h - runs a blueprint on simulated tiers before any memory is taken: does it fit, and how long does a step
 * take? */
#ifndef PS_PLAN_TRIAL_H
#define PS_PLAN_TRIAL_H

#include "base/deadline.h"
#include "run/forecast.h"
#include "run/runner.h"

/* Run steps of the blueprint on simulated tiers of these budgets. keeps_dump: where it fails, ps_last_memory_dump says
 * what it had there. PS_EBUDGET when it does not fit; also when time is up, which `deadline` says then. */
PS_NODISCARD ps_status ps_trial_run(const ps_blueprint *b, const ps_budgets *budgets, bool keeps_dump,
                                    ps_deadline *deadline, ps_forecast *f);

/* Does b, which fits a run that begins with it, also fit one that goes on with it where `from` stands between steps?
 * Chunks lie elsewhere then, and in memory that is full to the last chunk two may not find the room to change places.
 * PS_EBUDGET when not. from's store must be settled (ps_store_settle); *from stays as it is. */
PS_NODISCARD ps_status ps_trial_change(const ps_runner *from, const ps_blueprint *b);

/* Run a blueprint that fits once more, and record what happens in steps first to last, counted from 1, in estimated
 * time. */
PS_NODISCARD ps_status ps_trial_record(const ps_blueprint *b, const ps_budgets *budgets, int64_t first, int64_t last,
                                       ps_profile *profile);

#endif
