/* sim_time_impl.h - the times of one queue, for the files that make simulated queues. */
#ifndef PS_DEVICE_SIM_TIME_IMPL_H
#define PS_DEVICE_SIM_TIME_IMPL_H

#include "device/sim_time.h"

/* Of so many tickets the end is known; of older ones, that of the oldest of these. */
#define PS_SIM_TICKETS 2048

/* Of what something waits for: the span of time, the lane that it is of, and the lane that it waited for before; -1:
 * the host. */
typedef struct ps_sim_point {
    int64_t begin_ns, end_ns;
    int lane, before;
} ps_sim_point;

typedef struct ps_sim_clock ps_sim_clock;
struct ps_sim_clock {
    ps_sim_time *time;
    int lane;
    ps_sim_item last;
    ps_sim_point ready; /* what the next item waits for has ended with this */
    ps_ticket newest;
    ps_sim_point points[PS_SIM_TICKETS]; /* by ticket */
};

/* Lane -1 at first: what takes no time. */
PS_NODISCARD ps_status ps_sim_clock_create(ps_sim_time *t, ps_sim_clock **out);
void ps_sim_clock_destroy(ps_sim_clock *c); /* NULL is accepted */

/* What is issued next comes after the event. */
void ps_sim_clock_wait(ps_sim_clock *c, ps_event e);
/* Item `ticket`: it takes no time; it copies. */
void ps_sim_clock_mark(ps_sim_clock *c, ps_ticket ticket);
void ps_sim_clock_copy(ps_sim_clock *c, ps_ticket ticket, int64_t bytes);
/* A copy of the lane that is no later than others were issued before it: a disk's. */
void ps_sim_clock_transfer(ps_sim_clock *c, ps_ticket ticket, int lane, int64_t bytes);
/* When the next item can begin, as far as it waits for what is known. */
int64_t ps_sim_clock_next_ns(const ps_sim_clock *c);
/* The host goes on when item `ticket` has ended. */
void ps_sim_clock_host_wait(ps_sim_clock *c, ps_ticket ticket);

#endif
