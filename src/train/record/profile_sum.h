/* profile_sum.h - a summary of a profile's records: when each copy was carried out, and averages of a step. */
#ifndef PS_RECORD_PROFILE_SUM_H
#define PS_RECORD_PROFILE_SUM_H

#include "chunk/store.h"

/* Lanes; the links are in the order of ps_link. */
typedef enum ps_profile_lane {
    PS_LANE_COMPUTE,
    PS_LANE_LINKS, /* the first of PS_LINK_COUNT */
    PS_LANE_COUNT = PS_LANE_LINKS + PS_LINK_COUNT,
} ps_profile_lane;

const char *ps_profile_lane_name(int lane); /* "compute", "host->device", ..., "collectives"; static */

typedef struct ps_profile_span {
    int64_t begin_ns, end_ns;
} ps_profile_span;

typedef struct ps_profile_sum {
    const ps_profile *profile;
    const ps_profile_record **moved; /* [n_moved] records of kind MOVED, by link, then ticket */
    int64_t n_moved;
    const ps_profile_record **marks; /* [n_marks] records of kind MARK, likewise */
    int64_t n_marks;
    const ps_profile_record **steps; /* [n_steps] records of kind STEP */
    ps_profile_span *step_spans;     /* [n_steps] */
    int64_t n_steps;
    int64_t peak_bytes[PS_TIER_COUNT]; /* largest of all recorded */
    /* averages over the steps, of the records inside of them; 0 without a step */
    int64_t step_ns, busy_ns[PS_LANE_COUNT]; /* two copies in parallel count once */
    int64_t moved_bytes[PS_LINK_COUNT];
    int critical; /* the busiest lane */
} ps_profile_sum;

/* The records must outlive it. PS_ENOMEM_HOST. */
PS_NODISCARD ps_status ps_profile_sum_init(ps_profile_sum *s, const ps_profile *profile);
void ps_profile_sum_deinit(ps_profile_sum *s);

/* When a COPY was carried out. A simulated queue may not record it: then it was done when it was requested. */
ps_profile_span ps_profile_copy_span(const ps_profile_sum *s, const ps_profile_record *copy);
/* When an OP, or the operators of a STEP, were computed. */
ps_profile_span ps_profile_work_span(const ps_profile_sum *s, const ps_profile_record *r);

/* Index in s->steps, `from` or above, of the step that contains this time; n_steps when there is none. */
int64_t ps_profile_step_at(const ps_profile_sum *s, int64_t from, int64_t time_ns);

#endif
