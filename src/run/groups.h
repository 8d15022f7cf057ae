/* groups.h - with several ranks: groups of chunks are gathered, reduced and released while operators run, as the
 * blueprint's spans say (span.h). */
#ifndef PS_RUN_GROUPS_H
#define PS_RUN_GROUPS_H

#include "run/runner_impl.h"

/* For the runner's blueprint, as far as this rank does it alone. On failure it is to be closed. */
PS_NODISCARD ps_status ps_groups_open(ps_runner *r);
/* Waits until the communicator touches no payload any more. */
void ps_groups_close(ps_runner *r);
/* Between steps: room for the collectives of bp, and of the runner's own blueprint, should it stay with that one. On
 * failure all is as it was. */
PS_NODISCARD ps_status ps_groups_fit(ps_runner *r, const ps_blueprint *bp);

/* A pass begins. */
void ps_groups_begin_pass(ps_runner *r);
/* What happens to groups at an instruction, up to a kind of event: before it is run those up to AWAIT, then all. */
PS_NODISCARD ps_status ps_groups_run_events(ps_runner *r, int32_t index, ps_span_event_kind last_kind);

#endif
