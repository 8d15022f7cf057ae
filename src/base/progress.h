/* progress.h - reports the progress of a long call, and learns that it is cancelled (ps_set_progress). */
#ifndef PS_BASE_PROGRESS_H
#define PS_BASE_PROGRESS_H

#include "base/status.h"

/* Call this thread's progress function. PS_OK without one. PS_ECANCELED, naming the work, when the function cancels. */
PS_NODISCARD ps_status ps_progress_report(ps_progress_kind what, int64_t done, int64_t total);

/* A search for a plan begins: candidates are counted from 0. */
void ps_progress_begin_plan(void);

/* Another candidate is tried: PS_PROGRESS_PLAN. */
PS_NODISCARD ps_status ps_progress_report_trial(void);

#endif
