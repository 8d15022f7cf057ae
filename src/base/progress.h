/* progress.h - telling how far a long call has come (ps_set_progress), and hearing that it shall end. */
#ifndef PS_BASE_PROGRESS_H
#define PS_BASE_PROGRESS_H

#include "base/status.h"

/* Of the thread that calls: where nobody listens, PS_OK. PS_ECANCELED, naming the work, when who listens says so. */
PS_NODISCARD ps_status ps_progress_tell(ps_progress_kind what, int64_t done, int64_t total);

/* A plan begins: the ways to run a step that are tried for it are counted from 0. */
void ps_progress_begin_plan(void);

/* One way more to run a step is tried: PS_PROGRESS_PLAN. */
PS_NODISCARD ps_status ps_progress_tell_trial(void);

#endif
