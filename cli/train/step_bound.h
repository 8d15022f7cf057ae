/* step_bound.h - the steps of a run beside what they could not be faster than (ps_engine_get_bound_info). */
#ifndef PSTAR_STEP_BOUND_H
#define PSTAR_STEP_BOUND_H

#include <jansson.h>

#include "client.h"

/* Times of steps as they come; zeros: none yet. */
typedef struct step_times {
    struct step_time {
        double seconds, waiting_s;
    } * step; /* [n] */
    size_t n;
} step_times;

/* waiting_s: of these seconds. */
PS_NODISCARD ps_status step_times_add(step_times *t, double seconds, double waiting_s);
void step_times_deinit(step_times *t);

/* What the last plan of the run says of a step, and what it took. */
typedef struct step_bound {
    bool is_known; /* the plan's times are of this machine, as measured; else only the run's are told */
    ps_bound_info plan;
    bool is_steady;    /* there were more than the first steps, which fill the tiers */
    double measured_s; /* the median, without them; 0: no step */
    double waiting_s;  /* of measured_s: the same part that waits for copies take of all these steps */
} step_bound;

/* Sorts t. */
void step_bound_find(const ps_engine *e, const ps_config *config, step_times *t, step_bound *out);

/* For summary.json: an object, or NULL. */
json_t *step_bound_json(const step_bound *b);

#endif
