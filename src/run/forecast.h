/* forecast.h - what a run will take, as a trial found it (plan/trial.h). */
#ifndef PS_RUN_FORECAST_H
#define PS_RUN_FORECAST_H

#include "chunk/store.h"

/* Estimated time of one step: all = compute + lost + waits. On a device that works later updates on the host have a
 * queue of their own; else they are computing, and what is said of the host is 0. */
typedef struct ps_step_time {
    int64_t all_ns, compute_ns;
    int64_t lost_ns;                /* computing was slower while copies ran */
    int64_t busy_ns[PS_LINK_COUNT]; /* it copied */
    int64_t wait_ns[PS_LINK_COUNT]; /* computing stood still for it */
    int64_t host_ns, host_wait_ns;  /* updates on the host; computing stood still for them */
    int64_t idle_ns;                /* nothing had been issued: the host reads back, or waits for the disk */
} ps_step_time;

/* The resource that bounds the step: "compute", or the link that computing waits for longest, when waits are more than
 * a tenth. */
const char *ps_step_time_critical(const ps_step_time *t);

typedef struct ps_forecast {
    int64_t peak_bytes[PS_TIER_COUNT];  /* from the creation of parameters through steady steps */
    int64_t moved_bytes[PS_LINK_COUNT]; /* of the last step tried, number `steps` */
    ps_step_time step;                  /* average of the last `cycle` steps tried: from then on it goes on like that */
    ps_tier_use peak[PS_RAM_TIER_COUNT]; /* what the bytes at the peak were */
    int64_t steps;                       /* tried; later ones repeat what these did */
    int64_t cycle;   /* so many of the last go round in a circle; half of all when no circle was found: */
    bool goes_round; /* else later steps may move other bytes, and have other peaks within the budgets */
} ps_forecast;

#endif
