/* profile_throughput.h - the throughput that a plan assumed, and the one that a profile shows: which of them was
 * wrong. */
#ifndef PS_RECORD_PROFILE_THROUGHPUT_H
#define PS_RECORD_PROFILE_THROUGHPUT_H

#include "train/record/profile_sum.h"
#include "train/run/exec_plan.h"
#include "train/run/forecast.h"
#include "train/state/work_time.h"

/* The dominant part of a moment's time: arithmetic (matrix multiplication, attention), memory traffic (norms,
 * activations, small operators), or an update. */
typedef enum ps_profile_throughput_kind {
    PS_THROUGHPUT_ARITHMETIC,
    PS_THROUGHPUT_MEMORY,
    PS_THROUGHPUT_UPDATES,
    PS_THROUGHPUT_LINKS, /* the first of PS_LINK_COLLECTIVES */
    PS_THROUGHPUT_COUNT = PS_THROUGHPUT_LINKS + PS_LINK_COLLECTIVES,
} ps_profile_throughput_kind;

/* For an average step; zeros for what the profile does not contain. For computing, `seen` is the assumed throughput
 * times the predicted time of the moments over their actual time, with all delays. For a link both are bytes over the
 * time in which it is busy, as planned and as recorded, regardless of the other direction; if the plan moves nothing,
 * the assumed bandwidth. */
typedef struct ps_profile_throughput {
    double reckoned, seen; /* FLOP/s of arithmetic, else bytes/s */
    int64_t predicted_ns, measured_ns;
} ps_profile_throughput;

const char *ps_profile_throughput_name(int kind); /* "arithmetic", "memory traffic", "updates", "host->device" ... */
const char *ps_profile_throughput_unit(int kind); /* "FLOP/s", "bytes/s" */

/* forecast: of the same execution plan. PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_profile_throughput_find(const ps_profile_sum *s, const ps_exec_plan *b,
                                                  const ps_forecast *forecast,
                                                  ps_profile_throughput out[PS_THROUGHPUT_COUNT]);

#endif
