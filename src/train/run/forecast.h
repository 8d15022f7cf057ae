/* forecast.h - duration, peaks and moved bytes of a run, as predicted by a trial (train/plan/trial.h). */
#ifndef PS_RUN_FORECAST_H
#define PS_RUN_FORECAST_H

#include "chunk/store.h"

/* Estimated time of one step: all = compute + lost + waits. On an asynchronous device updates on the host have a
 * separate queue; otherwise they count as computing, and the host's numbers are 0. */
typedef struct ps_step_time {
    int64_t all_ns, compute_ns;
    int64_t lost_ns;                /* lost by computing to copies at the same time */
    int64_t busy_ns[PS_LINK_COUNT]; /* time with copies */
    int64_t wait_ns[PS_LINK_COUNT]; /* time that computing waited for it */
    int64_t host_ns, host_wait_ns;  /* updates on the host; time that computing waited for them */
    int64_t idle_ns;                /* nothing was issued: the host reads back, or waits for the disk */
} ps_step_time;

/* The resource that bounds the step: "compute", or the link that computing waits for longest, when waits are more than
 * a tenth. */
const char *ps_step_time_critical(const ps_step_time *t);

typedef struct ps_forecast {
    int64_t peak_bytes[PS_TIER_COUNT];   /* from the creation of parameters through steady steps */
    int64_t moved_bytes[PS_LINK_COUNT];  /* of the last step tried, number `steps` */
    ps_step_time step;                   /* average of the last `cycle` steps tried, which then repeat */
    int64_t mean_bytes[PS_LINK_COUNT];   /* moved, the average of the same steps */
    ps_tier_use peak[PS_RAM_TIER_COUNT]; /* the bytes at the peak by kind */
    int64_t steps;                       /* tried; later ones repeat what these did */
    int64_t cycle;                       /* length of the repeating cycle; half of all steps when none was found: */
    bool goes_round; /* a cycle was found; else later steps may differ in moved bytes and in peaks within the budgets */
    /* Where early updates are speculative: of the step that makes those of the one before it again, all taken back */
    ps_step_time taken_back_step;
    ps_step_time recompute_step; /* of the second passes of that one before, with which all begins; 0: there are none */
    int64_t wrong_moved_bytes[PS_LINK_COUNT]; /* of that one before, with its second passes */
    int64_t taken_back_moved_bytes[PS_LINK_COUNT];
    int64_t waiting_step_ns; /* a step of the fastest plan without them; 0: none was tried */
    /* Of a step while speculation is paused; 0: it cannot be. With a larger share of wrong steps it takes less time. */
    ps_step_time paused_step;
    int64_t paused_moved_bytes[PS_LINK_COUNT]; /* of the last one tried; later ones repeat what they did */
    int64_t paused_steps;                      /* tried, after one that was wrong */
    double max_wrong_share;                    /* INFINITY: never */
    int32_t n_not_kept; /* early updates that the last step had to defer, as nothing was there to keep */
} ps_forecast;

#endif
