/* exchange.h - what a runner tells other ranks while operators run: the groups of its blueprint's spans (span.h).
 *
 * Each exchange stands on the store's timeline with its estimated time; with a communicator and payloads it also
 * happens. */
#ifndef PS_RUN_EXCHANGE_H
#define PS_RUN_EXCHANGE_H

#include "run/runner_impl.h"

/* For the runner's blueprint, as far as this rank does it alone. On failure it is to be closed. */
PS_NODISCARD ps_status ps_exchange_open(ps_runner *r);
/* The rest: ps_runner_join. */
PS_NODISCARD ps_status ps_exchange_join(ps_runner *r);
/* Waits until the communicator touches no payload any more. */
void ps_exchange_close(ps_runner *r);
/* Between steps: room for the exchanges of bp, and of the runner's own blueprint, should it stay with that one. On
 * failure all is as it was. */
PS_NODISCARD ps_status ps_exchange_fit(ps_runner *r, const ps_blueprint *bp);

/* The moment at which span i gets its memory in the micro-batch under way. */
int32_t ps_exchange_moment(const ps_runner *r, int32_t i);

/* Begin: every rank gets all chunks of the group. They are pinned on the device. */
PS_NODISCARD ps_status ps_exchange_begin_gather(ps_runner *r, int32_t i);
/* Begin: each owner gets the sum of all ranks' gradients. */
PS_NODISCARD ps_status ps_exchange_begin_reduction(ps_runner *r, int32_t i);
/* What is computed from now on comes after the exchanges begun for this span. The host waits, unless the device works
 * later. */
PS_NODISCARD ps_status ps_exchange_await(ps_runner *r, int32_t i);

#endif
