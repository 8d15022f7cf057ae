/* sim_time_impl.h - the clock of one queue, for the files that make simulated queues. */
#ifndef PS_DEVICE_SIM_TIME_IMPL_H
#define PS_DEVICE_SIM_TIME_IMPL_H

#include "device/observer.h"
#include "device/sim_time.h"

/* Attaches a clock to a queue that has none; it observes the queue from now on. Lane -1 at first: items take no time.
 * in_any_order: items do not wait for earlier ones (a disk). */
PS_NODISCARD ps_status ps_sim_clock_create(ps_sim_time *t, bool in_any_order, ps_observed *w);
void ps_sim_clock_destroy(struct ps_sim_clock *c); /* NULL is accepted */

/* Items begin when the queue is free and what they wait for has ended; copies take time. */
void ps_sim_clock_observe(const ps_observed *w, const ps_notice *n);

#endif
