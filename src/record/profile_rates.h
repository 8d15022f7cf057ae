/* profile_rates.h - the rates that a plan reckoned with, beside those that a profile shows: which of them was off. */
#ifndef PS_RECORD_PROFILE_RATES_H
#define PS_RECORD_PROFILE_RATES_H

#include "record/profile_sum.h"
#include "run/blueprint.h"
#include "run/forecast.h"
#include "state/work_time.h"

/* A moment is what its time is mostly made of: arithmetic (matrix products, attention), memory traffic (norms,
 * activations, small operators), or an update. */
typedef enum ps_profile_rate_kind {
    PS_RATE_ARITHMETIC,
    PS_RATE_MEMORY,
    PS_RATE_UPDATES,
    PS_RATE_LINKS, /* the first of PS_LINK_COLLECTIVES */
    PS_RATE_COUNT = PS_RATE_LINKS + PS_LINK_COLLECTIVES,
} ps_profile_rate_kind;

/* Of an average step; what the profile has nothing of has zeros. Of what computes, `seen` is the rate reckoned with
 * times the time predicted for the moments over the time that they took, with all that slowed them. Of a link both
 * are bytes over the time in which it is busy, as planned and as seen, whether or not the other way is too; what the plan
 * does not move was reckoned with the rate alone. */
typedef struct ps_profile_rate {
    double reckoned, seen; /* FLOP/s of arithmetic, else bytes/s */
    int64_t predicted_ns, measured_ns;
} ps_profile_rate;

const char *ps_profile_rate_name(int kind); /* "arithmetic", "memory traffic", "updates", "host->device" ... */
const char *ps_profile_rate_unit(int kind); /* "FLOP/s", "bytes/s" */

/* forecast: of the same blueprint. PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_profile_rates_find(const ps_profile_sum *s, const ps_blueprint *b,
                                             const ps_forecast *forecast, ps_profile_rate out[PS_RATE_COUNT]);

#endif
