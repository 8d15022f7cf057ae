/* window_collectives.h - with several ranks: groups of chunks are gathered, reduced and released while operators run,
 * by the execution plan's gather windows (gather_window.h). */
#ifndef PS_RUN_WINDOW_COLLECTIVES_H
#define PS_RUN_WINDOW_COLLECTIVES_H

#include "train/run/runner_impl.h"

/* For the runner's execution plan, the part that this rank does alone. On failure it is to be closed. */
PS_NODISCARD ps_status ps_window_collectives_open(ps_runner *r);
/* Waits until the communicator accesses no payload any more. */
void ps_window_collectives_close(ps_runner *r);
/* Between steps: room for the collectives of plan, in addition to the runner's current execution plan. On failure nothing
 * has changed. */
PS_NODISCARD ps_status ps_window_collectives_fit(ps_runner *r, const ps_exec_plan *plan);

/* A pass begins. */
void ps_window_collectives_begin_pass(ps_runner *r);
/* The events of groups at an instruction, up to a kind: before it runs those up to WAIT, then all. */
PS_NODISCARD ps_status ps_window_collectives_run(ps_runner *r, int32_t index, ps_gather_event_kind last_kind);

#endif
